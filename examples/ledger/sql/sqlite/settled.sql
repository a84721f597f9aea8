-- What has become of the consumer's events. Each is settled in one of three ways; a dead letter may
-- lack an event id, and then it is not in the inbox.
SELECT (SELECT count(*) FROM inbox WHERE inbox.consumer = consumer.id AND outcome = 0) AS applied,
       (SELECT count(*) FROM inbox WHERE inbox.consumer = consumer.id AND outcome = 1) AS rejected,
       (SELECT count(*) FROM dead_letter WHERE dead_letter.consumer = consumer.id) AS dead_letters
FROM consumer WHERE name = ?1
