DROP VIEW inbox_readable;
DROP TABLE inbox;
DROP TABLE consumer;
