-- Answers the row as it is then.
UPDATE inbox_floor
SET floor = max(floor, (SELECT CAST(now / 86400 AS INTEGER) FROM oneffect_now) - window_days)
RETURNING floor, window_days, CAST((SELECT now FROM oneffect_now) AS REAL) AS now
