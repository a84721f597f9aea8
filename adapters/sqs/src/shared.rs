//! What the source, its receiver and its settler have in common.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::ledger::Ledger;

#[derive(Debug)]
pub(crate) struct Shared {
    ledger: Mutex<Ledger>,
    /// Wakes the settler: something has changed in the ledger.
    pub(crate) settled: Notify,
    gate: watch::Sender<Gate>,
    health: watch::Sender<Health>,
}

/// Whether receives may be issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// The runtime has enough.
    pub(crate) paused: bool,
    /// For good.
    pub(crate) stopped: bool,
    /// SQS does not take the settlements of what has been received: nothing more is received until
    /// it does, so that what it still grants goes to those.
    pub(crate) behind: bool,
}

impl Gate {
    pub(crate) fn is_open(self) -> bool {
        self == Self::default()
    }
}

/// Whether SQS is in reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) receiving: bool,
    pub(crate) settling: bool,
}

impl Health {
    pub(crate) fn is_good(self) -> bool {
        self.receiving && self.settling
    }
}

impl Shared {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            ledger: Mutex::new(ledger),
            settled: Notify::new(),
            gate: watch::Sender::default(),
            health: watch::Sender::new(Health {
                receiving: true,
                settling: true,
            }),
        }
    }

    /// Locked for a look or a change, never over an await. What holds it cannot panic half-way
    /// through a change that would matter to others, so a poisoned lock is as good as another.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.gate.borrow().stopped
    }

    pub(crate) fn set_gate(&self, change: impl FnOnce(&mut Gate)) {
        set(&self.gate, change);
    }

    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(crate) fn set_health(&self, change: impl FnOnce(&mut Health)) {
        set(&self.health, change);
    }
}

/// Changes a value, and wakes who waits only if that makes a difference.
fn set<T: Copy + PartialEq>(sender: &watch::Sender<T>, change: impl FnOnce(&mut T)) {
    sender.send_if_modified(|value| {
        let before = *value;
        change(value);
        *value != before
    });
}
