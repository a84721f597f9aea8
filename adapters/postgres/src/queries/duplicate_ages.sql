SELECT n, oldest_seconds FROM duplicate_age WHERE consumer = $1 ORDER BY bucket
