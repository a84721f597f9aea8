DROP VIEW dead_letter_readable;
DROP TABLE dead_letter;
DROP TABLE retry;
