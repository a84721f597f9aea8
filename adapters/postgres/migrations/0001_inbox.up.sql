-- The time, by which every day, floor and expiry is decided: the database's, never a client's. Tests
-- put another function in its place.
CREATE FUNCTION oneffect_now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN now();

-- The names of consumers; their small numbers keep the inbox slim.
CREATE TABLE consumer (
    id         int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        COLLATE "C" NOT NULL UNIQUE,
    days_from  text        NOT NULL, -- 'id' or 'producer': where the days of its events come from
    created_at timestamptz NOT NULL DEFAULT now()
);

-- What became of each event that has a day of its own, which is a function of the event. Columns stand
-- widest first, so that no row is padded. The key starts with the event id: half the index work of one
-- that starts with the consumer. Ids and tenants are bytes, which no collation folds and which may
-- contain NUL. Partitions are created ahead by maintenance, and by the claim that misses one.
CREATE TABLE inbox (
    recorded_at timestamptz NOT NULL DEFAULT oneffect_now(),
    consumer    int         NOT NULL,
    day         date        NOT NULL,           -- in UTC
    outcome     smallint    NOT NULL DEFAULT 0, -- 0 done, 1 rejected, 2 dead
    event_id    bytea       NOT NULL,           -- 01 and a UUID's 16 bytes, or 02 and UTF-8
    tenant      bytea       NOT NULL,           -- UTF-8, empty by default
    fingerprint bytea,                          -- the number of its setting, then 16 bytes
    reply       bytea,                          -- the handler's; of a rejected event the reason, in UTF-8
    PRIMARY KEY (event_id, tenant, consumer, day)
) PARTITION BY RANGE (day);

-- The same for all others: filed under the period that is open when they are claimed, and looked for in
-- every period that is remembered. `day` is the one on which the period was opened.
CREATE TABLE inbox_open (LIKE inbox INCLUDING ALL) PARTITION BY LIST (day);

-- One row: what is remembered. A unit of work holds a ROW SHARE lock on this table to its end; whoever
-- changes a floor or the open period does so under an EXCLUSIVE one, so that no unit outlasts a change.
CREATE TABLE inbox_floor (
    floor       date    NOT NULL, -- the first day that is remembered; only rises
    open_floor  date    NOT NULL, -- the first period that is remembered; only rises
    open_period date    NOT NULL, -- the one that is open; only moves on
    audited     date    NOT NULL, -- the last day whose keys were compared with those of the next
    window_days int     NOT NULL CHECK (window_days BETWEEN 1 AND 3650),
    one         int     NOT NULL PRIMARY KEY CHECK (one = 1)
);

-- The periods that are remembered, by the days on which they were opened. One is forgotten when its
-- successor has been open for a window.
CREATE TABLE inbox_period (
    day       date        NOT NULL PRIMARY KEY,
    opened_at timestamptz NOT NULL
);

INSERT INTO inbox_floor (floor, open_floor, open_period, audited, window_days, one)
SELECT today - 8, today, today, today - 9, 8, 1
FROM (SELECT (oneffect_now() AT TIME ZONE 'UTC')::date) AS clock (today);
INSERT INTO inbox_period (day, opened_at) SELECT open_period, oneffect_now() FROM inbox_floor;

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

-- All of the inbox, for people: `day` is the event's own, `period` the one that it was filed under.
CREATE VIEW inbox_readable AS
SELECT consumer.name AS consumer,
       event_id_text(settled.event_id) AS event_id,
       utf8_text(settled.tenant) AS tenant,
       CASE settled.outcome WHEN 0 THEN 'done' WHEN 1 THEN 'rejected' WHEN 2 THEN 'dead' END AS outcome,
       CASE settled.outcome WHEN 1 THEN utf8_text(settled.reply) END AS reason,
       settled.recorded_at,
       settled.day,
       settled.period
FROM (
    SELECT consumer, event_id, tenant, outcome, reply, recorded_at, day, NULL::date AS period FROM inbox
    UNION ALL
    SELECT consumer, event_id, tenant, outcome, reply, recorded_at, NULL::date, day FROM inbox_open
) AS settled
JOIN consumer ON consumer.id = settled.consumer;
