-- How many of the events that had to be refused are in the inbox as rejected.
SELECT count(*)
FROM inbox_readable AS inbox JOIN produced ON produced.event_id = inbox.event_id
WHERE inbox.consumer = ?1 AND inbox.outcome = 'rejected' AND produced.refused
