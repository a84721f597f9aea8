SELECT floor - date '1970-01-01' AS floor,
       window_days,
       (oneffect_now() AT TIME ZONE 'UTC')::date - date '1970-01-01' AS today
FROM inbox_floor
