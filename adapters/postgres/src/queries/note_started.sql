-- Answers a row for each event that is written down now, or was before by the same process. What else
-- is there stays.
INSERT INTO started (event_id, tenant, consumer, process)
SELECT key.event_id, key.tenant, $3, $4
FROM unnest($1::bytea[], $2::bytea[]) AS key (event_id, tenant)
ORDER BY key.event_id, key.tenant
ON CONFLICT (event_id, tenant, consumer) DO UPDATE SET process = excluded.process
WHERE started.process = excluded.process AND NOT started.alone AND started.crashes = 0
RETURNING event_id, tenant
