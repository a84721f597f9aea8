-- Sorted, so that processes that add theirs at once wait for one another and not in a circle.
INSERT INTO duplicate_age AS known (consumer, bucket, n, oldest_seconds)
SELECT $1, more.bucket, more.n, more.oldest_seconds
FROM unnest($2::int[], $3::bigint[], $4::bigint[]) AS more (bucket, n, oldest_seconds)
ORDER BY more.bucket
ON CONFLICT (consumer, bucket) DO UPDATE
SET n = known.n + least(excluded.n, 9223372036854775807 - known.n),
    oldest_seconds = greatest(known.oldest_seconds, excluded.oldest_seconds)
