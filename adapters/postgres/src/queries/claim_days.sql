-- Claims keys that have a day of their own by inserting them, and ends the claim's lock_timeout once
-- all are inserted, unless keys without a day follow ($7), or late ones that are taken as new ($8).
-- Answers at least one row: the transaction's id (null when nothing was claimed) and the days that are
-- accepted; and a row for each fresh key with what is known of its failures.
--
-- Sorted, so that overlapping batches wait for one another and not in a circle. The aggregate reads
-- all of `claimed` before it answers, so lock_timeout holds until the last insert.
WITH accepted AS MATERIALIZED (
    SELECT floor, (oneffect_now() AT TIME ZONE 'UTC')::date + 1 AS last FROM inbox_floor
), claimed AS (
    -- Where no fingerprints are taken their array is null, and unnest fills up with nulls.
    INSERT INTO inbox (consumer, event_id, tenant, day, fingerprint)
    SELECT $3, key.event_id, key.tenant, date '1970-01-01' + key.day, key.fingerprint
    FROM unnest($1::bytea[], $2::bytea[], $6::int[], $5::bytea[])
        AS key (event_id, tenant, day, fingerprint)
    WHERE date '1970-01-01' + key.day
        BETWEEN (SELECT floor FROM accepted) AND (SELECT last FROM accepted)
    ORDER BY key.event_id, key.tenant
    ON CONFLICT (event_id, tenant, consumer, day) DO NOTHING
    RETURNING event_id, tenant
), ended AS MATERIALIZED (
    SELECT set_config(
               'lock_timeout',
               CASE
                   WHEN $7 OR $8 AND date '1970-01-01' + (SELECT min(day) FROM unnest($6::int[]) AS day)
                       < (SELECT floor FROM accepted)
                       THEN current_setting('lock_timeout')
                   WHEN count(*) >= 0 THEN $4
               END,
               true
           ),
           pg_current_xact_id_if_assigned()::text AS transaction_id
    FROM claimed
), failed AS MATERIALIZED (
    -- Not probed for each key: a plan from when this table had three rows would read all of it each
    -- time, and goes on doing so for a while after it has grown.
    SELECT retry.event_id, retry.tenant, retry.attempts, retry.last_error,
           extract(epoch FROM retry.next_attempt_at - oneffect_now())::float8 AS wait
    FROM retry
    WHERE retry.event_id = ANY ($1::bytea[]) AND retry.consumer = $3
)
SELECT ended.transaction_id,
       accepted.floor - date '1970-01-01' AS floor, accepted.last - date '1970-01-01' AS last,
       claimed.event_id, claimed.tenant, failed.attempts, failed.last_error, failed.wait
FROM accepted
CROSS JOIN ended
LEFT JOIN claimed ON true
LEFT JOIN failed ON failed.event_id = claimed.event_id AND failed.tenant = claimed.tenant
