-- The producer's own record, for this session only.
CREATE TEMPORARY TABLE produced (
    event_id     uuid    NOT NULL PRIMARY KEY,
    from_account text    NOT NULL,
    to_account   text    NOT NULL,
    amount_minor bigint  NOT NULL,
    currency     text    NOT NULL,
    refused      boolean NOT NULL
)
