SELECT consumer.name, retry.tenant, retry.attempts, retry.last_error,
       (extract(epoch FROM retry.next_attempt_at) * 1000000)::bigint AS next_attempt_at
FROM retry JOIN consumer ON consumer.id = retry.consumer
WHERE retry.event_id = $1
