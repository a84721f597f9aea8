-- The names of consumers; their small numbers keep the inbox slim.
CREATE TABLE consumer (
    id         int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        COLLATE "C" NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- What became of each event. Columns stand widest first, so that no row is padded. The key starts
-- with the event id: half the index work of one that starts with the consumer. Ids and tenants are
-- bytes, which no collation folds and which may contain NUL.
CREATE TABLE inbox (
    recorded_at timestamptz NOT NULL DEFAULT now(),
    consumer    int         NOT NULL,
    outcome     smallint    NOT NULL DEFAULT 0, -- 0 done, 1 rejected, 2 dead
    event_id    bytea       NOT NULL,           -- 01 and a UUID's 16 bytes, or 02 and UTF-8
    tenant      bytea       NOT NULL,           -- UTF-8, empty by default
    fingerprint bytea,                          -- the number of its setting, then 16 bytes
    reply       bytea,                          -- the handler's; of a rejected event the reason, in UTF-8
    PRIMARY KEY (event_id, tenant, consumer)
);

-- The bodies of these functions are bound now, so they work whatever the caller's search_path.

-- UTF-8 as text. NUL, which text cannot hold, is shown as its picture.
CREATE FUNCTION utf8_text(bytes bytea) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN CASE
    WHEN position('\x00'::bytea IN bytes) = 0 THEN convert_from(bytes, 'UTF8')
    ELSE (
        SELECT convert_from(decode(string_agg(replace(pair[1], '00', 'e29080'), '' ORDER BY place), 'hex'), 'UTF8')
        FROM regexp_matches(encode(bytes, 'hex'), '..', 'g') WITH ORDINALITY AS pairs (pair, place)
    )
END;

-- An event id as its producer wrote it.
CREATE FUNCTION event_id_text(event_id bytea) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN CASE get_byte(event_id, 0)
    WHEN 1 THEN encode(substr(event_id, 2), 'hex')::uuid::text
    ELSE utf8_text(substr(event_id, 2))
END;

-- How the inbox keeps an event id: for looking one up by hand.
CREATE FUNCTION event_id_bytes(event_id text) RETURNS bytea
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN CASE
    WHEN event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        THEN '\x01'::bytea || decode(replace(event_id, '-', ''), 'hex')
    ELSE '\x02'::bytea || convert_to(event_id, 'UTF8')
END;

CREATE VIEW inbox_readable AS
SELECT consumer.name AS consumer,
       event_id_text(inbox.event_id) AS event_id,
       utf8_text(inbox.tenant) AS tenant,
       CASE inbox.outcome WHEN 0 THEN 'done' WHEN 1 THEN 'rejected' WHEN 2 THEN 'dead' END AS outcome,
       CASE inbox.outcome WHEN 1 THEN utf8_text(inbox.reply) END AS reason,
       inbox.recorded_at
FROM inbox JOIN consumer ON consumer.id = inbox.consumer;
