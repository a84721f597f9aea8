SELECT consumer.name, inbox.tenant, inbox.outcome, inbox.fingerprint, inbox.reply,
       (extract(epoch FROM inbox.recorded_at) * 1000000)::bigint AS recorded_at
FROM inbox JOIN consumer ON consumer.id = inbox.consumer
WHERE inbox.event_id = $1
ORDER BY inbox.recorded_at
