-- Whether each event in the books has two entries, a debit and a credit, that sum to zero.
WITH event AS (
    SELECT count(*) AS entries,
           count(*) = 2 AND min(leg) <> max(leg) AND min(currency) = max(currency)
               AND sum(amount_minor) = 0 AS balanced
    FROM ledger_entry GROUP BY event_id
)
SELECT count(*) AS events,
       coalesce(sum(entries), 0)::bigint AS entries,
       count(*) FILTER (WHERE NOT balanced) AS unbalanced
FROM event
