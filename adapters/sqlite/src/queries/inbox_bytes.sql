SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = true AND name IN ('inbox', 'inbox_by_day')
