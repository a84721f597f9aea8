//! What a run has found out, until it is written.

use tracing::warn;

use super::Batch;
use super::run::{Savepoints, Trouble};
use crate::consumer::item::{Fate, Item};
use crate::context::Staged;
use crate::dead_letter::{DeadLetter, DeadLetterBounds, DeadLetterKind};
use crate::event_key::EventKey;
use crate::store::{Settled, Unit};
use crate::telemetry::TARGET;

/// What a run has found out so far, and has yet to write.
pub(super) struct Progress<R> {
    pub(super) fates: Vec<Fate>,
    pub(super) staged: Staged<R>,
    pub(super) unclaim: Vec<EventKey>,
    pub(super) outcomes: Vec<(EventKey, Settled)>,
    pub(super) letters: Vec<DeadLetter>,
    /// How many more letters there may be, once somebody has asked.
    pub(super) room: Option<u64>,
    pub(super) forget: Vec<EventKey>,
    /// Lanes of the batch in which an event has failed: nothing later of them may run.
    pub(super) blocked: Vec<usize>,
    /// The unit holds claims or letters, so it must commit.
    pub(super) dirty: bool,
    pub(super) undone: bool,
    /// Attempts charged to the event handled last.
    pub(super) prior: u32,
    /// A handler was called.
    pub(super) handled: bool,
    /// What the event said that failed last.
    pub(super) failure: Option<String>,
}

/// How much was to be written before one event.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) letters: usize,
    outcomes: usize,
    forget: usize,
}

impl<R: Send> Progress<R> {
    pub(super) fn new(batch: &Batch) -> Self {
        Self {
            fates: Vec::with_capacity(batch.items.len()),
            staged: Staged::new(),
            unclaim: Vec::new(),
            outcomes: Vec::new(),
            letters: Vec::new(),
            room: None,
            forget: Vec::new(),
            blocked: Vec::new(),
            dirty: false,
            undone: false,
            prior: 0,
            handled: false,
            failure: None,
        }
    }

    /// Undoes what one handler did: what it staged is dropped, what it wrote is rolled back to its
    /// savepoint.
    pub(super) async fn undo<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        mark: usize,
        took_db: bool,
        savepoints: Savepoints,
    ) -> Result<(), Trouble> {
        match (took_db, savepoints) {
            (false, _) => self.staged.truncate(mark),
            (true, Savepoints::None) => return Err(Trouble::MustUndo),
            (true, Savepoints::Around) => {
                // All that was staged before has been written ahead of the savepoint.
                self.staged.truncate(0);
                unit.rollback_to_savepoint().await?;
                self.undone = true;
            }
        }
        Ok(())
    }

    pub(super) fn set_aside(
        &mut self,
        item: &Item,
        key: Option<&EventKey>,
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) {
        self.dirty = true;
        let letter = DeadLetter::new(&item.delivery, key.cloned(), kind, attempts, error)
            .with_fingerprint(item.fingerprint);
        self.letters.push(letter);
        if let Some(key) = key {
            self.outcomes.push((key.clone(), Settled::Dead));
            self.forget(key, attempts);
        }
    }

    /// Sets aside what this unit holds no key of: another event has it, or its day is not
    /// remembered. The inbox stays as it is.
    pub(super) fn set_aside_unclaimed(&mut self, letter: DeadLetter) {
        self.dirty = true;
        self.letters.push(letter);
    }

    /// Sets aside what was rejected, beside its outcome.
    pub(super) fn set_aside_rejected(
        &mut self,
        item: &Item,
        key: &EventKey,
        attempts: u32,
        reason: &str,
    ) {
        let (key, kind) = (Some(key.clone()), DeadLetterKind::Rejected);
        let letter = DeadLetter::new(&item.delivery, key, kind, attempts, reason);
        self.letters.push(letter.with_fingerprint(item.fingerprint));
    }

    /// What [`Progress::take_back`] goes back to.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            letters: self.letters.len(),
            outcomes: self.outcomes.len(),
            forget: self.forget.len(),
        }
    }

    /// Takes back the letter of one event, and what else was to be written of it.
    pub(super) fn take_back(&mut self, mark: Mark) {
        self.letters.truncate(mark.letters);
        self.outcomes.truncate(mark.outcomes);
        self.forget.truncate(mark.forget);
    }

    /// Writes all that was found out.
    pub(super) async fn write_to<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        bounds: &DeadLetterBounds,
    ) -> Result<(), Trouble> {
        self.staged.write_to(unit).await?;
        if !self.unclaim.is_empty() {
            unit.unclaim(&self.unclaim).await?;
        }
        if !self.outcomes.is_empty() {
            unit.record(&self.outcomes).await?;
        }
        if !self.letters.is_empty() {
            let letters = std::mem::take(&mut self.letters).into_iter();
            self.letters = letters.map(|letter| letter.within(bounds)).collect();
            unit.set_aside(&self.letters).await?;
        }
        if !self.forget.is_empty() {
            unit.forget_attempts(&self.forget).await?;
        }
        Ok(())
    }

    /// A settled event's retry row goes with it; most have none.
    pub(super) fn forget(&mut self, key: &EventKey, attempts: u32) {
        if attempts > 0 {
            self.forget.push(key.clone());
        }
    }
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
