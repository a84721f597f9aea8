-- Retry rows that nobody will delete: of events that are settled, and of those that were given up longer
-- ago than anything is remembered. The inbox is probed for each of them by its index, and never joined with,
-- which might read all of it. Rows that a unit holds are left to it.
WITH leaked AS MATERIALIZED (
    SELECT retry.ctid
    FROM inbox_floor CROSS JOIN retry
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM inbox
        WHERE inbox.event_id = retry.event_id AND inbox.tenant = retry.tenant
          AND inbox.consumer = retry.consumer
        LIMIT 1
    ) AS of_a_day ON true
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM inbox_open
        WHERE inbox_open.event_id = retry.event_id AND inbox_open.tenant = retry.tenant
          AND inbox_open.consumer = retry.consumer
        LIMIT 1
    ) AS of_none ON true
    WHERE of_a_day.is_there OR of_none.is_there
       OR retry.next_attempt_at < oneffect_now() - make_interval(hours => 24 * window_days)
    LIMIT 10000
    FOR UPDATE OF retry SKIP LOCKED
)
DELETE FROM retry USING leaked WHERE retry.ctid = leaked.ctid
