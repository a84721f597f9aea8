DELETE FROM {inbox}
WHERE event_id = ANY ($1::bytea[])
  AND consumer = $3
  AND day >= date '1970-01-01' + $4::int
  AND day <= date '1970-01-01' + $5::int
  AND int4send(octet_length(event_id)) || event_id || tenant = ANY ($2::bytea[])
