DROP VIEW inbox_readable;
DROP TABLE inbox;
DROP TABLE consumer;
DROP TABLE inbox_floor;
DROP VIEW oneffect_now;
