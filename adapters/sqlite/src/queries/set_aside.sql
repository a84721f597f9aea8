INSERT INTO dead_letter (
    consumer, source_key, kind, event_id, tenant, fingerprint, settled_fingerprint, source,
    log_partition, log_offset, message_id, deduplication_id, ordered, message_group, lane, raw_key,
    payload, headers, raw_key_length, payload_length, headers_dropped, published_at, attempts, error
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
    ?22, ?23, ?24
)
ON CONFLICT (source_key, consumer) DO UPDATE
SET deliveries = deliveries + 1, last_at = excluded.last_at
