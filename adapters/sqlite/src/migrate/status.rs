//! Where the schema stands.

use oneffect_core::{Migrated, Migrations, StoreError, time_of_micros};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::migrate::{SCHEMA_VERSION, current_version};
use crate::store::Sqlite;
use crate::transaction::Transaction;

impl Sqlite {
    /// Where the schema stands. Only reads; also where there is no schema yet.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the file cannot be read now.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn migrations(&self) -> Result<Migrations, StoreError> {
        let mut transaction = Transaction::begin_reading(self.pool())
            .await
            .map_err(StoreError::rolled_back)?;
        let mut applied = Vec::new();
        if current_version(&mut transaction).await.map_err(misplaced)? > 0 {
            let rows = sqlx::query(
                "SELECT version, CAST(1000000 * unixepoch(applied_at, 'subsec') AS INTEGER) AS applied_at \
                 FROM oneffect_migration ORDER BY version",
            );
            let rows = rows.fetch_all(&mut *transaction).await.map_err(misplaced)?;
            applied = (rows.iter().map(migrated).collect::<Result<_, _>>())
                .map_err(StoreError::rolled_back)?;
        }
        transaction.rollback().await;
        Ok(Migrations::new(SCHEMA_VERSION, applied))
    }
}

fn migrated(row: &SqliteRow) -> sqlx::Result<Migrated> {
    Ok(Migrated {
        version: row.try_get("version")?,
        at: time_of_micros(row.try_get("applied_at")?),
    })
}
