-- The producer's own record, for this session only.
CREATE TEMPORARY TABLE produced (
    event_id     BLOB    NOT NULL PRIMARY KEY,
    from_account TEXT    NOT NULL,
    to_account   TEXT    NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency     TEXT    NOT NULL,
    refused      INTEGER NOT NULL
) STRICT, WITHOUT ROWID
