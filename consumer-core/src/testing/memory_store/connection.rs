//! What a handler is lent: the transaction, and simple tables in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::database::{Database, Lock, NotLocked, TransactionId, Write};
use super::days::Place;
use super::error::MemoryError;
use crate::event_key::EventKey;
use crate::store::{ConsumerId, StoreError};

/// A transaction's connection.
///
/// A table is a list of texts and need not be made before it is written. After a failed call all
/// others fail with [`MemoryError::Aborted`] until the transaction is rolled back, wholly or to a
/// savepoint.
#[derive(Debug)]
pub struct MemoryConnection {
    pub(super) database: Arc<Database>,
    pub(super) transaction: TransactionId,
    consumer: ConsumerId,
    /// What becomes visible at the commit, in order.
    writes: Vec<Write>,
    savepoint: Option<usize>,
    aborted: bool,
    ended: bool,
}

/// A row of one of the user's tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct MemoryRow {
    /// The table.
    pub table: String,
    /// What the row says.
    pub text: String,
    /// Whether writing it fails when the table has such a row already.
    pub unique: bool,
}

impl MemoryRow {
    /// A row that any number of others may equal.
    pub fn new(table: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            text: text.into(),
            unique: false,
        }
    }

    /// A row that the table may hold once.
    pub fn unique(table: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            unique: true,
            ..Self::new(table, text)
        }
    }
}

impl MemoryConnection {
    pub(super) fn begin(
        database: Arc<Database>,
        consumer: ConsumerId,
    ) -> Result<Self, MemoryError> {
        let transaction = database.begin()?;
        Ok(Self {
            database,
            transaction,
            consumer,
            writes: Vec::new(),
            savepoint: None,
            aborted: false,
            ended: false,
        })
    }

    /// Adds a row to a table.
    ///
    /// # Errors
    /// Only those of the transaction and of the connection.
    pub async fn append(
        &mut self,
        table: impl Into<String>,
        row: impl Into<String>,
    ) -> Result<(), MemoryError> {
        self.insert(vec![MemoryRow::new(table, row)]).await
    }

    /// Adds a row to a table that may hold it once. Waits while another transaction has written
    /// the same and is undecided.
    ///
    /// # Errors
    /// [`MemoryError::UniqueViolation`] when the row is there, [`MemoryError::Deadlock`] when the
    /// other transaction waits for this one; both abort the transaction.
    pub async fn insert_unique(
        &mut self,
        table: impl Into<String>,
        key: impl Into<String>,
    ) -> Result<(), MemoryError> {
        self.insert(vec![MemoryRow::unique(table, key)]).await
    }

    /// The rows of a table as this transaction sees them: what has committed, then its own.
    ///
    /// # Errors
    /// Only those of the transaction and of the connection.
    pub async fn rows(&mut self, table: &str) -> Result<Vec<String>, MemoryError> {
        self.round_trip().await?;
        Ok(self.visible(table))
    }

    /// Plays a statement that fails, and aborts the transaction.
    ///
    /// # Errors
    /// The one given, unless the transaction or the connection has one of its own.
    pub async fn fail(&mut self, error: MemoryError) -> Result<(), MemoryError> {
        self.round_trip().await?;
        self.abort(Err(error))
    }

    /// Plays a handler that breaks the rule and commits the transaction itself. What the
    /// connection writes from then on is there at once.
    ///
    /// # Errors
    /// Only those of the connection.
    pub async fn end_with_commit(&mut self) -> Result<(), MemoryError> {
        yield_now().await;
        self.database.state().check_alive(self.transaction)?;
        if self.aborted {
            self.writes.clear();
        }
        self.commit_writes();
        Ok(())
    }

    /// Plays a handler that breaks the rule and rolls the transaction back itself. What the
    /// connection writes from then on is there at once.
    ///
    /// # Errors
    /// Only those of the connection.
    pub async fn end_with_rollback(&mut self) -> Result<(), MemoryError> {
        yield_now().await;
        self.database.state().check_alive(self.transaction)?;
        self.writes.clear();
        self.end();
        Ok(())
    }

    pub(super) async fn insert(&mut self, rows: Vec<MemoryRow>) -> Result<(), MemoryError> {
        self.round_trip().await?;
        for row in rows {
            if row.unique {
                let locked = self.lock_row(&row).await;
                self.abort(locked)?;
            }
            self.write([Write::Row(row)]);
        }
        Ok(())
    }

    async fn lock_row(&mut self, row: &MemoryRow) -> Result<(), MemoryError> {
        // As in PostgreSQL, a row is waited for without limit, except in a circle.
        const NO_LIMIT: Duration = Duration::from_hours(720);
        let lock = Lock::Row(row.clone());
        match self.database.lock(self.transaction, lock, NO_LIMIT).await {
            Ok(()) => {}
            Err(NotLocked::Failed(error)) => return Err(error),
            Err(NotLocked::TimedOut) => return Err(MemoryError::Deadlock),
        }
        if self.visible(&row.table).contains(&row.text) {
            return Err(MemoryError::UniqueViolation {
                table: row.table.clone(),
                row: row.text.clone(),
            });
        }
        Ok(())
    }

    pub(super) fn rows_written(&self) -> u64 {
        let rows = self.writes.iter();
        rows.filter(|write| matches!(write, Write::Row(_))).count() as u64
    }

    fn visible(&self, table: &str) -> Vec<String> {
        let mut rows = self
            .database
            .state()
            .tables
            .get(table)
            .cloned()
            .unwrap_or_default();
        for write in &self.writes {
            if let Write::Row(row) = write
                && row.table == table
            {
                rows.push(row.text.clone());
            }
        }
        rows
    }

    /// Every statement comes through here: a place to be dropped at, and the reasons for which all
    /// of them fail.
    pub(super) async fn round_trip(&mut self) -> Result<(), MemoryError> {
        yield_now().await;
        self.database.state().check_alive(self.transaction)?;
        if self.aborted {
            Err(MemoryError::Aborted)
        } else {
            Ok(())
        }
    }

    fn abort(&mut self, result: Result<(), MemoryError>) -> Result<(), MemoryError> {
        self.aborted |= result.is_err();
        result
    }

    pub(super) fn write(&mut self, writes: impl IntoIterator<Item = Write>) {
        self.writes.extend(writes);
        if self.ended {
            // No transaction is open, so each statement is one.
            self.apply_writes();
        }
    }

    /// Where the inbox keeps a key that this transaction has claimed. Panics unless it has, and has
    /// not given it back: a real store would quietly change nothing.
    pub(super) fn place_of(&self, key: &EventKey) -> Place {
        let last = self.writes.iter().rev().find_map(|write| match write {
            Write::Claim(claimed, place, _) if claimed == key => Some(Some(*place)),
            Write::Unclaim(given_back, _) if given_back == key => Some(None),
            Write::Claim(..)
            | Write::Unclaim(..)
            | Write::Outcome(..)
            | Write::Row(_)
            | Write::Letter(_)
            | Write::DeleteLetter(_)
            | Write::Forget(_) => None,
        });
        match last.flatten() {
            Some(place) => place,
            // The transaction is over, and what it wrote with it.
            None if self.ended => Place::Open,
            None => panic!("{key} is not claimed by this unit"),
        }
    }

    pub(super) fn consumer(&self) -> ConsumerId {
        self.consumer
    }

    pub(super) async fn set_savepoint(&mut self) -> Result<(), StoreError> {
        self.round_trip().await?;
        self.check_not_ended()?;
        self.savepoint = Some(self.writes.len());
        Ok(())
    }

    /// Works in an aborted transaction, and mends it.
    pub(super) async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        yield_now().await;
        self.database.state().check_alive(self.transaction)?;
        self.check_not_ended()?;
        let savepoint = self.savepoint.take().ok_or(MemoryError::NoSavepoint)?;
        self.writes.truncate(savepoint);
        self.aborted = false;
        Ok(())
    }

    pub(super) async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.round_trip().await?;
        self.check_not_ended()?;
        self.savepoint.take().ok_or(MemoryError::NoSavepoint)?;
        Ok(())
    }

    fn check_not_ended(&self) -> Result<(), StoreError> {
        if self.ended {
            Err(StoreError::HandlerEndedTransaction)
        } else {
            Ok(())
        }
    }

    /// Commits, with an await point on either side: a caller that is dropped at the second never
    /// hears of it.
    pub(super) async fn commit(&mut self) -> Result<(), StoreError> {
        yield_now().await;
        self.database.state().check_alive(self.transaction)?;
        self.check_not_ended()?;
        if self.aborted {
            return Err(MemoryError::Aborted.into());
        }
        self.commit_writes();
        yield_now().await;
        Ok(())
    }

    fn commit_writes(&mut self) {
        if !self.ended {
            self.apply_writes();
            self.database.state().commits += 1;
            self.end();
        }
    }

    fn apply_writes(&mut self) {
        let mut state = self.database.state();
        for write in self.writes.drain(..) {
            state.apply(self.consumer, write);
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.aborted = false;
        self.database.release(self.transaction);
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.database.release(self.transaction);
        self.database.state().open -= 1;
    }
}
