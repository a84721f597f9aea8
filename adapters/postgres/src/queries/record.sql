-- The rows are there, so every one conflicts. Written as an insert because that finds them by the unique
-- index whatever the plan was made for, which a join with unnest does not.
INSERT INTO {inbox} (consumer, event_id, tenant, day, outcome, reply)
SELECT $5, settled.event_id, settled.tenant, date '1970-01-01' + settled.day, settled.outcome, settled.reply
FROM unnest($1::bytea[], $2::bytea[], $6::int[], $3::smallint[], $4::bytea[])
    AS settled (event_id, tenant, day, outcome, reply)
ON CONFLICT (event_id, tenant, consumer, day) DO UPDATE
SET outcome = excluded.outcome, reply = excluded.reply
