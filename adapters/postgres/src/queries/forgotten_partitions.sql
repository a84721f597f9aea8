-- Partitions below the floor, and tables that were partitions until somebody was killed between taking
-- them off and dropping them. The comment tells them from tables of others.
SELECT format('%I.%I', schema.nspname, forgotten.relname) AS name,
       format('%I.%I', schema.nspname, parent.relname) AS parent,
       inhrelid IS NOT NULL AS attached,
       coalesce(inhdetachpending, false) AS detaching
FROM inbox_floor
CROSS JOIN (VALUES ('inbox'), ('inbox_open')) AS tables (name)
JOIN pg_class AS parent ON parent.oid = tables.name::regclass
JOIN pg_namespace AS schema ON schema.oid = parent.relnamespace
JOIN pg_class AS forgotten
    ON forgotten.relnamespace = parent.relnamespace
    AND forgotten.relkind = 'r'
    AND forgotten.relname ~ ('^' || tables.name || '_[0-9]{8}$')
    AND obj_description(forgotten.oid, 'pg_class') = 'oneffect: forgotten as a whole'
LEFT JOIN pg_inherits ON inhrelid = forgotten.oid AND inhparent = parent.oid
WHERE to_date(right(forgotten.relname, 8), 'YYYYMMDD')
    < CASE tables.name WHEN 'inbox' THEN floor ELSE open_floor END
ORDER BY detaching DESC, attached DESC, forgotten.relname
