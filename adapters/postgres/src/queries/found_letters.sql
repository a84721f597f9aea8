-- The letters that a filter finds; what is null is not asked for.
SELECT dead_letter.id
FROM dead_letter
JOIN consumer ON consumer.id = dead_letter.consumer
WHERE ($1::text IS NULL OR consumer.name = $1)
  AND ($2::bigint[] IS NULL OR dead_letter.id = ANY ($2))
  AND ($3::text[] IS NULL OR dead_letter.kind = ANY ($3))
  AND ($4::bigint IS NULL OR dead_letter.first_at >= timestamptz 'epoch' + $4 * interval '1 microsecond')
  AND ($5::bigint IS NULL OR dead_letter.first_at < timestamptz 'epoch' + $5 * interval '1 microsecond')
  AND ($6::text IS NULL OR position(lower($6) IN lower(dead_letter.error)) > 0)
  AND ($7::bytea IS NULL OR dead_letter.raw_key = $7)
  AND ($8::bytea IS NULL OR dead_letter.event_id = $8)
  AND ($9::bytea IS NULL OR dead_letter.tenant = $9)
  AND ($10::text IS NULL OR dead_letter.source = $10)
  AND ($11::bigint IS NULL OR dead_letter.id > $11)
ORDER BY dead_letter.id
LIMIT $12
