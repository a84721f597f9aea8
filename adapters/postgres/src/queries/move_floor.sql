-- Raises the floors and opens the period of today, where they are due. Sent as one simple query, which is
-- one transaction: a client that freezes cannot hold the barrier. Whoever holds back a unit of work by
-- waiting for it does so for 50 ms.
SET LOCAL lock_timeout = '50ms';
SET LOCAL statement_timeout = '10s';
SELECT pg_advisory_xact_lock(781105441, 'inbox_floor'::regclass::oid::int);
LOCK TABLE inbox_floor IN EXCLUSIVE MODE;
INSERT INTO inbox_period (day, opened_at)
SELECT today, oneffect_now()
FROM inbox_floor, (SELECT (oneffect_now() AT TIME ZONE 'UTC')::date) AS clock (today)
WHERE today >= open_period + (window_days + 3) / 4
ON CONFLICT (day) DO NOTHING;
UPDATE inbox_floor
SET floor = greatest(floor, (oneffect_now() AT TIME ZONE 'UTC')::date - window_days),
    open_period = greatest(open_period, (SELECT max(day) FROM inbox_period)),
    open_floor = greatest(open_floor, (
        SELECT max(day) FROM inbox_period
        WHERE opened_at <= oneffect_now() - make_interval(hours => 24 * window_days)
    ));
DELETE FROM inbox_period WHERE day < (SELECT open_floor FROM inbox_floor);
