-- What decides whether a day is remembered, and believed.
SELECT floor, window_days, CAST(now / 86400 AS INTEGER) AS today FROM inbox_floor, oneffect_now
