-- The next day to be compared with the one after it, once both are over; only where the producer's time is
-- trusted, since the day of an id cannot change.
SELECT audited + 1 - date '1970-01-01'
FROM inbox_floor
WHERE audited + 2 < (oneffect_now() AT TIME ZONE 'UTC')::date
  AND EXISTS (SELECT FROM consumer WHERE days = 'producer')
