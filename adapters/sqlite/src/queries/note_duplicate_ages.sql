INSERT INTO duplicate_age AS known (consumer, bucket, n, oldest_seconds)
SELECT ?1, value ->> 0, value ->> 1, value ->> 2
FROM json_each(?2)
WHERE true
ON CONFLICT (consumer, bucket) DO UPDATE
SET n = known.n + min(excluded.n, 9223372036854775807 - known.n),
    oldest_seconds = max(known.oldest_seconds, excluded.oldest_seconds)
