-- Without a further wait the letter is not marked any more.
UPDATE dead_letter
SET attempts = attempts + 1,
    error = $2,
    last_at = clock_timestamp(),
    redrive_attempts = redrive_attempts + 1,
    redrive_requested_at = CASE WHEN $3::float8 IS NOT NULL THEN redrive_requested_at END,
    redrive_due_at = clock_timestamp() + $3 * interval '1 second'
WHERE id = $1
