-- How many distinct events are settled: those with an id are in the inbox, the others are dead letters.
SELECT (SELECT count(*) FROM inbox WHERE inbox.consumer = consumer.id)
     + (SELECT count(*) FROM dead_letter WHERE dead_letter.consumer = consumer.id AND event_id IS NULL)
FROM consumer WHERE name = ?1
