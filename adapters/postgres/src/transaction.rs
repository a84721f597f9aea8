//! A pooled connection with a transaction on it, which goes back to the pool clean or not at all.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use crate::blame::{is_disconnect, is_outage};

/// An open transaction.
///
/// It is not [`sqlx::Transaction`], which would put the connection back into the pool whatever has
/// become of it: behind a statement that still runs, or inside a transaction whose BEGIN was sent
/// and not answered when the future was dropped. Here a connection is closed on drop, unless its
/// transaction has ended in good order. The transaction is begun through sqlx, so that a handler's
/// own `begin()` on this connection sets a savepoint, and its `commit()` is none of ours.
pub(crate) struct Transaction {
    connection: PoolConnection<sqlx::Postgres>,
    /// Whether the connection may go back to the pool.
    ended: bool,
    /// Whether it must not, however well the transaction ends.
    condemned: bool,
}

impl Transaction {
    /// Sends all of `begin`, which starts with `BEGIN`, as one simple query.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn begin(pool: &PgPool, begin: &str) -> Result<Self, sqlx::Error> {
        // The pool does not try connections before it hands them out, which saves a round trip. The
        // server may have closed them meanwhile: then the next one is as good, and nothing has
        // happened yet.
        let mut others = pool.size();
        loop {
            let mut transaction = Self {
                connection: pool.acquire().await?,
                ended: false,
                condemned: false,
            };
            match transaction.begin_here(begin).await {
                Ok(()) => return Ok(transaction),
                Err(error) if others > 0 && is_disconnect(&error) => others -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Rolls back, and begins another on the same connection.
    pub(crate) async fn begin_again(&mut self, begin: &str) -> Result<(), sqlx::Error> {
        PgTransactionManager::rollback(&mut self.connection).await?;
        self.begin_here(begin).await
    }

    /// Commits, and begins another on the same connection.
    pub(crate) async fn commit_and_begin(&mut self, begin: &str) -> Result<(), sqlx::Error> {
        PgTransactionManager::commit(&mut self.connection).await?;
        self.begin_here(begin).await
    }

    async fn begin_here(&mut self, begin: &str) -> Result<(), sqlx::Error> {
        let begin = AssertSqlSafe(begin.to_owned()).into_sql_str();
        PgTransactionManager::begin(&mut self.connection, Some(begin)).await
    }

    /// Commits, for transactions that no handler has touched: see [`crate::commit`] for the others.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        PgTransactionManager::commit(&mut self.connection).await?;
        self.ended = true;
        Ok(())
    }

    /// Rolls back and gives the connection back; closes it if that fails.
    pub(crate) async fn rollback(mut self) {
        // More than one level is a nested transaction that the handler has lost track of: there is
        // no telling what else it left behind.
        if PgTransactionManager::get_transaction_depth(&self.connection) == 1 && !self.condemned {
            self.ended = PgTransactionManager::rollback(&mut self.connection)
                .await
                .is_ok();
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

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
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
    answered: bool,
}

impl Alone {
    /// Sends several statements as one simple query, which the server runs as one transaction: an error
    /// undoes all of it, and nothing has to be sent to end it.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the server may finish what it has read.
    pub(crate) async fn run(pool: &PgPool, sql: &'static str) -> Result<(), sqlx::Error> {
        let mut alone = Self {
            connection: pool.acquire().await?,
            answered: false,
        };
        let answer = sqlx::raw_sql(sql).execute(&mut *alone.connection).await;
        alone.answered = !answer.as_ref().is_err_and(is_outage);
        answer.map(|_| ())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}
