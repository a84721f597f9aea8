-- The clock that decides days, the floor, ages and waits: seconds since 1970, with their fraction.
-- Tests put another view in its place.
CREATE VIEW oneffect_now AS SELECT unixepoch('subsec') AS now;

-- The first day that is still remembered, and how many before today that should be. Days are
-- numbered from 1970-01-01, UTC. The floor only rises, and does so before anything is deleted.
CREATE TABLE inbox_floor (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    floor       INTEGER NOT NULL,
    window_days INTEGER NOT NULL CHECK (window_days BETWEEN 1 AND 3650)
) STRICT;

INSERT INTO inbox_floor (one, floor, window_days)
SELECT 1, CAST(now / 86400 AS INTEGER) - 8, 8 FROM oneffect_now;

-- The names of consumers; their small numbers keep the inbox slim.
CREATE TABLE consumer (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    days       TEXT NOT NULL,              -- where its events' days come from: 'id' or 'producer'
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
) STRICT;

-- What became of each event. Ids and tenants are bytes, which no collation folds and which may
-- contain NUL. The key is the table: without a rowid there is one tree to write, not two.
CREATE TABLE inbox (
    event_id    BLOB    NOT NULL,           -- 01 and a UUID's 16 bytes, or 02 and UTF-8
    tenant      BLOB    NOT NULL,           -- UTF-8, empty by default
    consumer    INTEGER NOT NULL,
    outcome     INTEGER NOT NULL DEFAULT 0, -- 0 done, 1 rejected, 2 dead
    fingerprint BLOB,                       -- the number of its setting, then 16 bytes
    reply       BLOB,                       -- the handler's; of a rejected event the reason, in UTF-8
    recorded_at INTEGER NOT NULL,           -- seconds since 1970
    day         INTEGER NOT NULL,           -- the event's own, or that of its recording where it has none
    PRIMARY KEY (event_id, tenant, consumer)
) STRICT, WITHOUT ROWID;

-- What is below the floor is found by its day, a few rows at a time.
CREATE INDEX inbox_by_day ON inbox (day);

-- SQLite has no functions of our own, so what event_id_text does elsewhere is written out here. Where
-- there is a NUL, at which tools would stop reading, the bytes are shown.
CREATE VIEW inbox_readable AS
SELECT consumer.name AS consumer,
       CASE
           WHEN substr(inbox.event_id, 1, 1) = x'01' THEN lower(
               substr(hex(inbox.event_id), 3, 8) || '-' || substr(hex(inbox.event_id), 11, 4) || '-' ||
               substr(hex(inbox.event_id), 15, 4) || '-' || substr(hex(inbox.event_id), 19, 4) || '-' ||
               substr(hex(inbox.event_id), 23))
           WHEN instr(inbox.event_id, x'00') THEN quote(substr(inbox.event_id, 2))
           ELSE CAST(substr(inbox.event_id, 2) AS TEXT)
       END AS event_id,
       iif(instr(inbox.tenant, x'00'), quote(inbox.tenant), CAST(inbox.tenant AS TEXT)) AS tenant,
       CASE inbox.outcome WHEN 0 THEN 'done' WHEN 1 THEN 'rejected' WHEN 2 THEN 'dead' END AS outcome,
       CASE inbox.outcome
           WHEN 1 THEN iif(instr(inbox.reply, x'00'), quote(inbox.reply), CAST(inbox.reply AS TEXT))
       END AS reason,
       datetime(inbox.recorded_at, 'unixepoch') AS recorded_at,
       date(inbox.day * 86400, 'unixepoch') AS day
FROM inbox JOIN consumer ON consumer.id = inbox.consumer;
