UPDATE dead_letter
SET redrive_requested_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
    redrive_due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
    redrive_attempts = 0,
    redrive_as_new = ?2
WHERE id IN (SELECT value FROM json_each(?1))
