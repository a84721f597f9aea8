-- Wherever it was filed: under its own day, if it has one that is remembered, or in any period.
WITH of_a_day AS (
    DELETE FROM inbox
    WHERE event_id = $1 AND tenant = $2 AND consumer = $3 AND outcome = $4
      AND day = date '1970-01-01' + $5::int
)
DELETE FROM inbox_open
WHERE event_id = $1 AND tenant = $2 AND consumer = $3 AND outcome = $4
