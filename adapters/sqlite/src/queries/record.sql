-- The rows are this unit's own, so every one conflicts.
INSERT INTO inbox (consumer, event_id, tenant, outcome, reply)
SELECT ?2, unhex(settled.value ->> 0), unhex(settled.value ->> 1), settled.value ->> 2, unhex(settled.value ->> 3)
FROM json_each(?1) AS settled
WHERE true
ON CONFLICT (event_id, tenant, consumer) DO UPDATE
SET outcome = excluded.outcome, reply = excluded.reply
