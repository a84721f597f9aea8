INSERT INTO ledger_entry (event_id, leg, account, amount_minor, currency, occurred_at, memo)
VALUES ($1::uuid, 'debit',  $2, -$4, $5, $6::timestamptz, $7),
       ($1::uuid, 'credit', $3,  $4, $5, $6::timestamptz, $7)
