-- How old duplicates were when they came: a histogram for each consumer, which says what window would
-- have been long enough.
CREATE TABLE duplicate_age (
    consumer       int    NOT NULL,
    bucket         int    NOT NULL, -- ages that are about the same
    n              bigint NOT NULL,
    oldest_seconds bigint NOT NULL,
    PRIMARY KEY (consumer, bucket)
);
