//! A pooled connection with a transaction on it, which goes back to the pool clean or not at all.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use oneffect_core::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::blame::{is_disconnect, is_outage, misplaced};
use crate::connections::{Connections, Silent};

/// An open transaction.
///
/// It is not [`sqlx::Transaction`], which would put the connection back into the pool whatever has
/// become of it: behind a statement that still runs, or inside a transaction whose BEGIN was sent
/// and not answered when the future was dropped. Here a connection is closed on drop, unless its
/// transaction has ended in good order. The transaction is begun through sqlx, so that a handler's
/// own `begin()` on this connection sets a savepoint, and its `commit()` is none of ours.
///
/// Nothing here waits for ever, and nothing that is done with a transaction should: see [`heard!`].
pub(crate) struct Transaction {
    connection: PoolConnection<sqlx::Postgres>,
    connections: Arc<Connections>,
    /// Of the connections; see [`Connections::renew`].
    generation: u64,
    /// Whether the connection may go back to the pool.
    ended: bool,
    /// Whether it must not, however well the transaction ends.
    condemned: bool,
}

impl Transaction {
    /// Sends all of `sql`, which starts with `BEGIN`, as one simple query. `wait` is how long that
    /// may wait for locks.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`]; [`StoreError::Misconfigured`] when our tables are not there.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn begin(
        connections: &Arc<Connections>,
        sql: &str,
        wait: Duration,
    ) -> Result<Self, StoreError> {
        // The pool does not try connections before it hands them out, which saves a round trip. The
        // server may have closed them meanwhile: then the next one is as good, and nothing has
        // happened yet.
        let mut others = connections.pool().size();
        let limit = connections.prompt.saturating_add(wait);
        loop {
            let generation = connections.generation();
            let mut transaction = Self {
                connection: (connections.acquire().await).map_err(StoreError::rolled_back)?,
                connections: Arc::clone(connections),
                generation,
                ended: false,
                condemned: false,
            };
            let begun = timeout(limit, transaction.begin_here(sql)).await;
            match (transaction.listened("BEGIN", limit, begun)).map_err(StoreError::rolled_back)? {
                Ok(()) => return Ok(transaction),
                Err(error) if others > 0 && is_disconnect(&error) => others -= 1,
                Err(error) => return Err(misplaced(error)),
            }
        }
    }

    async fn begin_here(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned()).into_sql_str();
        PgTransactionManager::begin(&mut self.connection, Some(sql)).await
    }

    /// Rolls back, and begins another on the same connection.
    pub(crate) async fn begin_again(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        PgTransactionManager::rollback(&mut self.connection).await?;
        self.begin_here(sql).await
    }

    /// Commits, and begins another on the same connection.
    pub(crate) async fn commit_and_begin(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        PgTransactionManager::commit(&mut self.connection).await?;
        self.begin_here(sql).await
    }

    /// How long to wait for the answer to a statement: longer than the server works on one.
    pub(crate) fn limit(&self) -> Duration {
        self.connections.limit
    }

    /// What comes of a call on a transaction that was awaited with a deadline: see [`heard!`]. After a silence this connection is not used again, and no other is trusted.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when nothing was heard.
    pub(crate) fn heard<T>(
        &mut self,
        call: &'static str,
        answer: Result<T, Elapsed>,
    ) -> Result<T, StoreError> {
        self.listened(call, self.limit(), answer)
            .map_err(StoreError::rolled_back)
    }

    /// As [`Transaction::heard`], for a COMMIT: silence leaves open what became of it.
    pub(crate) fn heard_of_commit<T>(
        &mut self,
        answer: Result<T, Elapsed>,
    ) -> Result<T, StoreError> {
        self.listened("COMMIT", self.limit(), answer)
            .map_err(StoreError::indeterminate)
    }

    fn listened<T>(
        &mut self,
        call: &'static str,
        waited: Duration,
        answer: Result<T, Elapsed>,
    ) -> Result<T, Silent> {
        answer.map_err(|_elapsed| {
            self.condemn();
            self.connections.renew();
            Silent { call, waited }
        })
    }

    /// Commits, for transactions that no handler has touched: see [`crate::commit`] for the others.
    ///
    /// # Errors
    /// [`StoreError::Indeterminate`].
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = PgTransactionManager::commit(&mut self.connection);
        let committed = timeout(self.connections.limit, committed).await;
        self.heard_of_commit(committed)?
            .map_err(StoreError::indeterminate)?;
        self.ended = true;
        Ok(())
    }

    /// Rolls back and gives the connection back; closes it if that fails.
    pub(crate) async fn rollback(mut self) {
        // More than one level is a nested transaction that the handler has lost track of: there is
        // no telling what else it left behind.
        if PgTransactionManager::get_transaction_depth(&self.connection) == 1 && !self.condemned {
            // It may stand behind a statement that a handler has left running, which is not worth
            // waiting for, and says nothing of other connections.
            let rolled_back = PgTransactionManager::rollback(&mut self.connection);
            let rolled_back = timeout(self.connections.prompt, rolled_back).await;
            self.ended = matches!(rolled_back, Ok(Ok(())));
        }
    }

    /// The transaction has committed, and an empty one has taken its place. Its ROLLBACK is sent
    /// when the pool takes the connection back, which nobody waits for.
    pub(crate) fn end_chained(mut self) {
        if PgTransactionManager::get_transaction_depth(&self.connection) == 1 && !self.condemned {
            PgTransactionManager::start_rollback(&mut self.connection);
            self.ended = true;
        }
    }

    /// Closes the connection when this is dropped or rolled back.
    pub(crate) fn condemn(&mut self) {
        self.condemned = true;
    }
}

/// Awaits a call on a transaction, but not for ever. Whatever is sent to the server is awaited so.
///
/// Returns from the function with [`StoreError::RolledBack`] when nothing was heard.
macro_rules! heard {
    ($transaction:expr, $call:literal, $answer:expr) => {{
        let limit = $transaction.limit();
        let answer = tokio::time::timeout(limit, $answer).await;
        $transaction.heard($call, answer)?
    }};
}
pub(crate) use heard;

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.ended && self.generation == self.connections.generation() {
            self.connections.give_back(&mut self.connection);
        } else {
            // sqlx closes it in the background, and gives up soon: nobody waits for a dead socket.
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// A pooled connection for one simple query that is a transaction of its own.
pub(crate) struct Alone {
    connection: PoolConnection<sqlx::Postgres>,
    connections: Arc<Connections>,
    /// See [`Connections::renew`].
    generation: u64,
    answered: bool,
}

impl Alone {
    /// Sends several statements as one simple query, which the server runs as one transaction: an error
    /// undoes all of it, and nothing has to be sent to end it. Answers within the time that the server
    /// allows any one statement, or not at all.
    ///
    /// # Errors
    /// The outer one is [`StoreError::RolledBack`], when the server is not heard.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the server may finish what it has read.
    pub(crate) async fn run(
        connections: &Arc<Connections>,
        sql: String,
    ) -> Result<Result<(), sqlx::Error>, StoreError> {
        let generation = connections.generation();
        let mut alone = Self {
            connection: (connections.acquire().await).map_err(StoreError::rolled_back)?,
            connections: Arc::clone(connections),
            generation,
            answered: false,
        };
        let limit = connections.limit;
        let answer = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *alone.connection);
        let answer = timeout(limit, answer).await.map_err(|_elapsed| {
            connections.renew();
            let (call, waited) = ("a step of maintenance", limit);
            StoreError::rolled_back(Silent { call, waited })
        })?;
        alone.answered = !answer.as_ref().is_err_and(is_outage);
        Ok(answer.map(|_| ()))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.answered && self.generation == self.connections.generation() {
            self.connections.give_back(&mut self.connection);
        } else {
            self.connection.close_on_drop();
        }
    }
}
