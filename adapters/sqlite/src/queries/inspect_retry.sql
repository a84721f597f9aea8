SELECT consumer.name, retry.tenant, retry.attempts, retry.last_error,
       CAST(retry.next_attempt_at * 1000000 AS INTEGER) AS next_attempt_at
FROM retry JOIN consumer ON consumer.id = retry.consumer
WHERE retry.event_id = ?1
