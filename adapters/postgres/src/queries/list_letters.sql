SELECT dead_letter.id, consumer.name AS consumer_name, dead_letter.kind, dead_letter.event_id,
       dead_letter.tenant, dead_letter.source, dead_letter.log_partition, dead_letter.log_offset,
       dead_letter.message_id, dead_letter.raw_key,
       coalesce(dead_letter.payload_length, octet_length(dead_letter.payload)) AS payload_length,
       dead_letter.payload_length IS NOT NULL OR dead_letter.raw_key_length IS NOT NULL
           OR dead_letter.headers_dropped > 0 AS is_cut,
       (extract(epoch FROM dead_letter.first_at) * 1000000)::bigint AS first_at,
       (extract(epoch FROM dead_letter.last_at) * 1000000)::bigint AS last_at,
       dead_letter.deliveries, dead_letter.attempts, dead_letter.error,
       (extract(epoch FROM dead_letter.redrive_requested_at) * 1000000)::bigint AS redrive_requested_at,
       (extract(epoch FROM dead_letter.redrive_due_at) * 1000000)::bigint AS redrive_due_at,
       dead_letter.redrive_attempts, dead_letter.redrive_as_new
FROM found
JOIN dead_letter ON dead_letter.id = found.id
JOIN consumer ON consumer.id = dead_letter.consumer
ORDER BY dead_letter.id
