SELECT dead_letter.id, consumer.name AS consumer_name, dead_letter.source_key, dead_letter.kind,
       dead_letter.event_id, dead_letter.tenant, dead_letter.fingerprint,
       dead_letter.settled_fingerprint, dead_letter.source, dead_letter.log_partition,
       dead_letter.log_offset, dead_letter.message_id, dead_letter.deduplication_id,
       dead_letter.ordered, dead_letter.message_group, dead_letter.raw_key, dead_letter.payload,
       dead_letter.headers, dead_letter.raw_key_length, dead_letter.payload_length,
       dead_letter.headers_dropped, dead_letter.published_at,
       dead_letter.first_at * 1000 AS first_at, dead_letter.last_at * 1000 AS last_at,
       dead_letter.deliveries, dead_letter.attempts, dead_letter.error,
       dead_letter.redrive_requested_at * 1000 AS redrive_requested_at,
       dead_letter.redrive_due_at * 1000 AS redrive_due_at,
       dead_letter.redrive_attempts, dead_letter.redrive_as_new
FROM dead_letter JOIN consumer ON consumer.id = dead_letter.consumer
WHERE dead_letter.id = ?1
