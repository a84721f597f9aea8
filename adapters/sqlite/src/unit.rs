//! One transaction for a batch of events.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use oneffect_core::{
    Claim, ConsumerId, DeadLetter, EventKey, Late, Letter, LetterId, Reopen, Settled, StoreError,
    Unit, Verdict,
};
use sqlx::SqliteConnection;

use crate::blame::{is_outage, is_plain_error};
use crate::commit::commit;
use crate::staged::SqliteRow;
use crate::transaction::Transaction;

/// A transaction of a [`Sqlite`](crate::Sqlite) store.
pub struct SqliteUnit {
    pub(crate) transaction: Transaction,
    pub(crate) consumer: ConsumerId,
    pub(crate) late: Late,
    /// Which staged tables are written first, in this order.
    pub(crate) tables: Arc<[TypeId]>,
}

impl fmt::Debug for SqliteUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteUnit")
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl SqliteUnit {
    /// Every failed statement of ours passes here: a connection that an outage has shown itself on
    /// must not serve another unit.
    pub(crate) fn failed(&mut self, error: sqlx::Error) -> sqlx::Error {
        if is_outage(&error) {
            self.transaction.condemn();
        }
        error
    }

    /// Savepoints are set by name and not through sqlx, whose own, of handlers that nest
    /// transactions, come and go on top of them.
    async fn run(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match sqlx::raw_sql(sql).execute(&mut *self.transaction).await {
            Ok(_) => Ok(()),
            // No such savepoint: ours has been ended.
            Err(error) if is_plain_error(&error) => Err(StoreError::HandlerEndedTransaction),
            Err(error) => Err(StoreError::rolled_back(self.failed(error))),
        }
    }
}

#[async_trait]
impl Unit for SqliteUnit {
    type Connection = SqliteConnection;
    type Row = SqliteRow;

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, StoreError> {
        self.claim_keys(claims).await
    }

    fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    async fn write(&mut self, rows: &[SqliteRow]) -> Result<(), StoreError> {
        self.write_staged(rows).await
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        self.run("SAVEPOINT oneffect_handler").await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK TO oneffect_handler; RELEASE oneffect_handler")
            .await
    }

    async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.run("RELEASE oneffect_handler").await
    }

    async fn rows_written(&mut self) -> Result<Option<u64>, StoreError> {
        let count = sqlx::query_scalar("SELECT total_changes()").persistent(false);
        let count: Result<i64, _> = count.fetch_one(&mut *self.transaction).await;
        let count = count.map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(u64::try_from(count).ok())
    }

    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.delete_claims(keys).await
    }

    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        self.record_outcomes(outcomes).await
    }

    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        self.insert_letters(letters).await
    }

    async fn room_for_letters(&mut self, limit: u64) -> Result<u64, StoreError> {
        self.count_room(limit).await
    }

    async fn has_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        self.find_letter(source_key).await
    }

    async fn take_letter(&mut self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        self.take_due_letter(id).await
    }

    async fn delete_letter(&mut self, id: LetterId) -> Result<(), StoreError> {
        self.delete_taken(id).await
    }

    async fn reopen(&mut self, claim: &Claim, what: Reopen) -> Result<(), StoreError> {
        self.take_back(claim, what).await
    }

    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.delete_attempts(keys).await
    }

    async fn commit(self) -> Result<(), StoreError> {
        commit(self.transaction).await
    }

    async fn rollback(self) {
        self.transaction.rollback().await;
    }
}
