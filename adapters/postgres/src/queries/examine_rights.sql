-- What the role may do with each of our tables. A table that is missing has nulls.
SELECT needed.name,
       oid.oid IS NOT NULL AS is_there,
       coalesce(pg_has_role(class.relowner, 'USAGE'), false) AS is_owner,
       array(
           SELECT privilege FROM unnest(string_to_array(needed.privileges, ' ')) AS privilege
           WHERE oid.oid IS NOT NULL AND NOT has_table_privilege(oid.oid, privilege)
       ) AS lacking
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS needed (name, privileges, place)
CROSS JOIN LATERAL (SELECT to_regclass(needed.name)::oid) AS oid (oid)
LEFT JOIN pg_class AS class ON class.oid = oid.oid
ORDER BY needed.place
