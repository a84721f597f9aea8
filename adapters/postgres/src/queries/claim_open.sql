-- As claim_days.sql, for keys without a day of their own: claims them in the open period, unless they
-- stand in one that is closed. Those can be read before the insert, since no unit adds to a period once
-- another is open.
WITH period AS MATERIALIZED (
    SELECT open_floor, open_period FROM inbox_floor
), closed AS MATERIALIZED (
    SELECT event_id, tenant FROM inbox_open
    WHERE event_id = ANY ($1::bytea[])
      AND consumer = $3
      AND day >= (SELECT open_floor FROM period)
      AND day < (SELECT open_period FROM period)
), claimed AS (
    INSERT INTO inbox_open (consumer, event_id, tenant, day, fingerprint)
    SELECT $3, key.event_id, key.tenant, (SELECT open_period FROM period), key.fingerprint
    FROM unnest($1::bytea[], $2::bytea[], $5::bytea[]) AS key (event_id, tenant, fingerprint)
    WHERE NOT EXISTS (
        SELECT FROM closed WHERE closed.event_id = key.event_id AND closed.tenant = key.tenant
    )
    ORDER BY key.event_id, key.tenant
    ON CONFLICT (event_id, tenant, consumer, day) DO NOTHING
    RETURNING event_id, tenant
), ended AS MATERIALIZED (
    SELECT set_config('lock_timeout', CASE WHEN count(*) >= 0 THEN $4 END, true),
           pg_current_xact_id_if_assigned()::text AS transaction_id
    FROM claimed
), failed AS MATERIALIZED (
    SELECT retry.event_id, retry.tenant, retry.attempts, retry.last_error,
           extract(epoch FROM retry.next_attempt_at - oneffect_now())::float8 AS wait
    FROM retry
    WHERE retry.event_id = ANY ($1::bytea[]) AND retry.consumer = $3
)
SELECT ended.transaction_id,
       period.open_floor - date '1970-01-01' AS floor, period.open_period - date '1970-01-01' AS last,
       claimed.event_id, claimed.tenant, failed.attempts, failed.last_error, failed.wait
FROM period
CROSS JOIN ended
LEFT JOIN claimed ON true
LEFT JOIN failed ON failed.event_id = claimed.event_id AND failed.tenant = claimed.tenant
