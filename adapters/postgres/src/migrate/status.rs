//! Where the schema stands.

use oneffect_core::{Migrated, Migrations, StoreError, time_of_micros};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::misplaced;
use crate::migrate::SCHEMA_VERSION;
use crate::store::Postgres;
use crate::transaction::heard;

impl Postgres {
    /// Where the schema stands. Only reads; also where there is no schema yet.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the database cannot be reached, and
    /// [`StoreError::Misconfigured`] when the role may not read it.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn migrations(&self) -> Result<Migrations, StoreError> {
        let mut transaction = self.begin_reading().await?;
        let is_there = sqlx::query_scalar(
            "SELECT to_regclass(coalesce($1 || '.', '') || 'oneffect_migration') IS NOT NULL",
        );
        let is_there = is_there.bind(self.schema()).persistent(false);
        let is_there = heard!(
            transaction,
            "the schema's versions",
            is_there.fetch_one(&mut *transaction)
        );
        let mut applied = Vec::new();
        if is_there.map_err(misplaced)? {
            let rows = sqlx::query(
                "SELECT version, (extract(epoch FROM applied_at) * 1000000)::bigint AS applied_at \
                 FROM oneffect_migration ORDER BY version",
            );
            let rows = rows.persistent(false);
            let rows = heard!(
                transaction,
                "the schema's versions",
                rows.fetch_all(&mut *transaction)
            );
            let rows = rows.map_err(misplaced)?;
            applied = (rows.iter().map(migrated).collect::<Result<_, _>>())
                .map_err(StoreError::rolled_back)?;
        }
        transaction.rollback().await;
        Ok(Migrations::new(SCHEMA_VERSION, applied))
    }
}

fn migrated(row: &PgRow) -> sqlx::Result<Migrated> {
    Ok(Migrated {
        version: row.try_get("version")?,
        at: time_of_micros(row.try_get("applied_at")?),
    })
}
