//! The connection with a transaction on it, which goes back to the pool clean or not at all.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteTransactionManager;
use sqlx::{SqlSafeStr, SqliteConnection, SqlitePool};
use sqlx_core::transaction::TransactionManager;

/// A writer from the start: a transaction that reads first and writes later fails at once, whatever
/// the timeout, when another has written in between. The savepoint lives exactly as long as this
/// transaction, which is how the commit knows it again.
const BEGIN: &str = "BEGIN IMMEDIATE; SAVEPOINT oneffect_unit";

/// Beside a writer, and never one itself.
const BEGIN_READING: &str = "BEGIN DEFERRED";

/// An open transaction.
///
/// It is not [`sqlx::Transaction`], which would put the connection back into the pool behind a
/// statement that still runs. Here it is closed on drop, unless its transaction has ended in good
/// order. The transaction is begun through sqlx, so that a handler's own `begin()` on this
/// connection sets a savepoint, and its `commit()` is none of ours.
pub(crate) struct Transaction {
    connection: PoolConnection<sqlx::Sqlite>,
    /// Whether the connection may go back to the pool.
    ended: bool,
    /// Whether it must not, however well the transaction ends.
    condemned: bool,
}

impl Transaction {
    /// Begins as a writer, after the other writers.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn begin(pool: &SqlitePool) -> Result<Self, sqlx::Error> {
        Self::begin_as(pool, BEGIN).await
    }

    /// Begins as a reader, who sees one state of the database and is in nobody's way. Roll it back
    /// when done.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn begin_reading(pool: &SqlitePool) -> Result<Self, sqlx::Error> {
        Self::begin_as(pool, BEGIN_READING).await
    }

    async fn begin_as(pool: &SqlitePool, sql: &'static str) -> Result<Self, sqlx::Error> {
        let mut transaction = Self {
            connection: pool.acquire().await?,
            ended: false,
            condemned: false,
        };
        let begun =
            SqliteTransactionManager::begin(&mut transaction.connection, Some(sql.into_sql_str()))
                .await;
        match begun {
            Ok(()) => Ok(transaction),
            Err(error) => {
                // Nothing has begun, as when another process went on writing for too long.
                transaction.ended = crate::blame::is_busy(&error);
                Err(error)
            }
        }
    }

    /// Commits.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        if self.depth() > 1 {
            // The handler has lost track of a nested transaction, and sqlx would end that one. As
            // in PostgreSQL, what it wrote is kept, and the connection is not used again.
            sqlx::raw_sql("COMMIT")
                .execute(&mut *self.connection)
                .await?;
            return Ok(());
        }
        SqliteTransactionManager::commit(&mut self.connection).await?;
        self.ended = !self.condemned;
        Ok(())
    }

    /// Rolls back and gives the connection back; closes it if that fails.
    pub(crate) async fn rollback(mut self) {
        if self.depth() == 1 && !self.condemned {
            self.ended = SqliteTransactionManager::rollback(&mut self.connection)
                .await
                .is_ok();
        }
    }

    /// How deep sqlx believes to be in nested transactions: 1 unless a handler left one open.
    fn depth(&self) -> usize {
        SqliteTransactionManager::get_transaction_depth(&self.connection)
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
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}
