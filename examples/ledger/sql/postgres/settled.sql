-- What has become of a consumer's events. Each is settled in one of three ways; a dead letter may lack
-- an event id, and then it is not in the inbox.
SELECT count(*) FILTER (WHERE outcome = 'done') AS applied,
       count(*) FILTER (WHERE outcome = 'rejected') AS rejected,
       (SELECT count(*) FROM dead_letter WHERE consumer = (SELECT id FROM consumer WHERE name = $1)) AS dead_letters
FROM inbox_readable WHERE consumer = $1
