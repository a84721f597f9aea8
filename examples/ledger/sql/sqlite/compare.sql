-- The books against what was produced.
WITH event AS (
    SELECT event_id,
           count(*) AS entries,
           max(account) FILTER (WHERE leg = 'debit') AS from_account,
           max(account) FILTER (WHERE leg = 'credit') AS to_account,
           max(-amount_minor) FILTER (WHERE leg = 'debit') AS debit,
           max(amount_minor) FILTER (WHERE leg = 'credit') AS credit,
           min(currency) AS currency
    FROM ledger_entry GROUP BY event_id
), compared AS (
    SELECT produced.refused,
           event.entries,
           event.entries = 2
               AND event.from_account = produced.from_account
               AND event.to_account = produced.to_account
               AND event.debit = produced.amount_minor
               AND event.credit = produced.amount_minor
               AND event.currency = produced.currency AS equal
    FROM produced LEFT JOIN event ON event.event_id = produced.event_id
)
SELECT count(*) FILTER (WHERE NOT refused AND entries IS NULL) AS missing,
       count(*) FILTER (WHERE NOT refused AND entries > 2) AS doubled,
       count(*) FILTER (WHERE NOT refused AND entries <= 2 AND equal IS NOT TRUE) AS wrong,
       count(*) FILTER (WHERE refused AND entries IS NOT NULL) AS undue,
       (SELECT count(*) FROM event
        WHERE NOT EXISTS (SELECT 1 FROM produced WHERE produced.event_id = event.event_id)) AS foreign_events
FROM compared
