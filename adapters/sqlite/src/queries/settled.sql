-- What became of keys that were not claimed. CROSS JOIN keeps the order: a probe for each key.
SELECT inbox.event_id, inbox.tenant, inbox.outcome, inbox.fingerprint, inbox.reply,
       CAST((SELECT now FROM oneffect_now) - inbox.recorded_at AS REAL) AS age
FROM json_each(?1) AS key
CROSS JOIN inbox
    ON inbox.event_id = unhex(key.value ->> 0)
   AND inbox.tenant = unhex(key.value ->> 1)
   AND inbox.consumer = ?2
