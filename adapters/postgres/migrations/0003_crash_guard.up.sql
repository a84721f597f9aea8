-- Events whose handlers have begun, for as long as nobody has said how that ended: only of consumers
-- with a crash guard. It has to outlive the consumer's process and not the server, so it is written
-- without the log; a crash of the server, which ends no consumer, empties it.
CREATE UNLOGGED TABLE started (
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    consumer   int         NOT NULL,
    crashes    int         NOT NULL DEFAULT 0,     -- ends of processes that ran this event and nothing else
    alone      bool        NOT NULL DEFAULT false, -- this process runs nothing else
    process    bytea       NOT NULL,               -- a run of a consumer: 16 bytes
    event_id   bytea       NOT NULL,
    tenant     bytea       NOT NULL,
    PRIMARY KEY (event_id, tenant, consumer)
);
