//! A delivery on its way, and what became of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::ConsumerConfig;
use crate::claim::Claim;
use crate::day::Day;
use crate::delivery::{AssignmentId, Delivery};
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::identify::{Unidentified, Untimed};
use crate::lanes::{LaneKey, Lanes};
use crate::store::Settled;

/// A delivery that has been admitted.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) delivery: Delivery,
    pub(super) key: Result<EventKey, Unidentified>,
    /// The day that every delivery of it repeats; `None` when it has none.
    pub(super) day: Result<Option<Day>, Untimed>,
    /// `None` unless the consumer takes fingerprints.
    pub(super) fingerprint: Option<Fingerprint16>,
    pub(super) bytes: usize,
    /// Cancelled when the consumer stops or the assignment is taken away.
    pub(super) cancelled: CancellationToken,
    pub(super) received_at: Instant,
    /// Its unit has outlived its assignment, and nothing follows it any more.
    pub(super) orphaned: AtomicBool,
    /// An earlier process may have ended of it, so it runs when nothing else does.
    pub(super) suspect: AtomicBool,
    pub(super) lanes: Lanes,
}

impl Item {
    /// Finds out what is to be known of a delivery before its event is claimed.
    pub(super) fn new(
        config: &ConsumerConfig,
        delivery: Delivery,
        cancelled: CancellationToken,
    ) -> Self {
        let key = config.identify(&delivery);
        let day = match &key {
            Ok(key) => config.day(key, &delivery),
            Err(_) => Ok(None),
        };
        let fingerprint = match key {
            Ok(_) => config.fingerprint.of(delivery.payload.as_deref()),
            Err(_) => None,
        };
        Self {
            key,
            day,
            fingerprint,
            received_at: Instant::now(),
            bytes: delivery.size(),
            cancelled,
            orphaned: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            lanes: config.lanes,
            delivery,
        }
    }

    pub(super) fn assignment(&self) -> AssignmentId {
        self.delivery.assignment
    }

    /// The key by which others follow it.
    pub(super) fn followed_by(&self) -> Option<&EventKey> {
        let key = self.key.as_ref().ok()?;
        (!self.orphaned.load(Ordering::Relaxed)).then_some(key)
    }

    /// What a unit claims for it; `None` without a readable event key, or without the day that its
    /// producer was to repeat.
    pub(super) fn claim(&self) -> Option<Claim> {
        let (key, day) = (self.key.as_ref().ok()?, *self.day.as_ref().ok()?);
        let claim = Claim::new(key.clone()).of_day(day);
        Some(claim.with_fingerprint(self.fingerprint))
    }

    /// On which day it was sent, as far as anybody knows.
    pub(super) fn sent_on(&self) -> Option<Day> {
        let own = || self.day.as_ref().ok().copied().flatten();
        self.delivery.published_at.map(Day::of).or_else(own)
    }

    /// Whether it shares the fate of another delivery of its event key. What was settled is settled
    /// for both if they have one content; what has left no trace of its key decides only about its
    /// equals.
    pub(super) fn shares(&self, first: &Self, fate: &Fate) -> bool {
        let same_day = match (&self.day, &first.day) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        self.fingerprint == first.fingerprint && (same_day || !fate.leaves_no_trace())
    }

    pub(super) fn lane(&self) -> LaneKey {
        let (assignment, delivery) = (self.assignment(), &self.delivery);
        LaneKey::of(
            assignment,
            &delivery.order,
            delivery.key.as_ref(),
            self.lanes,
        )
    }
}

/// What became of one delivery in a unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Applied {
        reply: Option<Bytes>,
    },
    Duplicate {
        settled: Settled,
        age: Duration,
    },
    Rejected {
        reason: Box<str>,
    },
    DeadLettered,
    /// Another event has its key; set aside as well.
    Mismatched,
    /// Set aside without a trace of its key: its day is forgotten,
    TooLate,
    /// or too far ahead,
    Future,
    /// or not to be read.
    Untimed,
    /// Its day is forgotten, and whether that is its own fault is not clear yet.
    Unsure,
    /// It failed, and runs again, alone.
    Failed {
        wait: Duration,
    },
    /// It would have to be set aside, and there is no room for another dead letter.
    NoRoom,
    /// An earlier attempt, perhaps of another process, asked for a longer wait.
    Held {
        wait: Duration,
    },
    /// An event before it in its lane has failed.
    NotBegun,
}

impl Fate {
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Applied { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::DeadLettered
            | Self::Mismatched
            | Self::TooLate
            | Self::Future
            | Self::Untimed => true,
            Self::Failed { .. }
            | Self::NoRoom
            | Self::Held { .. }
            | Self::NotBegun
            | Self::Unsure => false,
        }
    }

    /// Whether it was set aside, and the inbox knows nothing of it.
    pub(super) fn leaves_no_trace(&self) -> bool {
        matches!(
            self,
            Self::Mismatched | Self::TooLate | Self::Future | Self::Untimed
        )
    }

    /// What the inbox row of its key says, for those that follow it.
    pub(super) fn outcome(&self) -> Option<Settled> {
        match self {
            Self::Applied { reply } => Some(Settled::Done {
                reply: reply.clone(),
            }),
            Self::Duplicate { settled, .. } => Some(settled.clone()),
            Self::Rejected { reason } => Some(Settled::Rejected {
                reason: reason.clone(),
            }),
            Self::DeadLettered => Some(Settled::Dead),
            Self::Mismatched
            | Self::TooLate
            | Self::Future
            | Self::Untimed
            | Self::Failed { .. }
            | Self::NoRoom
            | Self::Held { .. }
            | Self::NotBegun
            | Self::Unsure => None,
        }
    }
}
