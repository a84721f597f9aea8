SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('lock_timeout') AS lock_timeout,
       to_regclass('oneffect_migration') IS NOT NULL AS migrated
