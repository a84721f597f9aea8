SELECT consumer.name, inbox.tenant, inbox.outcome, inbox.fingerprint, inbox.reply,
       inbox.recorded_at * 1000000 AS recorded_at,
       inbox.day, consumer.days = 'producer' AS is_producers
FROM inbox JOIN consumer ON consumer.id = inbox.consumer
WHERE inbox.event_id = ?1
ORDER BY inbox.recorded_at
