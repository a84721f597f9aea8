INSERT INTO ledger_entry (event_id, leg, account, amount_minor, currency, occurred_at, memo)
SELECT event_id, leg,
       CASE leg WHEN 'debit' THEN from_account ELSE to_account END,
       CASE leg WHEN 'debit' THEN -amount_minor ELSE amount_minor END,
       currency, occurred_at, memo
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::timestamptz[], $7::text[])
       AS transfer (event_id, from_account, to_account, amount_minor, currency, occurred_at, memo)
 CROSS JOIN (VALUES ('debit'), ('credit')) AS legs (leg)
