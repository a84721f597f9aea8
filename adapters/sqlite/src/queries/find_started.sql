SELECT process, alone, crashes
FROM started
WHERE event_id = ?1 AND tenant = ?2 AND consumer = ?3
