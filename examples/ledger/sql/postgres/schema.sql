-- The books: two entries for each transfer, which sum to zero. Nothing is ever changed.
CREATE TABLE IF NOT EXISTS ledger_entry (
    entry_id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id     uuid        NOT NULL,
    leg          text        NOT NULL CHECK (leg IN ('debit', 'credit')),
    account      text        NOT NULL,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    occurred_at  timestamptz NOT NULL,
    memo         text        NOT NULL,
    entered_at   timestamptz NOT NULL DEFAULT now()
);

CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: correct an entry with another one';
END $$;

CREATE OR REPLACE TRIGGER ledger_entry_append_only BEFORE UPDATE OR DELETE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only();
