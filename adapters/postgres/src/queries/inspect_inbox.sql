SELECT consumer.name, settled.tenant, settled.outcome, settled.fingerprint, settled.reply, settled.is_own_day,
       settled.day - date '1970-01-01' AS day,
       (extract(epoch FROM settled.recorded_at) * 1000000)::bigint AS recorded_at
FROM (
    SELECT true AS is_own_day, * FROM inbox WHERE event_id = $1
    UNION ALL
    SELECT false, * FROM inbox_open WHERE event_id = $1
) AS settled
JOIN consumer ON consumer.id = settled.consumer
ORDER BY settled.recorded_at
