-- What became of keys that were not claimed. A new statement, so its snapshot sees the winner. The
-- first condition finds the rows by the index whatever the plan was made for; the second tells
-- tenants apart.
SELECT event_id, tenant, outcome, fingerprint, reply,
       extract(epoch FROM clock_timestamp() - recorded_at)::float8 AS age
FROM inbox
WHERE event_id = ANY ($1::bytea[])
  AND consumer = $3
  AND int4send(octet_length(event_id)) || event_id || tenant = ANY ($2::bytea[])
