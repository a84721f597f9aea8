//! One dead letter in one transaction: as its event would have been handled, and the letter gone.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::progress::Progress;
use super::run::{FewerVerdicts, Savepoints, Trouble};
use super::work::{Plan, Work};
use super::{Batch, Workshop};
use crate::claim::Claim;
use crate::consumer::item::{Fate, Item};
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::event_key::{EventId, EventKey};
use crate::handler::error_chain;
use crate::letters::{Letter, LetterId, RedriveAs, RequestedRedrive};
use crate::store::{Begin, Blame, Late, Prior, Reopen, Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::TARGET;

/// What became of a redrive.
#[derive(Debug)]
pub(in crate::consumer) enum Redriven {
    /// The event took effect, and the letter is gone.
    Applied,
    /// The handler has refused the event for good, and the letter is gone.
    Rejected(Box<str>),
    /// The event was settled meanwhile in another way, and the letter is gone.
    WasSettled(Settled),
    /// It failed, and will be tried again.
    Failed(String),
    /// It failed, and is not tried again until somebody asks for it anew.
    GivenUp(String),
    /// The letter is not there any more, not marked, behind another, or somebody else has it.
    NotNow,
    /// Nothing happened, for a reason that is not the event's.
    Later(StoreError),
    /// The guarantee is void.
    Fatal(StoreError),
}

/// What a transaction that was begun for a letter comes to.
enum Filled {
    Commit(Redriven),
    Back(Redriven),
}

impl Redriven {
    /// Says what became of a letter.
    pub(in crate::consumer) fn log(&self, consumer: &str, letter: LetterId) {
        match self {
            Self::Applied => {
                info!(target: TARGET, consumer, %letter, "a dead letter was redriven, and took effect");
            }
            Self::Rejected(reason) => {
                info!(target: TARGET, consumer, %letter, %reason, "a dead letter was redriven, and rejected");
            }
            Self::WasSettled(settled) => {
                info!(target: TARGET, consumer, %letter, ?settled, "a dead letter's event was settled meanwhile; the letter is gone");
            }
            Self::Failed(error) => {
                warn!(target: TARGET, consumer, %letter, error, "a redrive failed");
            }
            Self::GivenUp(error) => {
                warn!(target: TARGET, consumer, %letter, error, "a redrive failed, and the letter stays until it is asked for again");
            }
            Self::NotNow => {
                debug!(target: TARGET, consumer, %letter, "a dead letter is not to be redriven now");
            }
            Self::Later(cause) => {
                debug!(target: TARGET, consumer, %letter, cause = %error_chain(cause), "a dead letter could not be redriven now");
            }
            Self::Fatal(cause) => {
                error!(target: TARGET, consumer, %letter, cause = %error_chain(cause), "the redrive must not go on");
            }
        }
    }
}

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// The consumer's marked letters behind a given one.
    pub(in crate::consumer) async fn requested_redrives(
        &self,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError> {
        self.store
            .requested_redrives(self.consumer, after, limit)
            .await
    }

    /// Redrives a letter.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transaction: nothing happened, or (dropped within the commit)
    /// the letter is gone with its effect there.
    pub(in crate::consumer) async fn redrive(
        &self,
        requested: &RequestedRedrive,
        cancelled: CancellationToken,
        seed: u64,
    ) -> Redriven {
        let guarded = self.crash_guard.zip(requested.event.as_ref());
        let suspect = match guarded {
            Some((guard, event)) => match self.note_redrive(guard, event).await {
                Ok(suspect) => suspect,
                Err(error) => return Redriven::Later(error),
            },
            None => false,
        };
        let redriven = self
            .redrive_until_it_ends(requested, &cancelled, seed, suspect)
            .await;
        if let Some((guard, event)) = guarded {
            let given_up = suspect && matches!(redriven, Redriven::GivenUp(_));
            self.forget_redrive(guard, event, given_up).await;
        }
        redriven
    }

    async fn redrive_until_it_ends(
        &self,
        requested: &RequestedRedrive,
        cancelled: &CancellationToken,
        seed: u64,
        suspect: bool,
    ) -> Redriven {
        // Boxed, or whoever awaits a redrive would hold all of a unit on the stack.
        let once = |savepoints| {
            Box::pin(self.redrive_once(requested, cancelled, seed, suspect, savepoints))
        };
        let mut result = once(Savepoints::None).await;
        if let Err(Trouble::MustUndo) = result {
            result = once(Savepoints::Around).await;
        }
        let error = match result {
            Ok(Redriven::GivenUp(error)) => {
                return self.note_failure(requested, error, None).await;
            }
            Ok(redriven) => return redriven,
            Err(Trouble::Failed { error, .. }) => error,
            Err(Trouble::TimedOut { .. }) => self.too_long(),
            // The second run undoes with savepoints and never asks for a third; and what is below
            // the floor is not fresh, and answered before anybody could take it for a backlog.
            Err(
                Trouble::MustUndo
                | Trouble::Unwritten(_)
                | Trouble::Without(_)
                | Trouble::Lagging(_),
            ) => return Redriven::NotNow,
            Err(Trouble::Store { error, .. }) => match error {
                StoreError::HandlerEndedTransaction => return Redriven::Fatal(error),
                // A letter that cannot be read, for one, says something about the letter alone.
                StoreError::Misconfigured { .. } => error_chain(&error),
                StoreError::RolledBack(_) if self.blame(&error) == Blame::Event => {
                    error_chain(&error)
                }
                StoreError::Busy | StoreError::RolledBack(_) | StoreError::Indeterminate(_) => {
                    return Redriven::Later(error);
                }
            },
        };
        if cancelled.is_cancelled() {
            // It may have failed because it was told to give up.
            return Redriven::NotNow;
        }
        let attempts = requested.attempts + 1;
        let wait = (attempts < self.config.redrive_attempts)
            .then(|| self.retry.wait(attempts, &mut StdRng::seed_from_u64(seed)));
        self.note_failure(requested, error, wait).await
    }

    async fn note_failure(
        &self,
        requested: &RequestedRedrive,
        error: String,
        wait: Option<Duration>,
    ) -> Redriven {
        match self.store.redrive_failed(requested.id, &error, wait).await {
            Ok(()) if wait.is_some() => Redriven::Failed(error),
            Ok(()) => Redriven::GivenUp(error),
            Err(store_error) => Redriven::Later(store_error),
        }
    }

    async fn redrive_once(
        &self,
        requested: &RequestedRedrive,
        cancelled: &CancellationToken,
        seed: u64,
        suspect: bool,
        savepoints: Savepoints,
    ) -> Result<Redriven, Trouble> {
        let mut begin = Begin::new(self.consumer);
        if requested.redrive_as == RedriveAs::New {
            begin.late = Late::AsNew;
        }
        let mut unit = self.store.begin(begin).await?;
        let filled = self
            .fill_redrive(&mut unit, requested, cancelled, seed, suspect, savepoints)
            .await;
        match filled {
            Ok(Filled::Commit(redriven)) => {
                unit.commit().await?;
                Ok(redriven)
            }
            Ok(Filled::Back(redriven)) => {
                unit.rollback().await;
                Ok(redriven)
            }
            // A statement may still be under way on this connection.
            Err(trouble @ Trouble::TimedOut { .. }) => {
                drop(unit);
                Err(trouble)
            }
            Err(trouble) => {
                unit.rollback().await;
                Err(trouble)
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // as the one statement above passes them on
    async fn fill_redrive(
        &self,
        unit: &mut S::Unit,
        requested: &RequestedRedrive,
        cancelled: &CancellationToken,
        seed: u64,
        suspect: bool,
        savepoints: Savepoints,
    ) -> Result<Filled, Trouble> {
        let letter = unit.take_letter(requested.id).await?;
        let asked_for = |letter: &Letter| {
            let redrive = letter.redrive?;
            (redrive.redrive_as == requested.redrive_as).then_some(())
        };
        let Some(letter) = letter.filter(|letter| asked_for(letter).is_some()) else {
            return Ok(Filled::Back(Redriven::NotNow));
        };
        if suspect {
            // Nobody else has the letter, so whoever started its event has come to its end.
            let error = "a process began to redrive it and never said how that ended: it may have \
                         ended of it, or have been killed; redrive it again if it was";
            return Ok(Filled::Back(Redriven::GivenUp(error.into())));
        }
        let batch = Batch {
            items: vec![Arc::new(self.item_of(&letter, requested, cancelled)?)],
            lanes: vec![0],
            split: false,
            seed,
            excused: false,
            alone: false,
        };
        let item = &*batch.items[0];
        let claim = item.claim();
        if let Some(claim) = &claim {
            // Its row says that it was set aside, and would make it a duplicate.
            let what = if letter.letter.kind == DeadLetterKind::Rejected {
                Reopen::Rejected
            } else {
                Reopen::Dead
            };
            if letter.letter.event.is_some() {
                unit.reopen(claim, what).await?;
            }
        }
        let verdict = match &claim {
            Some(claim) => Some(self.verdict(unit, claim).await?),
            None => None,
        };
        let verdict = match verdict {
            // Attempts from before it was set aside are over.
            Some(Verdict::Fresh(_)) => Some(Verdict::Fresh(Prior::default())),
            Some(verdict) => return self.not_fresh(unit, &letter, item, verdict).await,
            None => None,
        };
        let mut progress = Progress::new(&batch);
        // What it may become takes this letter's place.
        progress.room = Some(1);
        let mut plan = Plan::first(savepoints);
        W::run(self, unit, &batch, vec![verdict], &mut plan, &mut progress).await?;
        let fate = progress.fates.pop().unwrap_or(Fate::NotBegun);
        let redriven = if let Fate::Applied { .. } = fate {
            Redriven::Applied
        } else if let Fate::Rejected { reason } = fate {
            if letter.letter.kind == DeadLetterKind::Rejected {
                return Ok(Filled::Back(Redriven::GivenUp(reason.into())));
            }
            Redriven::Rejected(reason)
        } else {
            // It would be set aside as it was before, and no further try will change that.
            let error = progress.letters.pop().map(|(_, letter)| letter.error);
            let error = error.unwrap_or_else(|| format!("it was not handled: {fate:?}"));
            return Ok(Filled::Back(Redriven::GivenUp(error)));
        };
        self.write_staged(unit, &batch, &plan, &mut progress)
            .await?;
        progress.write_to(unit, &self.config.dead_letters).await?;
        unit.delete_letter(letter.id).await?;
        Ok(Filled::Commit(redriven))
    }

    async fn verdict(&self, unit: &mut S::Unit, claim: &Claim) -> Result<Verdict, Trouble> {
        let verdict = unit.claim(std::slice::from_ref(claim)).await?.pop();
        verdict.ok_or_else(|| StoreError::rolled_back(FewerVerdicts).into())
    }

    /// The event of a letter, under the key that it was set aside with; one without is identified
    /// anew, by what may be a newer version of the program.
    fn item_of(
        &self,
        letter: &Letter,
        requested: &RequestedRedrive,
        cancelled: &CancellationToken,
    ) -> Result<Item, Trouble> {
        let delivery = letter.letter.to_delivery();
        let mut item = Item::new(&self.config, delivery, cancelled.clone());
        let is_mismatch = letter.letter.kind == DeadLetterKind::Mismatch;
        let key = match &letter.letter.event {
            Some(event) if is_mismatch && requested.redrive_as == RedriveAs::New => {
                Some(key_of_its_own(&letter.letter, event)?)
            }
            event => event.clone(),
        };
        if let Some(key) = key {
            item.fingerprint = self.config.fingerprint.of(item.delivery.payload.as_deref());
            item.day = self.config.day(&key, &item.delivery);
            item.key = Ok(key);
        }
        if requested.redrive_as == RedriveAs::New && item.day.is_err() {
            // Without the time that its producer was to repeat it is filed where those events are
            // that have none, as one that comes too late is.
            item.day = Ok(None);
        }
        Ok(item)
    }

    /// What becomes of a letter whose event key the unit could not claim.
    async fn not_fresh(
        &self,
        unit: &mut S::Unit,
        letter: &Letter,
        item: &Item,
        verdict: Verdict,
    ) -> Result<Filled, Trouble> {
        let give_up = |error: String| Ok(Filled::Back(Redriven::GivenUp(error)));
        match verdict {
            Verdict::Duplicate {
                settled: Settled::Dead,
                ..
            } => give_up(
                "its event key is that of another event that was set aside: redrive that one"
                    .into(),
            ),
            Verdict::Duplicate { settled, .. } => {
                unit.delete_letter(letter.id).await?;
                Ok(Filled::Commit(Redriven::WasSettled(settled)))
            }
            Verdict::TooLate { day, floor } => give_up(format!(
                "its day, {day}, is forgotten (the first one remembered is {floor}): whether it took \
                 effect before, nobody can say; look, and redrive it as new, or discard it"
            )),
            Verdict::Future { day, last } => give_up(format!(
                "its day, {day}, lies too far ahead (the last one accepted is {last})"
            )),
            Verdict::Mismatch {
                ours,
                theirs,
                settled,
            } if letter.letter.kind != DeadLetterKind::Mismatch => {
                // It turns out to be one, and is kept as one.
                let Ok(key) = &item.key else {
                    return give_up("it has no event key".into());
                };
                let mismatch =
                    DeadLetter::mismatch(&item.delivery, key.clone(), ours, theirs, &settled)
                        .within(&self.config.dead_letters);
                unit.set_aside(std::slice::from_ref(&mismatch)).await?;
                unit.delete_letter(letter.id).await?;
                Ok(Filled::Commit(Redriven::WasSettled(settled)))
            }
            Verdict::Mismatch { .. } | Verdict::Fresh(_) => give_up(
                "its event key is settled, by an event of other content: redrive it as new, or \
                 discard it"
                    .into(),
            ),
        }
    }
}

/// The key of a mismatch that is redriven as a new event. It follows from the letter's source key,
/// that is from event key and content, so that the same content is never taken twice.
fn key_of_its_own(letter: &DeadLetter, event: &EventKey) -> Result<EventKey, StoreError> {
    use std::fmt::Write;
    let mut id = String::from("as-new-");
    for byte in letter.source_key {
        // Writing to a String does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(EventKey {
        id: EventId::new(id).map_err(StoreError::rolled_back)?,
        tenant: event.tenant.clone(),
    })
}
