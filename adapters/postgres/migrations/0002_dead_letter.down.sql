DROP VIEW dead_letter_readable;
DROP FUNCTION bytes_text(bytea);
DROP TABLE dead_letter;
DROP TABLE retry;
