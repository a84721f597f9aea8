//! The seam to databases: the inbox, and one transaction for a batch of events.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use crate::claim::Claim;
use crate::crash_guard::{ProcessId, Started};
use crate::day::{Day, DaysFrom};
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::finding::Finding;
use crate::fingerprint::Fingerprint16;
use crate::handler::one_line;
use crate::letters::{DeadLetters, Letter, LetterId};
use crate::window::Window;

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
/// 11. Of units that take one letter at the same time, one gets it, and the others get none at once.
///     Nor does anybody get one that is not marked, has to wait yet, or stands behind another
///     marked one of its lane. A letter that a unit takes and deletes is gone if, and only if, the
///     unit commits.
/// 12. A key whose inbox row a unit takes back is `Fresh` to that unit's claim, and to others once
///     it commits without claiming the key again.
/// 13. Every repeat of an event has the day of the first, and a claim that has a day need not be
///     looked for under another; one that has none is looked for under every day that is
///     remembered. The database's clock decides what today is; a day after tomorrow is a
///     [`Verdict::Future`], and is not claimed.
/// 14. The floor only rises, and is recorded before anything is forgotten. A claim of a day below it
///     is never `Fresh`: it is a [`Verdict::TooLate`], and is not claimed.
/// 15. ... unless the unit began with [`Late::AsNew`]: then it is claimed as if it had no day.
/// 16. Where a consumer's days come from is kept with it, and another answer is refused.
/// 17. What [`Store::note_started`] and [`Store::put_started`] have answered is there, whatever
///     becomes of the process; it holds up no claim, and no claim holds it up. Where the unit that
///     forgets it rolls back, it stays.
#[async_trait]
pub trait Store: DeadLetters + Clone + fmt::Debug + Send + Sync + 'static {
    /// What [`Context::db`](crate::Context::db) lends to the handler.
    type Connection: Send;
    /// What a handler can stage: a typed row that the unit writes with all others of its table.
    type Row: Send + Sync + 'static;
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

    /// Writes down that this process is about to run these events' handlers, in company, in a
    /// transaction of its own: once it answers, that outlives the process. Answers for each key, in
    /// the order given, whether it is written down. It is not where something is already, unless
    /// that is this process's own, neither alone nor with crashes: an earlier
    /// process may have started the event and never said how it ended. What is there stays.
    ///
    /// It need not outlive the database: a crash of the server may lose it.
    ///
    /// # Errors
    /// By default [`StoreError::Misconfigured`]: the store has no crash guard.
    async fn note_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        let _ = (consumer, process, keys);
        Err(no_crash_guard())
    }

    /// What is written down of an event that was started.
    ///
    /// # Errors
    /// As [`Store::note_started`].
    async fn find_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Started>, StoreError> {
        let _ = (consumer, key);
        Err(no_crash_guard())
    }

    /// Writes this down of an event, over what is there, and as durably as
    /// [`Store::note_started`].
    ///
    /// # Errors
    /// As [`Store::note_started`].
    async fn put_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        started: Started,
    ) -> Result<(), StoreError> {
        let _ = (consumer, key, started);
        Err(no_crash_guard())
    }

    /// Forgets that this process has started these events; what others have started stays.
    /// [`Unit::forget_started`] does the same within a unit.
    ///
    /// # Errors
    /// As [`Store::note_started`].
    async fn forget_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        let _ = (consumer, process, keys);
        Err(no_crash_guard())
    }

    /// How long a settled event key is remembered; the default is a store that forgets nothing.
    /// Changes nothing, and needs no consumer to be open.
    ///
    /// # Errors
    /// When the database cannot be asked.
    async fn window(&self) -> Result<Window, StoreError> {
        Ok(Window::Unlimited)
    }

    /// Looks at the database's settings, the schema and the role's rights, for people. Changes
    /// nothing; what cannot be looked at is a finding too.
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
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
    type Row: Send + Sync;

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
    async fn write(&mut self, rows: &[Self::Row]) -> Result<(), StoreError>;

    /// Sets the one savepoint that a handler runs in.
    async fn savepoint(&mut self) -> Result<(), StoreError>;

    /// Undoes all since the savepoint, and removes it.
    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError>;

    /// Keeps all since the savepoint, and removes it. Fails if a statement since then has failed.
    async fn release_savepoint(&mut self) -> Result<(), StoreError>;

    /// How many rows this transaction has inserted, updated and deleted so far, in whatever units
    /// and of whatever tables, as long as it grows with each; `None` if that cannot be told. Only
    /// asked for checks in builds with debug assertions.
    async fn rows_written(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Gives claims back: units that wait for these keys see them `Fresh` once this one commits.
    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError>;

    /// Records outcomes other than plainly done. The keys are claimed by this unit.
    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError>;

    /// Writes dead letters. One whose source key is known already counts once more there.
    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError>;

    /// How many more letters the consumer may have if `limit` is the most, as this unit sees it.
    async fn room_for_letters(&mut self, limit: u64) -> Result<u64, StoreError>;

    /// Whether the consumer has a letter of that source key already.
    async fn has_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError>;

    /// Takes a letter that is marked to be redriven and due, for this unit alone. `None` when there
    /// is no such letter (any more), another unit has it, or an earlier one of its lane is marked.
    async fn take_letter(&mut self, id: LetterId) -> Result<Option<Letter>, StoreError>;

    /// Deletes a letter that this unit has taken.
    async fn delete_letter(&mut self, id: LetterId) -> Result<(), StoreError>;

    /// Takes back the inbox row of a key whose event was set aside: deletes it if its outcome is
    /// [`Settled::Dead`], or [`Settled::Rejected`] where that is asked for. Called before the claim
    /// of the same key.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when another unit held the row for too long.
    async fn reopen(&mut self, claim: &Claim, what: Reopen) -> Result<(), StoreError>;

    /// Deletes the retry rows of events that this unit settles.
    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError>;

    /// Forgets that this process has started these events; see [`Store::forget_started`].
    async fn forget_started(
        &mut self,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
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
         writes down which events were started",
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
    /// A unit for that consumer, whose claim waits for 500 ms.
    pub fn new(consumer: ConsumerId) -> Self {
        Self {
            consumer,
            claim_wait: Duration::from_millis(500),
            late: Late::default(),
        }
    }
}

/// Which inbox row [`Unit::reopen`] takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reopen {
    /// One of an event that was set aside.
    Dead,
    /// One of an event that was rejected, and set aside as well.
    Rejected,
}

/// What a round of maintenance has found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// The first day that is still remembered; `None` where the store forgets nothing.
    pub floor: Option<Day>,
    /// How far the inbox remembers back, in days.
    pub window_days: Option<u32>,
    /// The time by the database's clock. Where it is not told, the process's own has to do for what
    /// the runtime decides by time.
    pub now: Option<SystemTime>,
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

impl Settled {
    /// Its name: `done`, `rejected` or `dead`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Rejected { .. } => "rejected",
            Self::Dead => "dead",
        }
    }
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
