INSERT INTO retry (event_id, tenant, consumer, attempts, last_error, next_attempt_at)
VALUES ($1, $2, $3, 1, $4, oneffect_now() + $5 * interval '1 second')
ON CONFLICT (event_id, tenant, consumer) DO UPDATE
SET attempts = retry.attempts + 1,
    last_error = excluded.last_error,
    next_attempt_at = excluded.next_attempt_at
RETURNING attempts
