-- The books: two entries for each transfer, which sum to zero. Nothing is ever changed.
CREATE TABLE IF NOT EXISTS ledger_entry (
    entry_id     INTEGER PRIMARY KEY,
    event_id     BLOB    NOT NULL,
    leg          TEXT    NOT NULL CHECK (leg IN ('debit', 'credit')),
    account      TEXT    NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency     TEXT    NOT NULL,
    occurred_at  TEXT    NOT NULL,
    memo         TEXT    NOT NULL,
    entered_at   INTEGER NOT NULL DEFAULT (unixepoch())
) STRICT;

CREATE TRIGGER IF NOT EXISTS ledger_entry_no_update BEFORE UPDATE ON ledger_entry
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: correct an entry with another one'); END;

CREATE TRIGGER IF NOT EXISTS ledger_entry_no_delete BEFORE DELETE ON ledger_entry
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: correct an entry with another one'); END;
