//! What a consumer finds out before it starts.

use oneffect_core::{ConsumerId, DaysFrom, StoreError};

use crate::blame::misplaced;
use crate::migrate::{SCHEMA_VERSION, current_version};
use crate::store::Sqlite;
use crate::transaction::Transaction;

/// `PRAGMA synchronous` as a number: every commit is synced.
const FULL: i64 = 2;

impl Sqlite {
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
        let mut transaction = self.begin_plain().await?;
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&mut *transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        if synchronous < FULL {
            return Err(StoreError::misconfigured(
                "PRAGMA synchronous is below FULL: a power failure would take back commits that the \
                 broker was told of, and lose their events",
            ));
        }
        let found = current_version(&mut transaction).await.map_err(misplaced)?;
        check_version(found)?;
        let (id, kept) = intern(&mut transaction, name, days)
            .await
            .map_err(misplaced)?;
        days.check_against(&kept, name)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::rolled_back)?;
        Ok(id)
    }
}

/// A name keeps its number for ever, and where its days come from.
async fn intern(
    transaction: &mut Transaction,
    name: &str,
    days: DaysFrom,
) -> sqlx::Result<(ConsumerId, String)> {
    sqlx::query(include_str!("queries/add_consumer.sql"))
        .bind(name)
        .bind(days.as_str())
        .execute(&mut **transaction)
        .await?;
    let (id, kept) = sqlx::query_as(include_str!("queries/find_consumer.sql"))
        .bind(name)
        .fetch_one(&mut **transaction)
        .await?;
    Ok((ConsumerId(id), kept))
}

fn check_version(found: i32) -> Result<(), StoreError> {
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    Err(StoreError::misconfigured(match found {
        0 => "there is no inbox in this database: call `Sqlite::migrate` once".to_owned(),
        found if found < SCHEMA_VERSION => format!(
            "the inbox is of version {found} and this program needs version {SCHEMA_VERSION}: call \
             `Sqlite::migrate` once"
        ),
        found => format!(
            "the inbox is of version {found}, made by a newer program; this one knows version \
             {SCHEMA_VERSION}: update it, or go back with the newer one's `Sqlite::migrate_to`"
        ),
    }))
}
