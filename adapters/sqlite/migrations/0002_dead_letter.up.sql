-- Failed attempts of events that are not settled yet; deleted when they are.
CREATE TABLE retry (
    event_id        BLOB    NOT NULL,
    tenant          BLOB    NOT NULL,
    consumer        INTEGER NOT NULL,
    attempts        INTEGER NOT NULL,
    next_attempt_at REAL    NOT NULL,       -- seconds since 1970, with their fraction
    last_error      TEXT    NOT NULL,
    PRIMARY KEY (event_id, tenant, consumer)
) STRICT, WITHOUT ROWID;

-- Events set aside, whole. A letter is deleted by the unit of work that redrives it. Times are in
-- milliseconds since 1970, but for the broker's.
CREATE TABLE dead_letter (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer             INTEGER NOT NULL,
    source_key           BLOB    NOT NULL,
    kind                 TEXT    NOT NULL,
    event_id             BLOB,                 -- as in the inbox; null when it has no readable one
    tenant               BLOB,
    fingerprint          BLOB,                 -- as in the inbox
    settled_fingerprint  BLOB,                 -- of a mismatch: of the event that was first
    source               TEXT    NOT NULL,     -- the topic or queue
    log_partition        INTEGER,
    log_offset           INTEGER,
    message_id           TEXT,
    deduplication_id     TEXT,
    ordered              INTEGER NOT NULL,     -- whether the source knows an order
    message_group        BLOB,
    lane                 BLOB,                 -- what it is redriven in order with
    raw_key              BLOB,
    payload              BLOB,                 -- null is a tombstone, which is not an empty payload
    headers              TEXT    NOT NULL,     -- [["name", "text" | {"hex": ".."} | null], ..]
    raw_key_length       INTEGER,              -- of what was cut: how long it was
    payload_length       INTEGER,
    headers_dropped      INTEGER NOT NULL DEFAULT 0,
    published_at         INTEGER,              -- microseconds; by the broker; null when unknown or out of range
    first_at             INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    last_at              INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    deliveries           INTEGER NOT NULL DEFAULT 1,
    attempts             INTEGER NOT NULL,
    error                TEXT    NOT NULL,
    redrive_requested_at INTEGER,              -- null: nobody has asked for it
    redrive_due_at       INTEGER,
    redrive_attempts     INTEGER NOT NULL DEFAULT 0,
    redrive_as_new       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source_key, consumer)
) STRICT;

-- For the number that a consumer may have, and for lists.
CREATE INDEX dead_letter_of_consumer ON dead_letter (consumer, id);
CREATE INDEX dead_letter_requested ON dead_letter (consumer, id) WHERE redrive_requested_at IS NOT NULL;
CREATE INDEX dead_letter_lane ON dead_letter (consumer, lane, id) WHERE redrive_requested_at IS NOT NULL;

-- Where there is a NUL, at which tools would stop reading, the bytes are shown.
CREATE VIEW dead_letter_readable AS
SELECT dead_letter.id,
       consumer.name AS consumer,
       dead_letter.kind,
       CASE
           WHEN substr(dead_letter.event_id, 1, 1) = x'01' THEN lower(
               substr(hex(dead_letter.event_id), 3, 8) || '-' || substr(hex(dead_letter.event_id), 11, 4) || '-' ||
               substr(hex(dead_letter.event_id), 15, 4) || '-' || substr(hex(dead_letter.event_id), 19, 4) || '-' ||
               substr(hex(dead_letter.event_id), 23))
           WHEN instr(dead_letter.event_id, x'00') THEN quote(substr(dead_letter.event_id, 2))
           ELSE CAST(substr(dead_letter.event_id, 2) AS TEXT)
       END AS event_id,
       iif(instr(dead_letter.tenant, x'00'), quote(dead_letter.tenant), CAST(dead_letter.tenant AS TEXT)) AS tenant,
       dead_letter.source || coalesce('/' || dead_letter.log_partition || '/' || dead_letter.log_offset, '')
           || coalesce('/' || dead_letter.message_id, '') AS position,
       iif(instr(dead_letter.raw_key, x'00'), quote(dead_letter.raw_key), CAST(dead_letter.raw_key AS TEXT)) AS key,
       iif(instr(dead_letter.payload, x'00'), quote(dead_letter.payload), CAST(dead_letter.payload AS TEXT)) AS payload,
       dead_letter.headers,
       dead_letter.payload_length IS NOT NULL OR dead_letter.raw_key_length IS NOT NULL
           OR dead_letter.headers_dropped > 0 AS cut,
       strftime('%Y-%m-%dT%H:%M:%fZ', dead_letter.published_at / 1000000.0, 'unixepoch') AS published_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', dead_letter.first_at / 1000.0, 'unixepoch') AS first_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', dead_letter.last_at / 1000.0, 'unixepoch') AS last_at,
       dead_letter.deliveries,
       dead_letter.attempts,
       dead_letter.error,
       strftime('%Y-%m-%dT%H:%M:%fZ', dead_letter.redrive_requested_at / 1000.0, 'unixepoch') AS redrive_requested_at,
       dead_letter.redrive_as_new
FROM dead_letter JOIN consumer ON consumer.id = dead_letter.consumer;
