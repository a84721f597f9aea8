-- A few rows of what is below the floor.
DELETE FROM inbox
WHERE (event_id, tenant, consumer) IN (
    SELECT event_id, tenant, consumer FROM inbox WHERE day < ?1 LIMIT ?2
)
