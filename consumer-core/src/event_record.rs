//! What a database knows of an event, for people who look one up.

use std::time::SystemTime;

use crate::day::Day;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::letters::LetterSummary;
use crate::store::Settled;

/// All that a database knows of one event key of one consumer. It decides nothing: only a claim
/// tells whether an event is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventRecord {
    /// The consumer's name.
    pub consumer: String,
    /// The tenant and the event id.
    pub key: EventKey,
    /// Its inbox rows, oldest first: none before the event is settled, and one after it. More than
    /// one mean that its effect may have happened as often.
    pub settled: Vec<SettledRecord>,
    /// Its failed attempts, while it is not settled.
    pub failed: Option<FailedRecord>,
    /// Its dead letters, oldest first.
    pub dead_letters: Vec<LetterSummary>,
}

impl EventRecord {
    /// A record that says nothing yet.
    pub fn new(consumer: impl Into<String>, key: EventKey) -> Self {
        Self {
            consumer: consumer.into(),
            key,
            settled: Vec::new(),
            failed: None,
            dead_letters: Vec::new(),
        }
    }
}

/// What an inbox row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledRecord {
    /// Where it is kept.
    pub filed: Filed,
    /// What became of the event.
    pub outcome: Settled,
    /// The fingerprint of its content, where one was taken.
    pub fingerprint: Option<Fingerprint16>,
    /// When it was recorded, by the database's clock.
    pub recorded_at: SystemTime,
}

/// Where an inbox row is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filed {
    /// Under the event's own day.
    OwnDay(Day),
    /// Under the open period that began on that day: the event has no day of its own, or came when
    /// its own was forgotten.
    OpenPeriod(Day),
}

/// What is known of the failures of an event that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRecord {
    /// Attempts charged so far.
    pub attempts: u32,
    /// When the next one is due, by the database's clock.
    pub next_attempt_at: SystemTime,
    /// What the last one failed with.
    pub last_error: String,
}
