//! What a consumer finds out before it starts.

use std::sync::Arc;

use oneffect_core::{ConsumerId, DaysFrom, StoreError};
use sqlx::Row;

use crate::blame::misplaced;
use crate::migrate::{SCHEMA_VERSION, current_version};
use crate::store::Postgres;
use crate::transaction::{Transaction, heard};

impl Postgres {
    pub(crate) async fn open_consumer(
        &self,
        name: &str,
        days: DaysFrom,
    ) -> Result<ConsumerId, StoreError> {
        if name.contains('\0') {
            return Err(StoreError::misconfigured(format!(
                "the consumer's name {name:?} contains NUL"
            )));
        }
        self.check_pooler().await?;
        let mut transaction = self.begin_plain().await?;
        heard!(
            transaction,
            "the start",
            self.check_environment(&mut transaction)
        )?;
        let (id, kept) = heard!(
            transaction,
            "the start",
            self.intern(&mut transaction, name, days)
        )
        .map_err(misplaced)?;
        days.check_against(&kept, name)?;
        transaction.commit().await?;
        Ok(id)
    }

    async fn check_environment(&self, transaction: &mut Transaction) -> Result<(), StoreError> {
        let lock_timeout =
            sqlx::query_scalar("SELECT reset_val FROM pg_settings WHERE name = 'lock_timeout'")
                .persistent(false)
                .fetch_one(&mut **transaction)
                .await;
        let environment = sqlx::query(include_str!("queries/environment.sql"))
            .bind(self.schema())
            .persistent(false)
            .fetch_one(&mut **transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        let text = |column: &str| environment.try_get::<String, _>(column);
        let lock_timeout: String = lock_timeout.map_err(StoreError::rolled_back)?;
        let version: i32 = environment
            .try_get("version")
            .map_err(StoreError::rolled_back)?;
        let encoding = text("encoding").map_err(StoreError::rolled_back)?;
        let synchronous_commit = text("synchronous_commit").map_err(StoreError::rolled_back)?;
        let migrated: bool = environment
            .try_get("migrated")
            .map_err(StoreError::rolled_back)?;
        if version < 140_000 {
            return Err(StoreError::misconfigured(format!(
                "the server is PostgreSQL {}, and oneffect needs 14 or later",
                version / 10_000
            )));
        }
        if encoding != "UTF8" {
            return Err(StoreError::misconfigured(format!(
                "the database is in {encoding}, and oneffect needs one in UTF8: it keeps texts of \
                 any producer"
            )));
        }
        if synchronous_commit == "off" {
            return Err(StoreError::misconfigured(
                "synchronous_commit is off: a crash of the server would take back commits that the \
                 broker was told of, and lose their events; set it to on for this role",
            ));
        }
        let found = if migrated {
            current_version(transaction).await.map_err(misplaced)?
        } else {
            0
        };
        check_version(found)?;
        let _ = self.lock_timeout.set(Arc::from(lock_timeout));
        Ok(())
    }

    /// A name keeps its number for ever, and where its days come from, also when two processes bring
    /// it up at once.
    async fn intern(
        &self,
        transaction: &mut Transaction,
        name: &str,
        days: DaysFrom,
    ) -> sqlx::Result<(ConsumerId, String)> {
        let find = include_str!("queries/find_consumer.sql");
        let found = sqlx::query_as(find).bind(name).persistent(self.named());
        if let Some((id, kept)) = found.fetch_optional(&mut **transaction).await? {
            return Ok((ConsumerId(id), kept));
        }
        // Waits for a rival that adds the same name, and then leaves it to the rival.
        sqlx::query(include_str!("queries/add_consumer.sql"))
            .bind(name)
            .bind(days.as_str())
            .persistent(self.named())
            .execute(&mut **transaction)
            .await?;
        let found = sqlx::query_as(find).bind(name).persistent(self.named());
        let (id, kept) = found.fetch_one(&mut **transaction).await?;
        Ok((ConsumerId(id), kept))
    }
}

fn check_version(found: i32) -> Result<(), StoreError> {
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    Err(StoreError::misconfigured(match found {
        0 => "there is no inbox in this database (or it is not in the search_path): call \
              `Postgres::migrate` once, with a role that may create tables"
            .to_owned(),
        found if found < SCHEMA_VERSION => format!(
            "the inbox is of version {found} and this program needs version {SCHEMA_VERSION}: call \
             `Postgres::migrate` once, with a role that may change tables"
        ),
        found => format!(
            "the inbox is of version {found}, made by a newer program; this one knows version \
             {SCHEMA_VERSION}: update it, or go back with the newer one's `Postgres::migrate_to`"
        ),
    }))
}
