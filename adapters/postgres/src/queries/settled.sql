-- What became of keys that were not claimed. A new statement, so its snapshot sees the winner. The
-- first condition finds the rows by the index whatever the plan was made for; the last tells tenants
-- apart. By their first and last day, because the server prunes partitions by these when it runs a plan
-- that is kept, and not by a list of days.
SELECT event_id, tenant, day - date '1970-01-01' AS day, outcome, fingerprint, reply,
       extract(epoch FROM oneffect_now() - recorded_at)::float8 AS age
FROM {inbox}
WHERE event_id = ANY ($1::bytea[])
  AND consumer = $3
  AND day >= date '1970-01-01' + $4::int
  AND day <= date '1970-01-01' + $5::int
  AND int4send(octet_length(event_id)) || event_id || tenant = ANY ($2::bytea[])
