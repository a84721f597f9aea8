SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('lock_timeout') AS lock_timeout,
       -- In the schema that was asked for: search_path goes on to another one's tables.
       to_regclass(coalesce($1 || '.', '') || 'oneffect_migration') IS NOT NULL AS migrated
