-- What creates each partition that will be needed and is not there: of yesterday, today and tomorrow and
-- of the days $1, as far as they are remembered and believed; of the open period, and of the one that
-- is to be opened today. Never anything below the floor. Names and bounds do not depend on a session's
-- time zone or date style.
WITH state AS (
    SELECT floor, open_floor, open_period,
           today >= open_period + (window_days + 3) / 4 AS opens_today,
           today
    FROM inbox_floor, (SELECT (oneffect_now() AT TIME ZONE 'UTC')::date) AS clock (today)
), wanted (parent, day, values) AS (
    SELECT 'inbox', wanted.day,
           format('FROM (%L) TO (%L)', to_char(wanted.day, 'YYYY-MM-DD'), to_char(wanted.day + 1, 'YYYY-MM-DD'))
    FROM state, LATERAL (
        SELECT today + ahead FROM generate_series(-1, 1) AS ahead
        UNION
        SELECT date '1970-01-01' + asked FROM unnest($1::int[]) AS asked
    ) AS wanted (day)
    WHERE wanted.day BETWEEN floor AND today + 1
    UNION ALL
    SELECT 'inbox_open', period, format('IN (%L)', to_char(period, 'YYYY-MM-DD'))
    FROM state, LATERAL (
        SELECT open_period
        UNION
        SELECT today WHERE opens_today
    ) AS wanted (period)
), named AS (
    SELECT parent, day, values, parent || to_char(day, '_YYYYMMDD') AS name, nspname AS schema
    FROM wanted, pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
    WHERE pg_class.oid = 'inbox_floor'::regclass
)
-- Attached to an empty table: `CREATE .. PARTITION OF` would wait for all writers, and stall them.
SELECT format(
           'CREATE TABLE IF NOT EXISTS %1$I.%2$I (LIKE %1$I.%3$I INCLUDING ALL);
            COMMENT ON TABLE %1$I.%2$I IS %5$L;
            ALTER TABLE %1$I.%3$I ATTACH PARTITION %1$I.%2$I FOR VALUES %4$s',
           schema, name, parent, values, 'oneffect: forgotten as a whole'
       )
FROM named
WHERE NOT EXISTS (
    SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = format('%I.%I', schema, parent)::regclass AND relname = name
)
ORDER BY parent, day
