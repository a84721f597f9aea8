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

-- Events set aside, whole. A letter is deleted by the unit of work that redrives it.
CREATE TABLE dead_letter (
    id                   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer             int         NOT NULL,
    source_key           bytea       NOT NULL,
    kind                 text        NOT NULL,
    event_id             bytea,                -- as in the inbox; null when it has no readable one
    tenant               bytea,
    fingerprint          bytea,                -- as in the inbox
    settled_fingerprint  bytea,                -- of a mismatch: of the event that was first
    source               text        NOT NULL, -- the topic or queue
    log_partition        int,
    log_offset           bigint,
    message_id           text,
    deduplication_id     text,
    ordered              boolean     NOT NULL, -- whether the source knows an order
    message_group        bytea,
    lane                 bytea,                -- what it is redriven in order with
    raw_key              bytea,
    payload              bytea,                -- null is a tombstone, which is not an empty payload
    headers              json        NOT NULL, -- [["name", "text" | {"hex": ".."} | null], ..]
    raw_key_length       bigint,               -- of what was cut: how long it was
    payload_length       bigint,
    headers_dropped      int         NOT NULL DEFAULT 0,
    published_at         timestamptz,          -- by the broker; null when unknown or out of range
    first_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    deliveries           int         NOT NULL DEFAULT 1,
    attempts             int         NOT NULL,
    error                text        NOT NULL,
    redrive_requested_at timestamptz,          -- null: nobody has asked for it
    redrive_due_at       timestamptz,
    redrive_attempts     int         NOT NULL DEFAULT 0,
    redrive_as_new       boolean     NOT NULL DEFAULT false,
    UNIQUE (source_key, consumer)
);

-- For the number that a consumer may have, and for lists.
CREATE INDEX dead_letter_of_consumer ON dead_letter (consumer, id);
CREATE INDEX dead_letter_requested ON dead_letter (consumer, id) WHERE redrive_requested_at IS NOT NULL;
CREATE INDEX dead_letter_lane ON dead_letter (consumer, lane, id) WHERE redrive_requested_at IS NOT NULL;

-- Bytes as text where they are text, else in hexadecimal.
CREATE FUNCTION bytes_text(bytes bytea) RETURNS text
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN bytes::text;
END
$$;

CREATE VIEW dead_letter_readable AS
SELECT dead_letter.id,
       consumer.name AS consumer,
       dead_letter.kind,
       event_id_text(dead_letter.event_id) AS event_id,
       utf8_text(dead_letter.tenant) AS tenant,
       concat_ws('/', dead_letter.source, dead_letter.log_partition, dead_letter.log_offset,
                 dead_letter.message_id) AS position,
       bytes_text(dead_letter.raw_key) AS key,
       bytes_text(dead_letter.payload) AS payload,
       dead_letter.headers,
       dead_letter.payload_length IS NOT NULL OR dead_letter.raw_key_length IS NOT NULL
           OR dead_letter.headers_dropped > 0 AS cut,
       dead_letter.published_at,
       dead_letter.first_at,
       dead_letter.last_at,
       dead_letter.deliveries,
       dead_letter.attempts,
       dead_letter.error,
       dead_letter.redrive_requested_at,
       dead_letter.redrive_as_new
FROM dead_letter JOIN consumer ON consumer.id = dead_letter.consumer;
