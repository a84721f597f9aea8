INSERT INTO ledger_entry (event_id, leg, account, amount_minor, currency, occurred_at, memo)
VALUES ($1, 'debit',  $2, -$4, $5, $6, $7),
       ($1, 'credit', $3,  $4, $5, $6, $7)
