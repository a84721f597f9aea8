DROP VIEW inbox_readable;
DROP TABLE dead_letter;
DROP TABLE retry;
DROP TABLE inbox;
DROP TABLE consumer;
