DROP VIEW inbox_readable;
DROP FUNCTION event_id_bytes(text);
DROP FUNCTION event_id_text(bytea);
DROP FUNCTION utf8_text(bytea);
DROP TABLE inbox;
DROP TABLE consumer;
