SELECT id, event_id, tenant, source, log_partition, log_offset, message_id, ordered, message_group,
       raw_key, lane, redrive_as_new, redrive_attempts,
       greatest(extract(epoch FROM redrive_due_at - clock_timestamp()), 0)::float8 AS wait
FROM dead_letter
WHERE consumer = $1 AND redrive_requested_at IS NOT NULL AND id > $2
ORDER BY id
LIMIT $3
