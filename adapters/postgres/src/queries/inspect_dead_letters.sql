SELECT consumer.name, letter.tenant, letter.id, letter.kind,
       coalesce(
           letter.source || '/' || letter.log_partition || '/' || letter.log_offset,
           letter.source || '/' || letter.message_id,
           letter.source
       ) AS position,
       (extract(epoch FROM letter.first_at) * 1000000)::bigint AS first_at,
       (extract(epoch FROM letter.last_at) * 1000000)::bigint AS last_at,
       letter.deliveries, letter.attempts, letter.error
FROM dead_letter AS letter JOIN consumer ON consumer.id = letter.consumer
WHERE letter.event_id = $1
ORDER BY letter.id
