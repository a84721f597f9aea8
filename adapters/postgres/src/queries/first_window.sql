UPDATE inbox_floor
SET window_days = $1, floor = floor + window_days - $1, audited = audited + window_days - $1
