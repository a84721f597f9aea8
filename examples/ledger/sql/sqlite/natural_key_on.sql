CREATE UNIQUE INDEX IF NOT EXISTS ledger_entry_once ON ledger_entry (event_id, leg)
