//! Dead letters as operators and the runtime see them once they are stored.

mod row;

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

pub use self::row::{LetterRow, micros, time_of_micros};

use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::delivery::{Order, Position};
use crate::event_key::{EventId, EventKey, Tenant};
use crate::store::{ConsumerId, StoreError};

/// The dead letters of a database, of all its consumers.
///
/// A letter is redriven in two steps. [`request_redrive`](DeadLetters::request_redrive) marks it;
/// then whoever has the handler runs it, in a unit of its own: a running consumer of its name
/// beside everything else, or [`Redrive`](crate::Redrive) in a program made for it.
///
/// # Contract
/// 1. Letters are listed in the order in which they were set aside, which is that of their ids.
/// 2. What a filter says must all hold; what it does not say, anything does. Its text is looked for
///    regardless of case, and as it is: no character in it is special.
/// 3. A letter that is not whole, and a mismatch that is not asked for as new, is not marked, and
///    the answer says so; all others that the filter finds are.
/// 4. Marking what is marked already starts its attempts again.
/// 5. A failed redrive leaves the letter with its last error, and counts; without a further wait
///    the letter is not marked any more.
/// 6. Retry rows of events that are settled are swept away; those of others stay.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// The letters that a filter finds, without what is large.
    async fn list_letters(&self, filter: &LetterFilter) -> Result<Vec<LetterSummary>, StoreError>;

    /// One letter, whole; `None` when there is none (any more).
    async fn show_letter(&self, id: LetterId) -> Result<Option<Letter>, StoreError>;

    /// Deletes the letters that a filter finds, for good, and says how many. An event whose inbox
    /// row says that it is dead stays so: further deliveries of it are duplicates.
    async fn discard_letters(&self, filter: &LetterFilter) -> Result<u64, StoreError>;

    /// Marks the letters that a filter finds, to be redriven.
    async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<Requested, StoreError>;

    /// Takes the marks of the letters that a filter finds away again, and says of how many.
    async fn cancel_redrive(&self, filter: &LetterFilter) -> Result<u64, StoreError>;

    /// The consumer's marked letters behind a given one, in order, also those that have to wait;
    /// at most `limit`. The runtime calls it.
    async fn requested_redrives(
        &self,
        consumer: ConsumerId,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError>;

    /// Notes a failed redrive of a letter, in a transaction of its own. It is tried again after
    /// `wait`; `None` takes the mark away. The runtime calls it.
    async fn redrive_failed(
        &self,
        id: LetterId,
        error: &str,
        wait: Option<Duration>,
    ) -> Result<(), StoreError>;

    /// Deletes retry rows of events that another process has settled, and says how many; part of
    /// every round of maintenance.
    async fn sweep_retries(&self) -> Result<u64, StoreError>;
}

/// Names a dead letter in its database. A letter that is set aside later has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId(pub i64);

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A dead letter as it is stored. Stores make it.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its name.
    pub id: LetterId,
    /// The consumer that set it aside.
    pub consumer: Box<str>,
    /// What was set aside. Its `attempts` and `error` are the last ones, of redrives too.
    pub letter: DeadLetter,
    /// When it was first set aside.
    pub first_at: SystemTime,
    /// When it was last set aside, or last failed.
    pub last_at: SystemTime,
    /// How often it was set aside.
    pub deliveries: u32,
    /// Set while it is marked to be redriven.
    pub redrive: Option<RedriveRequest>,
}

/// A dead letter in a list: without payload and headers. Stores make it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Letter and DeadLetter")]
pub struct LetterSummary {
    pub id: LetterId,
    pub consumer: Box<str>,
    pub kind: DeadLetterKind,
    pub event: Option<EventKey>,
    pub position: Position,
    pub key: Option<Bytes>,
    /// How many bytes the payload had, those that were cut off included; `None` for a tombstone.
    pub payload_len: Option<u64>,
    /// Whether something was cut off, so that it cannot be redriven.
    pub is_cut: bool,
    pub attempts: u32,
    pub error: String,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    pub deliveries: u32,
    pub redrive: Option<RedriveRequest>,
}

/// That a letter is to be redriven. Stores make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedriveRequest {
    /// When it was asked for.
    pub requested_at: SystemTime,
    /// As what.
    pub redrive_as: RedriveAs,
    /// Attempts that have failed since.
    pub attempts: u32,
    /// When the next one is due.
    pub due_at: SystemTime,
}

/// As what an event is redriven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedriveAs {
    /// As the event that it is. Refused when its day is forgotten, since it may have been settled
    /// before; and for a mismatch, whose event key is settled.
    #[default]
    Itself,
    /// As a new event. One whose day is forgotten is filed as if it had none of its own; whether it
    /// took effect before, nobody knows. A mismatch gets an event key of its own, made of its key
    /// and its content, so that the same content is the same event however often it comes.
    New,
}

/// A letter that waits to be redriven. Stores make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedRedrive {
    /// Its name.
    pub id: LetterId,
    /// Its event key, if it had a readable one.
    pub event: Option<EventKey>,
    /// Where it was.
    pub position: Position,
    /// What it had to be handled in order with.
    pub order: Order,
    /// The record key.
    pub key: Option<Bytes>,
    /// See [`DeadLetter::lane`].
    pub lane: Option<[u8; 16]>,
    /// As what.
    pub redrive_as: RedriveAs,
    /// Attempts that have failed since it was asked for.
    pub attempts: u32,
    /// How long it has to wait yet, by the database's clock.
    pub wait: Duration,
}

/// Which letters are meant. Empty, it finds all letters of all consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LetterFilter {
    /// Those of this consumer.
    pub consumer: Option<Box<str>>,
    /// Those of these names; all when it is empty.
    pub ids: Vec<LetterId>,
    /// Those of these kinds; all when it is empty.
    pub kinds: Vec<DeadLetterKind>,
    /// Those first set aside at this time or later.
    pub since: Option<SystemTime>,
    /// Those first set aside before this time.
    pub until: Option<SystemTime>,
    /// Those whose error has this text in it.
    pub error: Option<Box<str>>,
    /// Those of this record key.
    pub key: Option<Bytes>,
    /// Those of this event id.
    pub event_id: Option<EventId>,
    /// Those of this tenant.
    pub tenant: Option<Tenant>,
    /// Those of this topic or queue.
    pub source: Option<Box<str>>,
    /// Those behind this one: the last of the page before.
    pub after: Option<LetterId>,
    /// At most so many, the first ones.
    pub limit: Option<u32>,
}

impl LetterFilter {
    /// All letters of a consumer.
    pub fn of(consumer: impl Into<Box<str>>) -> Self {
        Self {
            consumer: Some(consumer.into()),
            ..Self::default()
        }
    }

    /// One letter.
    pub fn one(id: LetterId) -> Self {
        Self {
            ids: vec![id],
            ..Self::default()
        }
    }
}

/// What became of a request to redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// How many letters are marked now.
    pub requested: u64,
    /// Those that cannot be redriven so, and why.
    pub refused: Vec<(LetterId, Refusal)>,
}

/// Why a letter is not redriven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not whole.
    #[error(
        "a part of it was too large to be kept: send the event again from where it was, and discard \
         the letter"
    )]
    Cut,
    /// Its event key is settled, by an event of other content.
    #[error(
        "its event key is settled, by an event of other content: redrive it as new, or discard it"
    )]
    Mismatch,
}

impl Refusal {
    /// Why a letter cannot be redriven so; `None` when it can.
    pub fn of(kind: DeadLetterKind, is_cut: bool, redrive_as: RedriveAs) -> Option<Self> {
        if is_cut {
            return Some(Self::Cut);
        }
        let needs_a_key = kind == DeadLetterKind::Mismatch && redrive_as == RedriveAs::Itself;
        needs_a_key.then_some(Self::Mismatch)
    }
}
