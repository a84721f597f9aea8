DROP TABLE dead_letter;
DROP TABLE retry;
