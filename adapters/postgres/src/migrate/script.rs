//! The migrations as text, for whoever runs them by another hand.

use oneffect_core::StoreError;

use crate::config::check_schema;
use crate::migrate::{KEEP_COUNT, TAKE_TURNS, check_known, statements};
use crate::store::Postgres;

impl Postgres {
    /// The SQL by which [`Postgres::migrate_to`] leads from one version of the schema to another,
    /// as one transaction: for databases where somebody else runs what changes tables. With psql:
    /// `psql -v ON_ERROR_STOP=1 -f FILE`. On a schema of another version than `from` it fails, and
    /// changes nothing. Without a `schema` the inbox goes where the role's `search_path` says.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for a version that this program does not know, or an unusable
    /// name of the schema.
    pub fn migration_script(
        schema: Option<&str>,
        from: i32,
        to: i32,
    ) -> Result<String, StoreError> {
        check_known(from)?;
        check_known(to)?;
        let mut script = vec![format!(
            "-- oneffect, PostgreSQL: the schema from version {from} to version {to}.\n\
             -- All of it is one transaction.\nBEGIN;\n{TAKE_TURNS};\n"
        )];
        if let Some(schema) = schema {
            check_schema(schema)?;
            if from == 0 {
                script.push(format!("CREATE SCHEMA IF NOT EXISTS {schema};\n"));
            }
            script.push(format!("SET LOCAL search_path = {schema}, public;\n"));
        }
        if from == 0 {
            script.push(format!("{KEEP_COUNT};\n"));
        }
        script.push(format!(
            "DO $$ BEGIN
    IF (SELECT coalesce(max(version), 0) FROM oneffect_migration) <> {from} THEN
        RAISE EXCEPTION 'the schema is not of version {from}';
    END IF;
END $$;
"
        ));
        script.extend(statements(from, to));
        script.push("COMMIT;\n".to_owned());
        Ok(script.join("\n"))
    }
}
