//! A delivery on its way, and what became of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::delivery::{AssignmentId, Delivery, Order};
use crate::event_key::EventKey;
use crate::identify::Unidentified;
use crate::lanes::LaneKey;

/// A delivery that has been admitted.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) delivery: Delivery,
    pub(super) key: Result<EventKey, Unidentified>,
    pub(super) bytes: usize,
    /// Cancelled when the consumer stops or the assignment is taken away.
    pub(super) cancelled: CancellationToken,
    /// Its unit has outlived its assignment, and nothing follows it any more.
    pub(super) orphaned: AtomicBool,
}

impl Item {
    pub(super) fn assignment(&self) -> AssignmentId {
        self.delivery.assignment
    }

    /// The key by which others follow it.
    pub(super) fn followed_by(&self) -> Option<&EventKey> {
        let key = self.key.as_ref().ok()?;
        (!self.orphaned.load(Ordering::Relaxed)).then_some(key)
    }

    pub(super) fn lane(&self) -> LaneKey {
        let assignment = self.assignment();
        match &self.delivery.order {
            Order::Assignment => LaneKey::Assignment(assignment),
            Order::Group(group) => LaneKey::Group(assignment, group.clone()),
            Order::None => LaneKey::Alone(assignment),
        }
    }
}

/// What became of one delivery in a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Applied,
    Duplicate,
    Rejected,
    DeadLettered,
    /// It failed, and runs again, alone.
    Failed {
        wait: Duration,
    },
    /// An earlier attempt, perhaps of another process, asked for a longer wait.
    Held {
        wait: Duration,
    },
    /// An event before it in its lane has failed.
    NotBegun,
}

impl Fate {
    pub(super) fn is_settled(self) -> bool {
        match self {
            Self::Applied | Self::Duplicate | Self::Rejected | Self::DeadLettered => true,
            Self::Failed { .. } | Self::Held { .. } | Self::NotBegun => false,
        }
    }
}
