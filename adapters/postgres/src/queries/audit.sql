-- Keys that stand under a day and under the next. Both are read whole.
SELECT count(*) AS doubled,
       (array_agg(format('%s %s', consumer.name, event_id_text(one.event_id))))[:5] AS examples
FROM inbox AS one
JOIN inbox AS other USING (event_id, tenant, consumer)
JOIN consumer ON consumer.id = one.consumer
WHERE one.day = date '1970-01-01' + $1::int
  AND other.day = date '1970-01-01' + ($1::int + 1)
  AND consumer.days_from = 'producer'
