//! One transaction for a batch of events.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use oneffect_core::{
    Begin, Claim, ConsumerId, DeadLetter, EventKey, Letter, LetterId, Reopen, Settled, StoreError,
    Unit, Verdict,
};
use sqlx::{Connection, PgConnection};

use crate::blame::{code, is_outage};
use crate::commit::commit;
use crate::filed::FiledKeys;
use crate::staged::PostgresRow;
use crate::transaction::{Transaction, heard};

/// A transaction of a [`Postgres`](crate::Postgres) store.
pub struct PostgresUnit {
    pub(crate) transaction: Transaction,
    pub(crate) consumer: ConsumerId,
    /// What it began with, should it have to begin again.
    pub(crate) begin: Begin,
    pub(crate) begin_sql: String,
    /// What begins the transaction that creates missing partitions.
    pub(crate) begin_partitions: String,
    /// Whether it has done anything that would be lost if it began again.
    pub(crate) used: bool,
    /// Where the keys of the claims are.
    pub(crate) filed: FiledKeys,
    /// The id that the server gave to the transaction when it first wrote something.
    pub(crate) transaction_id: Option<String>,
    /// The `lock_timeout` that handlers run with, which is not the claim's.
    pub(crate) after_claim: Arc<str>,
    /// Whether statements are prepared under a name.
    pub(crate) named: bool,
    /// Which staged tables are written first, in this order.
    pub(crate) tables: Arc<[TypeId]>,
}

impl fmt::Debug for PostgresUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUnit")
            .field("consumer", &self.consumer)
            .field("transaction_id", &self.transaction_id)
            .finish_non_exhaustive()
    }
}

impl PostgresUnit {
    /// Every failed statement of ours passes here: a connection that an outage has shown itself on
    /// (a server that became read-only, for one) must not serve another unit.
    pub(crate) fn failed(&mut self, error: sqlx::Error) -> sqlx::Error {
        if is_outage(&error) {
            self.transaction.condemn();
        }
        error
    }

    /// Whether a statement was prepared under a name where none may be: see
    /// [`Statements::Unnamed`](crate::Statements::Unnamed). Ours are not, so it was a handler's.
    fn kept_a_name(&self) -> bool {
        !self.named && self.transaction.cached_statements_size() > 0
    }

    /// Savepoints are set by name and not through sqlx, whose own, of handlers that nest
    /// transactions, come and go on top of them.
    async fn run(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match heard!(
            self.transaction,
            "a savepoint",
            sqlx::raw_sql(sql).execute(&mut *self.transaction)
        ) {
            Ok(_) => Ok(()),
            Err(error) => {
                // No active transaction, no such savepoint: ours has been ended.
                let code = error.as_database_error().map(code).unwrap_or_default();
                if code == "25P01" || code == "3B001" {
                    return Err(StoreError::HandlerEndedTransaction);
                }
                Err(StoreError::rolled_back(self.failed(error)))
            }
        }
    }
}

/// What this transaction has done to users' tables, undone parts included. Unprepared, since it runs
/// in debug builds alone.
const ROWS_WRITTEN: &str = "
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_xact_user_tables";

#[async_trait]
impl Unit for PostgresUnit {
    type Connection = PgConnection;
    type Row = PostgresRow;

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, StoreError> {
        heard!(self.transaction, "the claim", self.claim_keys(claims))
    }

    fn connection(&mut self) -> &mut PgConnection {
        self.used = true;
        &mut self.transaction
    }

    async fn write(&mut self, rows: &[PostgresRow]) -> Result<(), StoreError> {
        self.used = true;
        self.write_staged(rows).await
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        self.used = true;
        self.run("SAVEPOINT oneffect_handler").await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK TO SAVEPOINT oneffect_handler; RELEASE SAVEPOINT oneffect_handler")
            .await
    }

    async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.run("RELEASE SAVEPOINT oneffect_handler").await
    }

    async fn rows_written(&mut self) -> Result<Option<u64>, StoreError> {
        let count = sqlx::query_scalar(ROWS_WRITTEN).persistent(false);
        let count: Result<i64, _> = count.fetch_one(&mut *self.transaction).await;
        let count = count.map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(u64::try_from(count).ok())
    }

    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        heard!(
            self.transaction,
            "claims given back",
            self.delete_claims(keys)
        )
    }

    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        heard!(self.transaction, "outcomes", self.record_outcomes(outcomes))
    }

    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "dead letters",
            self.insert_letters(letters)
        )
    }

    async fn room_for_letters(&mut self, limit: u64) -> Result<u64, StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "the room for dead letters",
            self.count_room(limit)
        )
    }

    async fn has_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "a look for a dead letter",
            self.find_letter(source_key)
        )
    }

    async fn take_letter(&mut self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "a dead letter taken",
            self.take_due_letter(id)
        )
    }

    async fn delete_letter(&mut self, id: LetterId) -> Result<(), StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "a dead letter deleted",
            self.delete_taken(id)
        )
    }

    async fn reopen(&mut self, claim: &Claim, what: Reopen) -> Result<(), StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "a dead letter reopened",
            self.take_back(claim, what)
        )
    }

    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.used = true;
        heard!(
            self.transaction,
            "settled attempts",
            self.delete_attempts(keys)
        )
    }

    async fn commit(self) -> Result<(), StoreError> {
        if self.kept_a_name() {
            // Dropping the transaction rolls it back, and closes the connection.
            return Err(StoreError::misconfigured(
                "a handler's statement was kept by name on a connection, and behind a pooler another \
                 client's could have run in its place, so the unit of work was rolled back: give each \
                 sqlx query in handlers `.persistent(false)`",
            ));
        }
        commit(self.transaction, self.transaction_id.as_deref()).await
    }

    async fn rollback(mut self) {
        if self.kept_a_name() {
            self.transaction.condemn();
        }
        self.transaction.rollback().await;
    }
}
