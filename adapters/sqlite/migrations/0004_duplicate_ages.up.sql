-- How old duplicates were when they came: a histogram for each consumer, which says what window would
-- have been long enough.
CREATE TABLE duplicate_age (
    consumer       INTEGER NOT NULL,
    bucket         INTEGER NOT NULL, -- ages that are about the same
    n              INTEGER NOT NULL,
    oldest_seconds INTEGER NOT NULL,
    PRIMARY KEY (consumer, bucket)
) STRICT, WITHOUT ROWID;
