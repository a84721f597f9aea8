DELETE FROM started
WHERE event_id = ANY ($1::bytea[])
  AND consumer = $3
  AND process = $4
  AND int4send(octet_length(event_id)) || event_id || tenant = ANY ($2::bytea[])
