INSERT INTO dead_letter (
    consumer, source_key, kind, event_id, tenant, source, log_partition, log_offset, message_id,
    raw_key, payload, headers, published_at, attempts, error
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
    strftime('%Y-%m-%dT%H:%M:%fZ', ?13 / 1000000.0, 'unixepoch'), ?14, ?15
)
ON CONFLICT (source_key, consumer) DO UPDATE
SET deliveries = deliveries + 1, last_at = excluded.last_at
