//! What a run has found out, until it is written.

use std::time::Duration;

use tracing::{debug, warn};

use super::Batch;
use super::handle::Handled;
use super::run::{Savepoints, Trouble};
use crate::consumer::item::{Fate, Item};
use crate::dead_letter::{DeadLetter, DeadLetterBounds, DeadLetterKind};
use crate::event_key::EventKey;
use crate::staged::Staged;
use crate::store::{Settled, StoreError, Unit};
use crate::telemetry::TARGET;

/// What a run has found out so far, and has yet to write.
pub(in crate::consumer) struct Progress<R> {
    /// Of each event of the batch so far.
    pub(super) fates: Vec<Fate>,
    pub(super) staged: Staged<R>,
    /// What handlers answered that have not had the connection: it holds in another transaction too.
    pub(super) answers: Vec<(usize, Handled)>,
    /// The events whose keys this unit holds, in order.
    claimed: Vec<(usize, EventKey)>,
    // What is to be written, each with the event that it is about.
    unclaim: Vec<(usize, EventKey)>,
    outcomes: Vec<(usize, (EventKey, Settled))>,
    pub(super) letters: Vec<(usize, DeadLetter)>,
    /// How many more letters there may be, once somebody has asked.
    pub(super) room: Option<u64>,
    forget: Vec<(usize, EventKey)>,
    /// Lanes of the batch in which an event has failed: nothing later of them may run.
    blocked: Vec<bool>,
    /// The unit holds claims or letters, so it must commit.
    pub(super) dirty: bool,
    pub(super) undone: bool,
    /// Attempts charged to the event handled last.
    pub(super) prior: u32,
    /// What the event said that failed last.
    pub(super) failure: Option<String>,
}

impl<R: Send + Sync> Progress<R> {
    pub(super) fn new(batch: &Batch) -> Self {
        let lanes = batch.lanes.last().map_or(0, |last| last + 1);
        Self {
            fates: Vec::with_capacity(batch.items.len()),
            staged: Staged::new(),
            answers: Vec::new(),
            claimed: Vec::with_capacity(batch.items.len()),
            unclaim: Vec::new(),
            outcomes: Vec::new(),
            letters: Vec::new(),
            room: None,
            forget: Vec::new(),
            blocked: vec![false; lanes],
            dirty: false,
            undone: false,
            prior: 0,
            failure: None,
        }
    }

    /// Takes note of what became of the next event of the batch.
    pub(super) fn push(&mut self, batch: &Batch, fate: Fate) {
        if !fate.is_settled() {
            self.blocked[batch.lanes[self.fates.len()]] = true;
        }
        self.fates.push(fate);
    }

    /// What became of an event is known better now.
    pub(super) fn replace(&mut self, batch: &Batch, at: usize, fate: Fate) {
        let settled = fate.is_settled();
        self.fates[at] = fate;
        if !settled {
            self.withdraw_behind(batch, at);
        }
    }

    /// The event has failed, so the later ones of its lane have not begun.
    fn withdraw_behind(&mut self, batch: &Batch, at: usize) {
        let lane = batch.lanes[at];
        self.blocked[lane] = true;
        for later in at + 1..self.fates.len() {
            if batch.lanes[later] == lane {
                self.withdraw(later, Fate::NotBegun);
            }
        }
    }

    pub(super) fn is_blocked(&self, lane: usize) -> bool {
        self.blocked[lane]
    }

    /// The unit holds the key.
    pub(super) fn claimed(&mut self, at: usize, key: &EventKey, attempts: u32) {
        self.dirty = true;
        self.prior = attempts;
        self.claimed.push((at, key.clone()));
    }

    /// Events whose rows could not be written have failed after all, and the later ones of their
    /// lanes have not begun.
    pub(super) fn withdraw_refused(&mut self, batch: &Batch) {
        for refused in self.staged.take_refused() {
            let position = &batch.items[refused.event].delivery.position;
            debug!(target: TARGET, %position, error = refused.error, "an event's rows cannot be written, and it runs alone");
            let wait = Duration::ZERO;
            self.withdraw(refused.event, Fate::Failed { wait });
            self.withdraw_behind(batch, refused.event);
            self.failure = Some(refused.error);
        }
    }

    /// There is no room for the event's letter: it is as if it had not begun, and neither have the
    /// later ones of its lane.
    pub(super) fn no_room(&mut self, batch: &Batch, at: usize) {
        self.withdraw(at, Fate::NoRoom);
        self.withdraw_behind(batch, at);
    }

    /// What was found out of an event holds no longer; its claim is given back.
    fn withdraw(&mut self, at: usize, fate: Fate) {
        self.fates[at] = fate;
        self.unclaim.retain(|&(other, _)| other != at);
        self.outcomes.retain(|&(other, _)| other != at);
        self.letters.retain(|&(other, _)| other != at);
        self.forget.retain(|&(other, _)| other != at);
        if let Ok(claimed) = self.claimed.binary_search_by_key(&at, |&(other, _)| other) {
            self.unclaim.push(self.claimed[claimed].clone());
        }
    }

    /// Undoes what one handler did: what it staged is dropped, what it wrote is rolled back to its
    /// savepoint.
    pub(super) async fn undo<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        at: usize,
        took_db: bool,
        savepoints: Savepoints,
    ) -> Result<(), Trouble> {
        if took_db {
            if savepoints == Savepoints::None {
                return Err(Trouble::MustUndo);
            }
            unit.rollback_to_savepoint().await?;
            self.undone = true;
        }
        self.staged.drop_rows_of(at);
        Ok(())
    }

    /// The event's claim is given back in this unit.
    pub(super) fn unclaim(&mut self, at: usize, key: &EventKey) {
        self.unclaim.push((at, key.clone()));
    }

    pub(super) fn record(&mut self, at: usize, key: &EventKey, settled: Settled) {
        self.outcomes.push((at, (key.clone(), settled)));
    }

    pub(super) fn set_aside(
        &mut self,
        (at, item): (usize, &Item),
        key: Option<&EventKey>,
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) {
        let letter = DeadLetter::new(&item.delivery, key.cloned(), kind, attempts, error)
            .with_fingerprint(item.fingerprint);
        self.set_aside_unclaimed(at, letter);
        if let Some(key) = key {
            self.record(at, key, Settled::Dead);
            self.forget(at, key, attempts);
        }
    }

    /// Sets aside what this unit holds no key of: another event has it, or its day is not
    /// remembered. The inbox stays as it is.
    pub(super) fn set_aside_unclaimed(&mut self, at: usize, letter: DeadLetter) {
        self.dirty = true;
        self.letters.push((at, letter));
    }

    /// Sets aside what was rejected, beside its outcome.
    pub(super) fn set_aside_rejected(
        &mut self,
        (at, item): (usize, &Item),
        key: &EventKey,
        attempts: u32,
        reason: &str,
    ) {
        let (key, kind) = (Some(key.clone()), DeadLetterKind::Rejected);
        let letter = DeadLetter::new(&item.delivery, key, kind, attempts, reason);
        self.set_aside_unclaimed(at, letter.with_fingerprint(item.fingerprint));
    }

    /// The event's retry row goes, whatever it says.
    pub(super) fn forget_for_sure(&mut self, at: usize, key: &EventKey) {
        self.forget.push((at, key.clone()));
    }

    /// A settled event's retry row goes with it; most have none.
    pub(super) fn forget(&mut self, at: usize, key: &EventKey, attempts: u32) {
        if attempts > 0 {
            self.forget.push((at, key.clone()));
        }
    }

    /// Writes all that is not plainly done.
    pub(super) async fn write_to<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        bounds: &DeadLetterBounds,
    ) -> Result<(), StoreError> {
        if !self.unclaim.is_empty() {
            unit.unclaim(&of_all(&mut self.unclaim)).await?;
        }
        if !self.outcomes.is_empty() {
            unit.record(&of_all(&mut self.outcomes)).await?;
        }
        if !self.letters.is_empty() {
            let letters = self.letters.iter().cloned();
            let letters: Vec<_> = letters.map(|(_, letter)| letter.within(bounds)).collect();
            unit.set_aside(&letters).await?;
        }
        if !self.forget.is_empty() {
            unit.forget_attempts(&of_all(&mut self.forget)).await?;
        }
        Ok(())
    }
}

fn of_all<T>(noted: &mut Vec<(usize, T)>) -> Vec<T> {
    noted.drain(..).map(|(_, what)| what).collect()
}

pub(super) fn log_dead_letter(letter: &DeadLetter) {
    // Set aside is not lost; what is lost would be an error.
    warn!(
        target: TARGET,
        event = letter.event.as_ref().map(tracing::field::display),
        position = %letter.position, kind = letter.kind.as_str(), attempts = letter.attempts,
        error = letter.error,
        "an event is set aside as a dead letter"
    );
}
