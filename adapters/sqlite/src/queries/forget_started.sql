DELETE FROM started
WHERE (event_id, tenant) IN (SELECT unhex(key.value ->> 0), unhex(key.value ->> 1) FROM json_each(?1) AS key)
  AND consumer = ?2
  AND process = ?3
