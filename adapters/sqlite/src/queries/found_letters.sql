-- The letters that a filter finds; what is null is not asked for.
SELECT dead_letter.id
FROM dead_letter
JOIN consumer ON consumer.id = dead_letter.consumer
WHERE (?1 IS NULL OR consumer.name = ?1)
  AND (?2 IS NULL OR dead_letter.id IN (SELECT value FROM json_each(?2)))
  AND (?3 IS NULL OR dead_letter.kind IN (SELECT value FROM json_each(?3)))
  AND (?4 IS NULL OR dead_letter.first_at * 1000 >= ?4)
  AND (?5 IS NULL OR dead_letter.first_at * 1000 < ?5)
  AND (?6 IS NULL OR instr(lower(dead_letter.error), lower(?6)) > 0)
  AND (?7 IS NULL OR dead_letter.raw_key = ?7)
  AND (?8 IS NULL OR dead_letter.event_id = ?8)
  AND (?9 IS NULL OR dead_letter.tenant = ?9)
  AND (?10 IS NULL OR dead_letter.source = ?10)
  AND (?11 IS NULL OR dead_letter.id > ?11)
ORDER BY dead_letter.id
LIMIT coalesce(?12, -1)
