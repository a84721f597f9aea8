-- The next day to be compared with the one after it, once both are over; only where the producer's time is
-- trusted, since the day of an id cannot change.
SELECT day - date '1970-01-01'
FROM (SELECT greatest(audited + 1, floor) FROM inbox_floor) AS next (day)
WHERE day + 1 < (oneffect_now() AT TIME ZONE 'UTC')::date
  AND EXISTS (SELECT FROM consumer WHERE days_from = 'producer')
