-- Claims keys by inserting them. Answers a row for each fresh key, with what is known of its
-- failures. `WHERE true` tells the parser that ON CONFLICT is not part of a join.
INSERT INTO inbox (consumer, event_id, tenant, fingerprint, day, recorded_at)
SELECT ?2, unhex(key.value ->> 0), unhex(key.value ->> 1), unhex(key.value ->> 2), key.value ->> 3,
       CAST(now AS INTEGER)
FROM json_each(?1) AS key, oneffect_now
WHERE true
ON CONFLICT (event_id, tenant, consumer) DO NOTHING
RETURNING event_id, tenant,
    (SELECT attempts FROM retry
     WHERE (retry.event_id, retry.tenant, retry.consumer) = (inbox.event_id, inbox.tenant, inbox.consumer)
    ) AS attempts,
    (SELECT last_error FROM retry
     WHERE (retry.event_id, retry.tenant, retry.consumer) = (inbox.event_id, inbox.tenant, inbox.consumer)
    ) AS last_error,
    (SELECT next_attempt_at - now FROM retry, oneffect_now
     WHERE (retry.event_id, retry.tenant, retry.consumer) = (inbox.event_id, inbox.tenant, inbox.consumer)
    ) AS wait
