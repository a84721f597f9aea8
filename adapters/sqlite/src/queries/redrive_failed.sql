-- Without a further wait the letter is not marked any more.
UPDATE dead_letter
SET attempts = attempts + 1,
    error = ?2,
    last_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
    redrive_attempts = redrive_attempts + 1,
    redrive_requested_at = iif(?3 IS NULL, NULL, redrive_requested_at),
    redrive_due_at = CAST((unixepoch('subsec') + ?3) * 1000 AS INTEGER)
WHERE id = ?1
