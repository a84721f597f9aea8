//! The migrations as text, for whoever runs them by another hand.

use oneffect_core::StoreError;

use crate::migrate::{KEEP_COUNT, check_known, statements};
use crate::store::Sqlite;

impl Sqlite {
    /// The SQL by which [`Sqlite::migrate_to`] leads from one version of the schema to another, as
    /// one transaction. With the shell: `sqlite3 -bail FILE < SCRIPT`. On a schema of another
    /// version than `from` it fails, and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for a version that this program does not know.
    pub fn migration_script(from: i32, to: i32) -> Result<String, StoreError> {
        check_known(from)?;
        check_known(to)?;
        let mut script = vec![format!(
            "-- oneffect, SQLite: the schema from version {from} to version {to}.\n\
             -- All of it is one transaction: run it with `sqlite3 -bail`, which stops where it fails.\n\
             BEGIN IMMEDIATE;\n"
        )];
        if from == 0 {
            script.push(format!("{KEEP_COUNT};\n"));
        }
        script.push(format!(
            "CREATE TEMP TABLE oneffect_found (
    version INTEGER CONSTRAINT \"the schema is not of version {from}\" CHECK (version = {from})
);
INSERT INTO oneffect_found SELECT coalesce(max(version), 0) FROM oneffect_migration;
DROP TABLE oneffect_found;
"
        ));
        script.extend(statements(from, to));
        script.push("COMMIT;\n".to_owned());
        Ok(script.join("\n"))
    }
}
