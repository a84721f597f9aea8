//! A store in memory, with the transactions and the waiting of a real one.

mod connection;
mod database;
mod days;
mod error;
mod letters;
mod started;
mod unit;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::task::yield_now;

pub use connection::{MemoryConnection, MemoryRow};
pub use error::MemoryError;
pub use unit::MemoryUnit;

use self::database::{Database, KnownConsumer, State};
use crate::clock::Clock;
use crate::crash_guard::{ProcessId, Started};
use crate::day::{Day, DaysFrom};
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::letters::DeadLetters;
use crate::store::{Begin, Blame, ConsumerId, Maintained, Prior, Settled, Store, StoreError};
use crate::window::Window;

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

    /// Sets the database's clock, which follows tokio's time from there on. A new database's has the
    /// time of day. It alone decides days, ages and the floor.
    pub fn set_now(&self, now: SystemTime) {
        self.database.state().clock = Clock::at(now);
    }

    /// The time by the database's clock.
    pub fn now(&self) -> SystemTime {
        self.database.state().clock.now()
    }

    /// Sets how many days the inbox remembers, from the next round of maintenance on. Default 8.
    pub fn set_window_days(&self, days: u32) {
        self.database.state().memory.set_window(days);
    }

    /// The first day that is still remembered.
    pub fn floor(&self) -> Day {
        self.database.state().memory.floor()
    }

    /// What the inbox says became of an event; `None` when nothing did.
    pub fn outcome(&self, consumer: &str, key: &EventKey) -> Option<Settled> {
        let state = self.database.state();
        Some(state.find(consumer, key)?.settled.clone())
    }

    /// The fingerprint that is stored with an event's key.
    pub fn fingerprint(&self, consumer: &str, key: &EventKey) -> Option<Fingerprint16> {
        self.database.state().find(consumer, key)?.fingerprint
    }

    /// The whole inbox of a consumer, in the order of the keys.
    pub fn inbox(&self, consumer: &str) -> Vec<(EventKey, Settled)> {
        let state = self.database.state();
        let consumer = state.consumers.get(consumer).map(|known| known.id);
        let rows = state.inbox.iter();
        rows.filter(|((owner, ..), _)| Some(*owner) == consumer)
            .map(|((_, key, _), row)| (key.clone(), row.settled.clone()))
            .collect()
    }

    /// The dead letters of all consumers, and how often each was set aside.
    pub fn dead_letters(&self) -> Vec<(DeadLetter, u32)> {
        self.database
            .state()
            .dead_letters
            .values()
            .map(|row| (row.letter.clone(), row.deliveries))
            .collect()
    }

    /// The retry row of an event.
    pub fn attempts(&self, consumer: &str, key: &EventKey) -> Option<Prior> {
        let state = self.database.state();
        let consumer = state.consumers.get(consumer)?.id;
        Some(state.retries.get(&(consumer, key.clone()))?.prior())
    }

    /// What the crash guard has written down and not forgotten, of all consumers.
    pub fn started(&self) -> Vec<(EventKey, Started)> {
        let state = self.database.state();
        let rows = state.started.iter();
        rows.map(|((_, key), row)| (key.clone(), *row)).collect()
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

    /// The state, unless the database is away.
    fn up(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(state)
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

    async fn open(&self, consumer: &str, days: DaysFrom) -> Result<ConsumerId, StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        let id = ConsumerId(i32::try_from(state.consumers.len()).unwrap_or(i32::MAX));
        let known = (state.consumers.entry(consumer.into())).or_insert(KnownConsumer { id, days });
        days.check_against(known.days.as_str(), consumer)?;
        Ok(known.id)
    }

    async fn begin(&self, begin: Begin) -> Result<MemoryUnit, StoreError> {
        yield_now().await;
        let connection = MemoryConnection::begin(Arc::clone(&self.database), begin.consumer)?;
        Ok(MemoryUnit::new(connection, begin))
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

    async fn maintain(&self) -> Result<Maintained, StoreError> {
        self.sweep_retries().await?;
        let mut state = self.up()?;
        Ok(state.maintain())
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

    async fn note_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(state.note_started(consumer, process, keys))
    }

    async fn find_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Started>, StoreError> {
        yield_now().await;
        let state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(state.started.get(&(consumer, key.clone())).copied())
    }

    async fn put_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        started: Started,
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        state.started.insert((consumer, key.clone()), started);
        Ok(())
    }

    async fn forget_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        for key in keys {
            state.forget_started(consumer, process, key);
        }
        Ok(())
    }

    async fn window(&self) -> Result<Window, StoreError> {
        yield_now().await;
        let state = self.database.state();
        state.check_up().map_err(StoreError::rolled_back)?;
        Ok(Window::Days(state.memory.window_days()))
    }

    fn max_units(&self) -> Option<usize> {
        self.max_units
    }
}
