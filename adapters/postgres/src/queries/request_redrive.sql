, marked AS (
    UPDATE dead_letter
    SET redrive_requested_at = clock_timestamp(), redrive_due_at = clock_timestamp(),
        redrive_attempts = 0, redrive_as_new = $13
    FROM found
    WHERE dead_letter.id = found.id
      AND dead_letter.payload_length IS NULL
      AND dead_letter.raw_key_length IS NULL
      AND dead_letter.headers_dropped = 0
      AND (dead_letter.kind <> 'mismatch' OR $13)
)
SELECT dead_letter.id, dead_letter.kind,
       dead_letter.payload_length IS NOT NULL OR dead_letter.raw_key_length IS NOT NULL
           OR dead_letter.headers_dropped > 0 AS is_cut
FROM found JOIN dead_letter ON dead_letter.id = found.id
ORDER BY dead_letter.id
