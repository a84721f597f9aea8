SELECT id, event_id, tenant, source, log_partition, log_offset, message_id, ordered, message_group,
       raw_key, lane, redrive_as_new, redrive_attempts,
       max(redrive_due_at / 1000.0 - unixepoch('subsec'), 0.0) AS wait
FROM dead_letter
WHERE consumer = ?1 AND redrive_requested_at IS NOT NULL AND id > ?2
ORDER BY id
LIMIT ?3
