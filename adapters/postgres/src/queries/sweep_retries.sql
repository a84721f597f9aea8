DELETE FROM retry
WHERE EXISTS (
    SELECT 1 FROM inbox
    WHERE inbox.event_id = retry.event_id
      AND inbox.tenant = retry.tenant
      AND inbox.consumer = retry.consumer
)
