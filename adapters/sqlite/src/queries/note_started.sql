-- Answers a row for each event that is written down now, or was before by the same process. What else
-- is there stays. `WHERE true` tells the parser that ON CONFLICT is not part of a join.
INSERT INTO started (event_id, tenant, consumer, process)
SELECT unhex(key.value ->> 0), unhex(key.value ->> 1), ?2, ?3
FROM json_each(?1) AS key
WHERE true
ON CONFLICT (event_id, tenant, consumer) DO UPDATE SET process = excluded.process
WHERE started.process = excluded.process AND NOT started.alone AND started.crashes = 0
RETURNING event_id, tenant
