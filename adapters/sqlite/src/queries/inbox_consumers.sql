SELECT consumer.id, consumer.name, consumer.days AS days_from,
       (SELECT count(*) FROM retry WHERE retry.consumer = consumer.id) AS failed,
       (SELECT count(*) FROM dead_letter WHERE dead_letter.consumer = consumer.id) AS dead_letters
FROM consumer
ORDER BY consumer.name
