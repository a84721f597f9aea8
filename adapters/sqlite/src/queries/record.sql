-- The rows are this unit's own.
UPDATE inbox
SET outcome = settled.value ->> 2, reply = unhex(settled.value ->> 3)
FROM json_each(?1) AS settled
WHERE inbox.event_id = unhex(settled.value ->> 0)
  AND inbox.tenant = unhex(settled.value ->> 1)
  AND inbox.consumer = ?2
