//! A delivery on its way, and what became of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::config::ConsumerConfig;
use crate::claim::Claim;
use crate::delivery::{AssignmentId, Delivery};
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::identify::Unidentified;
use crate::lanes::{LaneKey, Lanes};
use crate::store::Settled;

/// A delivery that has been admitted.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) delivery: Delivery,
    pub(super) key: Result<EventKey, Unidentified>,
    /// `None` unless the consumer takes fingerprints.
    pub(super) fingerprint: Option<Fingerprint16>,
    pub(super) bytes: usize,
    /// Cancelled when the consumer stops or the assignment is taken away.
    pub(super) cancelled: CancellationToken,
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
        let fingerprint = match key {
            Ok(_) => config.fingerprint.of(delivery.payload.as_deref()),
            Err(_) => None,
        };
        Self {
            key,
            fingerprint,
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

    /// What a unit claims for it; `None` without a readable event key.
    pub(super) fn claim(&self) -> Option<Claim> {
        let key = self.key.as_ref().ok()?.clone();
        Some(Claim::new(key).with_fingerprint(self.fingerprint))
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
    Duplicate(Settled),
    Rejected {
        reason: Box<str>,
    },
    DeadLettered,
    /// Another event has its key; set aside as well.
    Mismatched,
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
            | Self::Duplicate(_)
            | Self::Rejected { .. }
            | Self::DeadLettered
            | Self::Mismatched => true,
            Self::Failed { .. } | Self::NoRoom | Self::Held { .. } | Self::NotBegun => false,
        }
    }

    /// What the inbox row of its key says, for those that follow it.
    pub(super) fn outcome(&self) -> Option<Settled> {
        match self {
            Self::Applied { reply } => Some(Settled::Done {
                reply: reply.clone(),
            }),
            Self::Duplicate(settled) => Some(settled.clone()),
            Self::Rejected { reason } => Some(Settled::Rejected {
                reason: reason.clone(),
            }),
            Self::DeadLettered => Some(Settled::Dead),
            Self::Mismatched
            | Self::Failed { .. }
            | Self::NoRoom
            | Self::Held { .. }
            | Self::NotBegun => None,
        }
    }
}
