-- Sorted for the same reason as a claim. The source keys of one statement are distinct.
INSERT INTO dead_letter (
    consumer, source_key, kind, event_id, tenant, fingerprint, settled_fingerprint, source,
    log_partition, log_offset, message_id, deduplication_id, ordered, message_group, lane, raw_key,
    payload, headers, raw_key_length, payload_length, headers_dropped, published_at, deliveries,
    attempts, error
)
SELECT $1, letter.source_key, letter.kind, letter.event_id, letter.tenant, letter.fingerprint,
       letter.settled_fingerprint, letter.source, letter.log_partition, letter.log_offset,
       letter.message_id, letter.deduplication_id, letter.ordered, letter.message_group, letter.lane,
       letter.raw_key, letter.payload, letter.headers::json, letter.raw_key_length,
       letter.payload_length, letter.headers_dropped,
       timestamptz 'epoch' + letter.published_at * interval '1 microsecond',
       letter.deliveries, letter.attempts, letter.error
FROM unnest(
    $2::bytea[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::text[],
    $9::int[], $10::bigint[], $11::text[], $12::text[], $13::boolean[], $14::bytea[], $15::bytea[],
    $16::bytea[], $17::bytea[], $18::text[], $19::bigint[], $20::bigint[], $21::int[], $22::bigint[],
    $23::int[], $24::int[], $25::text[]
) AS letter (
    source_key, kind, event_id, tenant, fingerprint, settled_fingerprint, source, log_partition,
    log_offset, message_id, deduplication_id, ordered, message_group, lane, raw_key, payload,
    headers, raw_key_length, payload_length, headers_dropped, published_at, deliveries, attempts,
    error
)
ORDER BY letter.source_key
ON CONFLICT (source_key, consumer) DO UPDATE
SET deliveries = dead_letter.deliveries + excluded.deliveries, last_at = clock_timestamp()
RETURNING pg_current_xact_id()::text
