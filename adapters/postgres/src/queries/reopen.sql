DELETE FROM inbox WHERE event_id = $1 AND tenant = $2 AND consumer = $3 AND outcome = $4
