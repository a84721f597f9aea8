INSERT INTO retry (event_id, tenant, consumer, attempts, last_error, next_attempt_at)
SELECT ?1, ?2, ?3, 1, ?4, now + ?5 FROM oneffect_now WHERE true
ON CONFLICT (event_id, tenant, consumer) DO UPDATE
SET attempts = retry.attempts + 1,
    last_error = excluded.last_error,
    next_attempt_at = excluded.next_attempt_at
RETURNING attempts
