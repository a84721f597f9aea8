//! A store in memory, with the transactions and the waiting of a real one.

mod connection;
mod database;
mod error;
mod marks;
mod unit;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::yield_now;

pub use connection::{MemoryConnection, MemoryRow};
pub use error::MemoryError;
pub use unit::MemoryUnit;

use self::database::Database;
use crate::crash_guard::{Mark, ProcessId};
use crate::day::DaysFrom;
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::store::{Begin, Blame, ConsumerId, Prior, Settled, Store, StoreError};

/// A database in memory; clones share it.
///
/// It behaves as PostgreSQL does at READ COMMITTED: units run at the same time, a claim waits for a
/// rival's undecided one, and a failed statement aborts its transaction. Every call has at least
/// one await point, at which it can be dropped. Waiting is by tokio's clock.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    database: Arc<Database>,
    max_units: Option<usize>,
}

impl MemoryStore {
    /// An empty database.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that at most so many units may run at once, as a database with one writer does. It is
    /// for the caller to keep to it; [`MemoryStore::peak_units`] tells.
    #[must_use]
    pub fn with_max_units(mut self, max_units: usize) -> Self {
        self.max_units = Some(max_units);
        self
    }

    /// Takes the database away, or brings it back. Going away ends every open transaction without
    /// a trace, and everything fails as an outage until it is back.
    pub fn set_down(&self, down: bool) {
        self.database.set_down(down);
    }

    /// What the inbox says became of an event; `None` when nothing did.
    pub fn outcome(&self, consumer: &str, key: &EventKey) -> Option<Settled> {
        let state = self.database.state();
        let consumer = *state.consumers.get(consumer)?;
        let row = state.inbox.get(&(consumer, key.clone()))?;
        Some(row.settled.clone())
    }

    /// The fingerprint that is stored with an event's key.
    pub fn fingerprint(&self, consumer: &str, key: &EventKey) -> Option<Fingerprint16> {
        let state = self.database.state();
        let consumer = *state.consumers.get(consumer)?;
        state.inbox.get(&(consumer, key.clone()))?.fingerprint
    }

    /// The whole inbox of a consumer, in the order of the keys.
    pub fn inbox(&self, consumer: &str) -> Vec<(EventKey, Settled)> {
        let state = self.database.state();
        let consumer = state.consumers.get(consumer);
        let rows = state.inbox.iter();
        rows.filter(|((owner, _), _)| Some(owner) == consumer)
            .map(|((_, key), row)| (key.clone(), row.settled.clone()))
            .collect()
    }

    /// The dead letters of all consumers, and how often each was set aside.
    pub fn dead_letters(&self) -> Vec<(DeadLetter, u32)> {
        self.database
            .state()
            .dead_letters
            .values()
            .cloned()
            .collect()
    }

    /// The retry row of an event.
    pub fn attempts(&self, consumer: &str, key: &EventKey) -> Option<Prior> {
        let state = self.database.state();
        let consumer = *state.consumers.get(consumer)?;
        Some(state.retries.get(&(consumer, key.clone()))?.prior())
    }

    /// The crash guard's marks of all consumers.
    pub fn marks(&self) -> Vec<(EventKey, Mark)> {
        let state = self.database.state();
        let marks = state.marks.iter();
        marks.map(|((_, key), mark)| (key.clone(), *mark)).collect()
    }

    /// The committed rows of one of the user's tables, in the order of their commits.
    pub fn rows(&self, table: &str) -> Vec<String> {
        self.database
            .state()
            .tables
            .get(table)
            .cloned()
            .unwrap_or_default()
    }

    /// How many units are open.
    pub fn open_units(&self) -> usize {
        self.database.state().open
    }

    /// The most units that were ever open at once.
    pub fn peak_units(&self) -> usize {
        self.database.state().peak
    }

    /// How many units have committed.
    pub fn commits(&self) -> usize {
        self.database.state().commits
    }
}

#[async_trait]
impl Store for MemoryStore {
    type Connection = MemoryConnection;
    type Row = MemoryRow;
    type Unit = MemoryUnit;

    async fn open(&self, consumer: &str, _days: DaysFrom) -> Result<ConsumerId, StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        let next = ConsumerId(i32::try_from(state.consumers.len()).unwrap_or(i32::MAX));
        Ok(*state.consumers.entry(consumer.into()).or_insert(next))
    }

    async fn begin(&self, begin: Begin) -> Result<MemoryUnit, StoreError> {
        yield_now().await;
        let connection = MemoryConnection::begin(Arc::clone(&self.database), begin.consumer)?;
        Ok(MemoryUnit::new(connection, begin.claim_wait))
    }

    async fn charge(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        let retry = state.retries.entry((consumer, key.clone())).or_default();
        Ok(retry.charge(error, wait))
    }

    fn blame(&self, error: &(dyn Error + 'static)) -> Option<Blame> {
        error.downcast_ref().map(MemoryError::blame)
    }

    async fn note_duplicate_ages(
        &self,
        consumer: ConsumerId,
        ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        state
            .duplicate_ages
            .entry(consumer)
            .or_default()
            .merge(ages);
        Ok(())
    }

    async fn duplicate_ages(&self, consumer: ConsumerId) -> Result<DuplicateAges, StoreError> {
        yield_now().await;
        let state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        let ages = state.duplicate_ages.get(&consumer);
        Ok(ages.cloned().unwrap_or_default())
    }

    async fn mark(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(state.mark(consumer, process, keys))
    }

    async fn find_mark(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Mark>, StoreError> {
        yield_now().await;
        let state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(state.marks.get(&(consumer, key.clone())).copied())
    }

    async fn put_mark(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        mark: Mark,
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        state.marks.insert((consumer, key.clone()), mark);
        Ok(())
    }

    async fn unmark(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        for key in keys {
            state.unmark(consumer, process, key);
        }
        Ok(())
    }

    fn max_units(&self) -> Option<usize> {
        self.max_units
    }
}
