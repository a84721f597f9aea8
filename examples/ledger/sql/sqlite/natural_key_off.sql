DROP INDEX IF EXISTS ledger_entry_once
