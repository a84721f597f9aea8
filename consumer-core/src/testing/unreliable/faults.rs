//! Which calls fail, and how.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::store::{Blame, StoreError};

/// How a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is gone before the commit is sent: certain that nothing happened.
    BeforeCommit,
    /// The database refuses the commit, as for a serialization failure: certain that nothing
    /// happened.
    DuringCommit,
    /// The commit never arrives, and nobody knows: indeterminate.
    LostBefore,
    /// It commits, and the answer is lost: indeterminate.
    AfterCommit,
    /// The answer is lost first, and the commit happens so much later: indeterminate, with the
    /// claims still held in the meantime.
    LateCommit(Duration),
}

/// A call that can fail, other than the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// [`Store::begin`](crate::Store::begin).
    Begin,
    /// [`Store::charge`](crate::Store::charge).
    Charge,
    /// [`Store::note_started`](crate::Store::note_started) and [`Store::put_started`](crate::Store::put_started).
    NoteStarted,
    /// [`Store::forget_started`](crate::Store::forget_started).
    ForgetStarted,
    /// [`Store::maintain`](crate::Store::maintain).
    Maintain,
    /// [`Unit::claim`](crate::Unit::claim).
    Claim,
    /// [`Unit::write`](crate::Unit::write).
    Write,
    /// [`Unit::record`](crate::Unit::record).
    Record,
    /// [`Unit::set_aside`](crate::Unit::set_aside).
    SetAside,
    /// What a unit asks about letters, or does to them, beside setting them aside.
    Letters,
    /// [`DeadLetters::redrive_failed`](crate::DeadLetters::redrive_failed).
    RedriveFailed,
}

/// A fault that took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Injected {
    /// A call failed, and the store blames this.
    Call(Call, Blame),
    /// A commit failed like this.
    Commit(Fault),
}

/// What a call fails with.
#[derive(Clone, Debug, thiserror::Error)]
#[error("an injected fault: {what}")]
pub struct InjectedError {
    what: String,
    blame: Blame,
}

impl InjectedError {
    fn new(what: impl std::fmt::Debug, blame: Blame) -> Self {
        Self {
            what: format!("{what:?}"),
            blame,
        }
    }

    pub(super) fn blame(&self) -> Blame {
        self.blame
    }
}

impl Fault {
    pub(super) fn error(self) -> StoreError {
        match self {
            Self::BeforeCommit => StoreError::rolled_back(InjectedError::new(self, Blame::Outage)),
            Self::DuringCommit => {
                StoreError::rolled_back(InjectedError::new(self, Blame::Contention))
            }
            Self::LostBefore | Self::AfterCommit | Self::LateCommit(_) => {
                StoreError::indeterminate(InjectedError::new(self, Blame::Outage))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Faults {
    rng: StdRng,
    pub(super) probability: f64,
    pub(super) scripted: VecDeque<(Call, Blame)>,
    pub(super) scripted_commits: VecDeque<Fault>,
    pub(super) injected: Vec<Injected>,
}

impl Faults {
    pub(super) fn new(seed: u64, probability: f64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            probability,
            scripted: VecDeque::new(),
            scripted_commits: VecDeque::new(),
            injected: Vec::new(),
        }
    }

    pub(super) fn call(&mut self, call: Call) -> Result<(), StoreError> {
        let scripted = self
            .scripted
            .iter()
            .position(|(scripted, _)| *scripted == call);
        let scripted = scripted.and_then(|place| self.scripted.remove(place));
        let fault = scripted.map(|(_, blame)| blame);
        // At random nobody's event is blamed: one that is would end as a dead letter.
        let Some(blame) = fault.or_else(|| self.at_random(&[Blame::Outage, Blame::Contention]))
        else {
            return Ok(());
        };
        self.injected.push(Injected::Call(call, blame));
        Err(StoreError::rolled_back(InjectedError::new(call, blame)))
    }

    pub(super) fn commit(&mut self) -> Option<Fault> {
        const ANY: [Fault; 5] = [
            Fault::BeforeCommit,
            Fault::DuringCommit,
            Fault::LostBefore,
            Fault::AfterCommit,
            Fault::LateCommit(Duration::from_millis(100)),
        ];
        let fault = self
            .scripted_commits
            .pop_front()
            .or_else(|| self.at_random(&ANY))?;
        self.injected.push(Injected::Commit(fault));
        Some(fault)
    }

    fn at_random<T: Copy>(&mut self, faults: &[T]) -> Option<T> {
        let fails = self.rng.random_bool(self.probability);
        if fails {
            faults.choose(&mut self.rng).copied()
        } else {
            None
        }
    }
}
