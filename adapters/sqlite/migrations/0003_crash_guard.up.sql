-- Events whose handlers have begun, for as long as nobody has said how that ended: only of consumers
-- with a crash guard.
CREATE TABLE started (
    event_id   BLOB    NOT NULL,
    tenant     BLOB    NOT NULL,
    consumer   INTEGER NOT NULL,
    process    BLOB    NOT NULL,           -- a run of a consumer: 16 bytes
    alone      INTEGER NOT NULL DEFAULT 0, -- this process runs nothing else
    crashes    INTEGER NOT NULL DEFAULT 0, -- ends of processes that ran this event and nothing else
    started_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    PRIMARY KEY (event_id, tenant, consumer)
) STRICT, WITHOUT ROWID;
