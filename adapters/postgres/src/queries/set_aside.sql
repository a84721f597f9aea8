-- Sorted for the same reason as a claim. The source keys of one statement are distinct.
INSERT INTO dead_letter (
    consumer, source_key, kind, event_id, tenant, source, log_partition, log_offset, message_id,
    raw_key, payload, headers, published_at, deliveries, attempts, error
)
SELECT $16, letter.source_key, letter.kind, letter.event_id, letter.tenant, letter.source,
       letter.log_partition, letter.log_offset, letter.message_id, letter.raw_key, letter.payload,
       letter.headers::json,
       timestamptz 'epoch' + letter.published_at * interval '1 microsecond',
       letter.deliveries, letter.attempts, letter.error
FROM unnest(
    $1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::text[], $6::int[], $7::bigint[],
    $8::text[], $9::bytea[], $10::bytea[], $11::text[], $12::bigint[], $13::int[], $14::int[],
    $15::text[]
) AS letter (
    source_key, kind, event_id, tenant, source, log_partition, log_offset, message_id, raw_key,
    payload, headers, published_at, deliveries, attempts, error
)
ORDER BY letter.source_key
ON CONFLICT (source_key, consumer) DO UPDATE
SET deliveries = dead_letter.deliveries + excluded.deliveries, last_at = clock_timestamp()
RETURNING pg_current_xact_id()::text
