-- Failed attempts of events that are not settled yet; deleted when they are.
CREATE TABLE retry (
    next_attempt_at timestamptz NOT NULL,
    consumer        int         NOT NULL,
    attempts        int         NOT NULL,
    event_id        bytea       NOT NULL,
    tenant          bytea       NOT NULL,
    last_error      text        NOT NULL,
    PRIMARY KEY (event_id, tenant, consumer)
);

-- Events set aside, whole.
CREATE TABLE dead_letter (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      int         NOT NULL,
    source_key    bytea       NOT NULL,
    kind          text        NOT NULL,
    event_id      bytea,                -- as in the inbox; null when it has no readable one
    tenant        bytea,
    source        text        NOT NULL, -- the topic or queue
    log_partition int,
    log_offset    bigint,
    message_id    text,
    raw_key       bytea,
    payload       bytea,                -- null is a tombstone, which is not an empty payload
    headers       json        NOT NULL, -- [["name", "text" | {"hex": ".."} | null], ..]
    published_at  timestamptz,          -- by the broker; null when unknown or out of range
    first_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    deliveries    int         NOT NULL DEFAULT 1,
    attempts      int         NOT NULL,
    error         text        NOT NULL,
    UNIQUE (source_key, consumer)
);
