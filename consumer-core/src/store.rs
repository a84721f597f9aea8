//! The seam to databases: the inbox, and one transaction for a batch of events.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::claim::Claim;
use crate::crash_guard::{Mark, ProcessId};
use crate::day::{Day, DaysFrom};
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::handler::one_line;

/// A database that holds the inbox beside the user's own tables.
///
/// # Contract
/// 1. A key is [`Verdict::Duplicate`] if, and only if, a unit that claimed it has committed.
/// 2. Of units that claim one key at the same time, exactly one that commits saw it `Fresh`; the
///    others wait, and see `Fresh` when the first rolls back or gives its claim back.
/// 3. Dropping a unit rolls it back, at whatever await point it was, and leaves no open transaction
///    in the pool.
/// 4. What a unit's connection wrote, what was staged, recorded and set aside, and its claims commit
///    together or not at all.
/// 5. [`Unit::commit`] answers `Ok` only when the transaction that made the claims has committed.
/// 6. An error of `commit` is [`StoreError::RolledBack`] only when it is certain.
/// 7. Ids are compared by their bytes, whatever the database's collation.
/// 8. The transaction of a frozen process ends by a deadline that the server enforces (where there
///    is a server).
/// 9. A claim's fingerprint is stored with the key as it is, or nothing where it has none. A claim
///    of a settled key whose stored fingerprint contradicts its own is a [`Verdict::Mismatch`]
///    ([`Claim::verdict_on`] decides), and leaves the row as it was.
/// 10. What was recorded comes back with every duplicate as it was: a reply byte for byte, an empty
///     one as empty and none as none, a rejection with its reason.
/// 11. A mark is there once [`Store::mark`] or [`Store::put_mark`] has answered, whatever becomes of
///     the process; it holds up no claim, and no claim holds it up. Where the unit that removes it
///     rolls back, it stays.
#[async_trait]
pub trait Store: Clone + fmt::Debug + Send + Sync + 'static {
    /// What [`Context::db`](crate::Context::db) lends to the handler.
    type Connection: Send;
    /// What a handler can stage: a typed row that the unit writes with all others of its table.
    type Row: Send + 'static;
    /// A transaction that has begun.
    type Unit: Unit<Connection = Self::Connection, Row = Self::Row> + 'static;

    /// Checks that the database is fit (migrated, durable) and gives the consumer its number. The
    /// first to open a consumer decides where its events' days come from.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for what will not go away by itself; also when the consumer's
    /// days came from elsewhere before, since keys would be looked for where they are not.
    async fn open(&self, consumer: &str, days: DaysFrom) -> Result<ConsumerId, StoreError>;

    /// Begins a unit of work.
    ///
    /// # Errors
    /// When no connection is to be had or the transaction cannot begin: an outage.
    async fn begin(&self, begin: Begin) -> Result<Self::Unit, StoreError>;

    /// Charges an attempt to an event that failed standing alone, durably and in a transaction of
    /// its own, and returns how many it has had. `wait` is until the next one is due.
    async fn charge(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError>;

    /// Whose fault an error is that came out of this store's connection or from a unit. Asked about
    /// every error in the chain of a handler's failure; `None` when it is not the store's.
    fn blame(&self, error: &(dyn Error + 'static)) -> Option<Blame>;

    /// One round of maintenance: raises the floor, moves the open period, drops what is below the
    /// floor, and creates what will soon be needed. Every consumer calls it now and then, and so
    /// may anybody else, at any time, any number at once; each step is harmless when it is raced or
    /// killed. It never waits for a running unit.
    ///
    /// # Errors
    /// What did not work is tried again by the next round; nothing depends on any one of them.
    async fn maintain(&self) -> Result<Maintained, StoreError> {
        Ok(Maintained::default())
    }

    /// Adds to what is known of how old a consumer's duplicates are. Whether a call whose answer was
    /// lost took effect does not matter.
    ///
    /// # Errors
    /// An outage as a rule: keep the ages, and add them later.
    async fn note_duplicate_ages(
        &self,
        _consumer: ConsumerId,
        _ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    /// All that was added by [`note_duplicate_ages`](Store::note_duplicate_ages), by any process.
    ///
    /// # Errors
    /// When the database cannot be asked.
    async fn duplicate_ages(&self, _consumer: ConsumerId) -> Result<DuplicateAges, StoreError> {
        Ok(DuplicateAges::default())
    }

    /// Marks events whose handlers this process is about to run, in company, in a transaction of its
    /// own: once it answers, the marks outlive the process. Answers for each key, in the order
    /// given, whether it is marked. It is not when there is a mark already, unless that is this
    /// process's own, neither [`alone`](Mark::alone) nor with crashes: the crash guard's question
    /// whether an earlier process has begun the event and never said how it ended. Marks that are
    /// there stay as they are.
    ///
    /// Marks need not outlive the database: a store may keep them where a crash of the server loses
    /// them.
    ///
    /// # Errors
    /// By default [`StoreError::Misconfigured`]: the store has no crash guard.
    async fn mark(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        let _ = (consumer, process, keys);
        Err(no_crash_guard())
    }

    /// The mark on an event.
    ///
    /// # Errors
    /// As [`Store::mark`].
    async fn find_mark(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Mark>, StoreError> {
        let _ = (consumer, key);
        Err(no_crash_guard())
    }

    /// Puts a mark on an event, over what is there, and as durably as [`Store::mark`].
    ///
    /// # Errors
    /// As [`Store::mark`].
    async fn put_mark(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        mark: Mark,
    ) -> Result<(), StoreError> {
        let _ = (consumer, key, mark);
        Err(no_crash_guard())
    }

    /// Removes this process's marks from events; those of others stay. [`Unit::unmark`] does the
    /// same within a unit.
    ///
    /// # Errors
    /// As [`Store::mark`].
    async fn unmark(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        let _ = (consumer, process, keys);
        Err(no_crash_guard())
    }

    /// How many units may run at once; `None` when only the pool limits them.
    fn max_units(&self) -> Option<usize> {
        None
    }
}

/// One transaction, for a batch of events. Dropping it rolls it back.
///
/// The runtime calls [`claim`](Unit::claim) once and first, then lends
/// [`connection`](Unit::connection) to the handlers of fresh events, then writes what they staged,
/// gives back the claims of those that failed, records what is not plainly done, and commits.
#[async_trait]
pub trait Unit: Send + Sized {
    /// See [`Store::Connection`].
    type Connection: Send;
    /// See [`Store::Row`].
    type Row: Send;

    /// Claims keys by inserting them, and answers one verdict for each, in the order given. The keys
    /// are distinct; their order is free (the store sorts what it inserts).
    ///
    /// # Errors
    /// [`StoreError::Busy`] when another unit held one of the keys for too long. After any error
    /// the unit is only good for dropping.
    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, StoreError>;

    /// The transaction's connection.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Writes staged rows, one statement a table, tables in registered order, rows in the order
    /// given.
    async fn write(&mut self, rows: Vec<Self::Row>) -> Result<(), StoreError>;

    /// Sets the one savepoint that a handler runs in.
    async fn savepoint(&mut self) -> Result<(), StoreError>;

    /// Undoes all since the savepoint, and removes it.
    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError>;

    /// Keeps all since the savepoint, and removes it. Fails if a statement since then has failed.
    async fn release_savepoint(&mut self) -> Result<(), StoreError>;

    /// Gives claims back: units that wait for these keys see them `Fresh` once this one commits.
    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError>;

    /// Records outcomes other than plainly done. The keys are claimed by this unit.
    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError>;

    /// Writes dead letters. One whose source key is known already counts once more there.
    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError>;

    /// Deletes the retry rows of events that this unit settles.
    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError>;

    /// Removes this process's marks from events; see [`Store::unmark`].
    async fn unmark(&mut self, process: ProcessId, keys: &[EventKey]) -> Result<(), StoreError> {
        let _ = (process, keys);
        Err(no_crash_guard())
    }

    /// Commits, and verifies that it was the transaction of the claims that committed.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when it is certain that nothing happened,
    /// [`StoreError::HandlerEndedTransaction`] when a handler ended the transaction itself, and
    /// [`StoreError::Indeterminate`] for everything else.
    async fn commit(self) -> Result<(), StoreError>;

    /// Rolls back and gives the connection back clean. Errors mean nothing to the caller: the
    /// connection is closed then.
    async fn rollback(self);
}

fn no_crash_guard() -> StoreError {
    StoreError::misconfigured(
        "this store has no crash guard: remove `crash_guard` from the consumer, or use a store that \
         marks the events whose handlers have begun",
    )
}

/// The number that the store gave to a consumer's name; part of every inbox key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub i32);

/// How a unit of work begins.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Begin {
    /// Whose inbox.
    pub consumer: ConsumerId,
    /// How long the claim waits for a key that another unit holds.
    pub claim_wait: Duration,
    /// What becomes of events whose day is forgotten.
    pub late: Late,
}

/// What a claim answers for an event whose day is below the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Late {
    /// [`Verdict::TooLate`].
    #[default]
    Refuse,
    /// It is claimed in the open period, as if it had no day of its own, so that its redeliveries
    /// are duplicates. Whether it was settled before its day was forgotten, nobody knows.
    AsNew,
}

impl Begin {
    /// A unit for that consumer, with the usual wait of 500 ms.
    pub fn new(consumer: ConsumerId) -> Self {
        Self {
            consumer,
            claim_wait: Duration::from_millis(500),
            late: Late::default(),
        }
    }
}

/// What a round of maintenance has found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// The first day that is still remembered; `None` where the store forgets nothing.
    pub floor: Option<Day>,
    /// How far the inbox remembers back, in days.
    pub window_days: Option<u32>,
    /// Partitions (or what the store has of the kind) that were made.
    pub created: u64,
    /// Partitions that were dropped, or rows deleted where there are none.
    pub dropped: u64,
    /// Keys that an audit found under two days, whose effect may have happened twice: the producer
    /// has not repeated the event's time.
    pub doubled: u64,
    /// What has to wait, for a running unit or a rival, and is done by a later round.
    pub postponed: bool,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The unit holds the key: handle the event.
    Fresh(Prior),
    /// It was settled before.
    Duplicate {
        /// What became of it.
        settled: Settled,
        /// How long ago that was recorded, by the database's clock.
        age: Duration,
    },
    /// The key was settled before, by an event of other content: this one is another event that
    /// was given the same id.
    Mismatch {
        /// The claim's fingerprint.
        ours: Fingerprint16,
        /// The one that is stored with the key.
        theirs: Fingerprint16,
        /// What became of the event that was first.
        settled: Settled,
    },
    /// Its day is forgotten: whether it was settled before, nobody can say. The unit does not hold
    /// the key.
    TooLate {
        /// Its own day.
        day: Day,
        /// The first day that is still remembered.
        floor: Day,
    },
    /// Its day lies too far ahead to be true. The unit does not hold the key.
    Future {
        /// Its own day.
        day: Day,
        /// The last one that is accepted, by the database's clock.
        last: Day,
    },
}

/// What is known of a fresh event's earlier failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
    /// Attempts charged so far.
    pub attempts: u32,
    /// How long the next one has to wait yet, by the database's clock.
    pub wait: Duration,
    /// What the last one failed with.
    pub last_error: Option<Box<str>>,
}

/// What an inbox row says became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// Its effect is there.
    Done {
        /// What the handler answered, if it did; an empty answer is one.
        reply: Option<Bytes>,
    },
    /// The handler refused it, for a reason that will not change.
    Rejected {
        /// The handler's words, at most 1 KiB.
        reason: Box<str>,
    },
    /// It was set aside as a dead letter.
    Dead,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// An event's, for all the store can tell: a constraint, a bad value, a failed statement, a
    /// transaction that an earlier failed statement has aborted. Of which event the runtime finds
    /// out; nobody is charged who did not stand alone.
    Event,
    /// Nobody's: two transactions got in each other's way.
    Contention,
    /// Nobody's: the database cannot be reached, or does not take writes.
    Outage,
}

/// What went wrong, by what the caller does next.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another unit holds a key of the batch. Split the batch, or come back later.
    #[error("another unit of work holds an event key of this batch")]
    Busy,
    /// Certain: nothing of this unit happened. Run it again.
    #[error("the unit of work was rolled back")]
    RolledBack(#[source] Box<dyn Error + Send + Sync>),
    /// The answer to the commit was lost: it may have happened. Only claiming again tells.
    #[error("the commit may or may not have happened")]
    Indeterminate(#[source] Box<dyn Error + Send + Sync>),
    /// The handler committed or rolled back the unit's transaction. The guarantee is void for this
    /// batch, and the consumer stops.
    #[error(
        "a handler ended the unit's transaction itself (COMMIT or ROLLBACK); its writes and the inbox \
         row are not atomic: remove the statement, or use a savepoint"
    )]
    HandlerEndedTransaction,
    /// A person must change something; the message says what.
    #[error("{message}")]
    Misconfigured {
        /// What is wrong, and what to do.
        message: String,
        /// What the database said.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl StoreError {
    /// Something a person must change.
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::Misconfigured {
            message: message.into(),
            cause: None,
        }
    }

    /// A failure from before the commit was sent: certain to have left nothing.
    pub fn rolled_back(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::RolledBack(error.into())
    }

    /// A failure after the commit was sent.
    pub fn indeterminate(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Indeterminate(error.into())
    }
}

/// The error and its causes, as a person reads them.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(self))
    }
}
