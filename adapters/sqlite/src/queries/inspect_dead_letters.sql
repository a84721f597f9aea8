SELECT consumer.name, letter.tenant, letter.id, letter.kind,
       coalesce(
           letter.source || '/' || letter.log_partition || '/' || letter.log_offset,
           letter.source || '/' || letter.message_id,
           letter.source
       ) AS position,
       CAST(1000000 * unixepoch(letter.first_at, 'subsec') AS INTEGER) AS first_at,
       CAST(1000000 * unixepoch(letter.last_at, 'subsec') AS INTEGER) AS last_at,
       letter.deliveries, letter.attempts, letter.error
FROM dead_letter AS letter JOIN consumer ON consumer.id = letter.consumer
WHERE letter.event_id = ?1
ORDER BY letter.id
