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

-- Events set aside, whole.
CREATE TABLE dead_letter (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer      INTEGER NOT NULL,
    source_key    BLOB    NOT NULL,
    kind          TEXT    NOT NULL,
    event_id      BLOB,                     -- as in the inbox; null when it has no readable one
    tenant        BLOB,
    source        TEXT    NOT NULL,         -- the topic or queue
    log_partition INTEGER,
    log_offset    INTEGER,
    message_id    TEXT,
    raw_key       BLOB,
    payload       BLOB,                     -- null is a tombstone, which is not an empty payload
    headers       TEXT    NOT NULL,         -- [["name", "text" | {"hex": ".."} | null], ..]
    published_at  TEXT,                     -- by the broker; null when unknown or out of range
    first_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    last_at       TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    deliveries    INTEGER NOT NULL DEFAULT 1,
    attempts      INTEGER NOT NULL,
    error         TEXT    NOT NULL,
    UNIQUE (source_key, consumer)
) STRICT;
