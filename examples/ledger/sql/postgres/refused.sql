-- How many of the events that had to be refused are in the inbox as rejected.
WITH rejected AS MATERIALIZED (
    SELECT event_id FROM inbox_readable WHERE consumer = $1 AND outcome = 'rejected'
)
SELECT count(*) FROM produced JOIN rejected ON rejected.event_id = produced.event_id::text WHERE refused
