INSERT INTO started (event_id, tenant, consumer, process, alone, crashes)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (event_id, tenant, consumer) DO UPDATE
SET process = excluded.process,
    alone = excluded.alone,
    crashes = excluded.crashes,
    started_at = excluded.started_at
