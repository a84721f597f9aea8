-- What maintenance has to do, and where the floor is.
WITH state AS (
    SELECT *, (oneffect_now() AT TIME ZONE 'UTC')::date AS today,
           oneffect_now() - make_interval(hours => 24 * window_days) AS remembered_since
    FROM inbox_floor
)
SELECT floor - date '1970-01-01' AS floor,
       window_days,
       today - window_days > floor
           OR today >= open_period + (window_days + 3) / 4
           OR EXISTS (SELECT FROM inbox_period WHERE day > open_floor AND opened_at <= remembered_since)
           AS must_move,
       today - window_days - floor AS days_overdue
FROM state
