//! Partitions of the inbox: created ahead by maintenance, and by the claim that misses one.

use oneffect_core::{Day, StoreError};
use sqlx::AssertSqlSafe;

use crate::blame::{code, misplaced};
use crate::transaction::Transaction;
use crate::unit::PostgresUnit;

/// Creating partitions and raising the floor exclude one another, so that nothing is ever created
/// below it. The lock is the schema's own, and ends with the transaction, so it works behind a pooler.
pub(crate) const LOCK: &str =
    "SELECT pg_advisory_xact_lock(781105441, 'inbox_floor'::regclass::oid::int)";

/// Creates what will soon be needed, and what those days need, unless they are forgotten. Answers how
/// many. The transaction has just begun, at READ COMMITTED: the floor is read after the lock.
pub(crate) async fn create_missing(
    transaction: &mut Transaction,
    days: &[Day],
) -> sqlx::Result<u64> {
    let mut days: Vec<i32> = days.iter().map(|day| day.number()).collect();
    days.sort_unstable();
    days.dedup();
    sqlx::raw_sql(LOCK).execute(&mut **transaction).await?;
    let missing: Vec<String> = sqlx::query_scalar(include_str!("queries/missing_partitions.sql"))
        .bind(days)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await?;
    let mut created = 0;
    for sql in missing {
        // Built by the server, which has quoted its own names.
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut **transaction)
            .await?;
        created += 1;
    }
    Ok(created)
}

impl PostgresUnit {
    /// Rolls back, creates the partitions that those days need, and begins anew; all on the same
    /// connection, since there may be no other.
    pub(crate) async fn begin_again_with_partitions(
        &mut self,
        days: &[Day],
    ) -> Result<(), StoreError> {
        let transaction = &mut self.transaction;
        transaction
            .begin_again(&self.begin_partitions)
            .await
            .map_err(StoreError::rolled_back)?;
        create_missing(transaction, days).await.map_err(misplaced)?;
        transaction
            .commit_and_begin(&self.begin_sql)
            .await
            .map_err(StoreError::rolled_back)?;
        self.transaction_id = None;
        Ok(())
    }
}

/// Whether a row of the inbox had no partition to go to. A user's CHECK has the same code, and a name.
pub(crate) fn is_missing_partition(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        code(error) == "23514"
            && error.constraint().is_none()
            && matches!(error.table(), Some("inbox" | "inbox_open"))
    })
}
