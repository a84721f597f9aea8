
  AND dead_letter.consumer = ?2
  AND dead_letter.redrive_due_at <= unixepoch('subsec') * 1000
  AND dead_letter.redrive_requested_at IS NOT NULL
  AND NOT EXISTS (
      SELECT 1 FROM dead_letter AS earlier
      WHERE earlier.consumer = dead_letter.consumer
        AND earlier.lane = dead_letter.lane
        AND earlier.id < dead_letter.id
        AND earlier.redrive_requested_at IS NOT NULL
  )
