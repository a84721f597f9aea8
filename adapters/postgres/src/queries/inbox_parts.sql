-- The server's own counts: never exact, and always at hand. A part that nobody has analysed has none,
-- but for what its writers have reported. Bounds are read as ISO dates, which the session sees to.
SELECT inhparent = 'inbox'::regclass AS is_own_day,
       substring(pg_get_expr(part.relpartbound, part.oid) FROM '\d{4}-\d\d-\d\d')::date - date '1970-01-01' AS day,
       greatest(part.reltuples::bigint, pg_stat_get_live_tuples(part.oid)) AS rows,
       pg_total_relation_size(part.oid) AS bytes
FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
WHERE inhparent IN ('inbox'::regclass, 'inbox_open'::regclass)
ORDER BY is_own_day DESC, day
