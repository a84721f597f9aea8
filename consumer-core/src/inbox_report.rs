//! What an inbox holds, for people.

use crate::day::Day;
use crate::store::ConsumerId;
use crate::window::Window;

/// What an inbox holds and for how long, as its database tells at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxReport {
    /// How long a settled event key is remembered.
    pub window: Window,
    /// The first day that is still remembered; `None` where nothing is forgotten.
    pub floor: Option<Day>,
    /// The day that it is, by the database's clock.
    pub today: Day,
    /// By name.
    pub consumers: Vec<ConsumerReport>,
    /// Oldest first, and own days before open periods.
    pub parts: Vec<InboxPart>,
    /// What all of it takes on the disk.
    pub bytes: u64,
}

impl InboxReport {
    /// A report that says nothing yet.
    pub fn new(today: Day) -> Self {
        Self {
            window: Window::Unlimited,
            floor: None,
            today,
            consumers: Vec::new(),
            parts: Vec::new(),
            bytes: 0,
        }
    }

    /// How many rows all parts have, as far as is known.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }
}

/// What is known of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerReport {
    /// Its number.
    pub id: ConsumerId,
    /// Its name.
    pub name: String,
    /// Where its events' days come from: [`DaysFrom::as_str`](crate::DaysFrom::as_str).
    pub days_from: String,
    /// How many of its events have failed and are not settled.
    pub failed: u64,
    /// How many dead letters it has.
    pub dead_letters: u64,
}

/// A part of the inbox that is forgotten as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxPart {
    /// What it holds.
    pub kind: InboxPartKind,
    /// The day that it is of, or the one that its period began on.
    pub day: Day,
    /// How many rows: estimated where the database keeps a count of its own.
    pub rows: u64,
    /// What it takes on the disk, indexes included; `None` where parts share one table.
    pub bytes: Option<u64>,
}

/// What a part of the inbox holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxPartKind {
    /// Events with a day of their own.
    OwnDay,
    /// Events without one.
    OpenPeriod,
    /// Both.
    Any,
}

impl InboxPartKind {
    /// Its name: `own_day`, `open_period` or `any`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OwnDay => "own_day",
            Self::OpenPeriod => "open_period",
            Self::Any => "any",
        }
    }
}
