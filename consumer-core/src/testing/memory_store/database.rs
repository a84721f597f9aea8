//! What has committed, and the locks of what has not.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::MemoryRow;
use super::days::{Memory, Place};
use super::error::MemoryError;
use super::letters::LetterRow;
use crate::clock::Clock;
use crate::crash_guard::{ProcessId, Started};
use crate::day::DaysFrom;
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::letters::LetterId;
use crate::store::{ConsumerId, Prior, Settled};

/// Everything that the clones of a store share.
#[derive(Debug, Default)]
pub(super) struct Database {
    state: Mutex<State>,
    /// Notified when locks are released.
    released: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) memory: Memory,
    pub(super) consumers: BTreeMap<String, KnownConsumer>,
    pub(super) inbox: BTreeMap<InboxKey, InboxRow>,
    pub(super) retries: BTreeMap<(ConsumerId, EventKey), Retry>,
    pub(super) dead_letters: BTreeMap<(ConsumerId, [u8; 32]), LetterRow>,
    pub(super) duplicate_ages: BTreeMap<ConsumerId, DuplicateAges>,
    pub(super) started: BTreeMap<(ConsumerId, EventKey), Started>,
    pub(super) tables: BTreeMap<String, Vec<String>>,
    pub(super) open: usize,
    pub(super) peak: usize,
    pub(super) commits: usize,
    down: bool,
    /// Which run of the database this is: a transaction of an earlier one is gone.
    run: u64,
    last_transaction: u64,
    last_letter: i64,
    locks: BTreeMap<Lock, TransactionId>,
    /// Which transaction waits for which.
    waits: BTreeMap<TransactionId, TransactionId>,
}

/// What is unique.
pub(super) type InboxKey = (ConsumerId, EventKey, Place);

#[derive(Debug)]
pub(super) struct KnownConsumer {
    pub(super) id: ConsumerId,
    pub(super) days: DaysFrom,
}

/// What names a transaction, and the run of the database that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TransactionId {
    run: u64,
    number: u64,
}

/// What only one transaction can insert at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lock {
    Key(InboxKey),
    Row(MemoryRow),
    Letter(LetterId),
}

/// Why a lock was not granted.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Its holder kept it for too long.
    TimedOut,
    Failed(MemoryError),
}

impl From<MemoryError> for NotLocked {
    fn from(error: MemoryError) -> Self {
        Self::Failed(error)
    }
}

/// What a transaction writes when it commits.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Claim(EventKey, Place, Option<Fingerprint16>),
    Unclaim(EventKey, Place),
    Outcome(EventKey, Place, Settled),
    Row(MemoryRow),
    Letter(Box<DeadLetter>),
    DeleteLetter(LetterId),
    Forget(EventKey),
    ForgetStarted(ProcessId, EventKey),
}

/// What the inbox holds beside the key.
#[derive(Clone, Debug)]
pub(super) struct InboxRow {
    pub(super) settled: Settled,
    pub(super) fingerprint: Option<Fingerprint16>,
    pub(super) recorded_at: SystemTime,
}

#[derive(Debug)]
pub(super) struct Retry {
    attempts: u32,
    last_error: Box<str>,
    due_at: Instant,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 0,
            last_error: Box::default(),
            due_at: Instant::now(),
        }
    }
}

impl Retry {
    pub(super) fn charge(&mut self, error: &str, wait: Duration) -> u32 {
        self.attempts += 1;
        self.last_error = error.into();
        self.due_at = Instant::now() + wait;
        self.attempts
    }

    pub(super) fn prior(&self) -> Prior {
        Prior {
            attempts: self.attempts,
            wait: self.due_at.saturating_duration_since(Instant::now()),
            last_error: Some(self.last_error.clone()),
        }
    }
}

impl Database {
    /// The state is whole between any two statements, so a panic elsewhere does not spoil it.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_down(&self, down: bool) {
        let mut state = self.state();
        if down && !state.down {
            state.run += 1;
            state.locks.clear();
            self.released.notify_waiters();
        }
        state.down = down;
    }

    pub(super) fn begin(&self) -> Result<TransactionId, MemoryError> {
        let mut state = self.state();
        state.check_up()?;
        state.open += 1;
        state.peak = state.peak.max(state.open);
        state.last_transaction += 1;
        Ok(TransactionId {
            run: state.run,
            number: state.last_transaction,
        })
    }

    /// Ends a transaction: its locks are free, and who waits for them looks again.
    pub(super) fn release(&self, transaction: TransactionId) {
        let mut state = self.state();
        state.locks.retain(|_, holder| *holder != transaction);
        self.released.notify_waiters();
    }

    /// Waits until the lock is ours.
    pub(super) async fn lock(
        &self,
        transaction: TransactionId,
        lock: Lock,
        wait: Duration,
    ) -> Result<(), NotLocked> {
        let deadline = Instant::now() + wait;
        loop {
            // It hears every release from here on, also before it is first polled.
            let released = self.released.notified();
            if self.state().try_lock(transaction, &lock)? {
                return Ok(());
            }
            let _waiting = Waiting(self, transaction);
            timeout_at(deadline, released)
                .await
                .map_err(|_| NotLocked::TimedOut)?;
        }
    }

    /// Takes a lock if nobody else has it.
    pub(super) fn lock_now(
        &self,
        transaction: TransactionId,
        lock: Lock,
    ) -> Result<bool, MemoryError> {
        let mut state = self.state();
        state.check_alive(transaction)?;
        Ok(*state.locks.entry(lock).or_insert(transaction) == transaction)
    }

    /// Gives one lock back before the end: the row was there already.
    pub(super) fn unlock(&self, transaction: TransactionId, lock: &Lock) {
        let mut state = self.state();
        if state.locks.get(lock) == Some(&transaction) {
            state.locks.remove(lock);
        }
        self.released.notify_waiters();
    }
}

/// Strikes a transaction from the list of those that wait, also when its future is dropped.
struct Waiting<'d>(&'d Database, TransactionId);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waits.remove(&self.1);
    }
}

impl State {
    pub(super) fn check_up(&self) -> Result<(), MemoryError> {
        if self.down {
            Err(MemoryError::Unavailable)
        } else {
            Ok(())
        }
    }

    /// Whether a transaction still exists.
    pub(super) fn check_alive(&self, transaction: TransactionId) -> Result<(), MemoryError> {
        self.check_up()?;
        if self.run == transaction.run {
            Ok(())
        } else {
            Err(MemoryError::Unavailable)
        }
    }

    /// Takes the lock, or notes who is waited for.
    fn try_lock(&mut self, transaction: TransactionId, lock: &Lock) -> Result<bool, MemoryError> {
        self.check_alive(transaction)?;
        let holder = *self.locks.entry(lock.clone()).or_insert(transaction);
        if holder == transaction {
            return Ok(true);
        }
        let mut waited_for = holder;
        while let Some(next) = self.waits.get(&waited_for) {
            waited_for = *next;
            if waited_for == transaction {
                return Err(MemoryError::Deadlock);
            }
        }
        self.waits.insert(transaction, holder);
        Ok(false)
    }

    pub(super) fn apply(&mut self, consumer: ConsumerId, write: Write) {
        match write {
            Write::Claim(key, place, fingerprint) => {
                let row = InboxRow {
                    settled: Settled::Done { reply: None },
                    fingerprint,
                    recorded_at: self.clock.now(),
                };
                self.inbox.insert((consumer, key, place), row);
            }
            Write::Unclaim(key, place) => {
                self.inbox.remove(&(consumer, key, place));
            }
            Write::Outcome(key, place, settled) => {
                if let Some(row) = self.inbox.get_mut(&(consumer, key, place)) {
                    row.settled = settled;
                }
            }
            Write::Row(row) => self.tables.entry(row.table).or_default().push(row.text),
            Write::Letter(letter) => {
                let now = self.clock.now();
                let next = LetterId(self.last_letter + 1);
                match self.dead_letters.entry((consumer, letter.source_key)) {
                    Entry::Occupied(mut known) => known.get_mut().again(now),
                    Entry::Vacant(vacant) => {
                        self.last_letter = next.0;
                        vacant.insert(LetterRow::new(next, consumer, *letter, now));
                    }
                }
            }
            Write::ForgetStarted(process, key) => self.forget_started(consumer, process, &key),
            Write::DeleteLetter(id) => self.dead_letters.retain(|_, row| row.id != id),
            Write::Forget(key) => {
                self.retries.remove(&(consumer, key));
            }
        }
    }
}
