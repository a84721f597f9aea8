//! One run of a batch: claim, handle, record, commit.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tracing::{Instrument, debug, debug_span, error, warn};

use super::{Batch, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::context::{Context, Staged};
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::decode::Decode;
use crate::event_key::EventKey;
use crate::handler::{Handler, Outcome, error_chain};
use crate::store::{Blame, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::{PROCESS, TARGET};

/// Whether handlers run in savepoints, so that one can be undone without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Savepoints {
    None,
    Around,
}

/// Why a run did not commit.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A handler's writes must be undone, and there was no savepoint: run again with them.
    MustUndo,
    /// The only event of the batch failed, and the store is well.
    Failed { prior: u32, error: String },
    /// A handler overran its time while it had the connection, which is of no use any more.
    TimedOut { at: usize, prior: u32 },
    /// The store; with the attempts charged to the last event that was handled.
    Store { error: StoreError, prior: u32 },
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store { error, prior: 0 }
    }
}

/// What a run has found out so far, and has yet to write.
struct Progress<R> {
    fates: Vec<Fate>,
    staged: Staged<R>,
    unclaim: Vec<EventKey>,
    outcomes: Vec<(EventKey, Settled)>,
    letters: Vec<DeadLetter>,
    forget: Vec<EventKey>,
    /// Lanes of the batch in which an event has failed: nothing later of them may run.
    blocked: Vec<usize>,
    /// The unit holds claims or letters, so it must commit.
    dirty: bool,
    undone: bool,
    /// Attempts charged to the event handled last.
    prior: u32,
}

/// What is known of an event before its handler runs.
enum Judged<'i, E> {
    Handle {
        key: &'i EventKey,
        prior: Prior,
        event: E,
    },
    Known(Fate),
}

/// What a handler left behind.
enum Handled {
    Applied,
    Rejected(Box<str>),
    Failed { error: String, blame: Blame },
    TimedOut,
}

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    /// One transaction. On any trouble it is rolled back, and nothing of it has happened (but for
    /// an indeterminate commit).
    pub(super) async fn run_once(
        &self,
        batch: &Batch,
        savepoints: Savepoints,
    ) -> Result<Vec<Fate>, Trouble> {
        let span = debug_span!(target: TARGET, PROCESS, events = batch.items.len(), ?savepoints);
        async {
            let mut unit = self.store.begin(self.begin(batch)).await?;
            let mut progress = Progress::new(batch);
            let filled = self.fill(&mut unit, batch, savepoints, &mut progress).await;
            let ended = match filled {
                Ok(()) if progress.dirty => unit.commit().await.map_err(Trouble::from),
                Ok(()) => {
                    unit.rollback().await;
                    Ok(())
                }
                // A statement may still be under way on this connection: no ROLLBACK would get
                // through before it ends.
                Err(Trouble::TimedOut { at, prior }) => {
                    drop(unit);
                    Err(Trouble::TimedOut { at, prior })
                }
                Err(trouble) => {
                    unit.rollback().await;
                    Err(trouble)
                }
            };
            let undone = progress.undone || matches!(ended, Err(Trouble::MustUndo));
            self.caution.observe(undone);
            match ended {
                Ok(()) => Ok(progress.fates),
                Err(Trouble::Store { error, .. }) => Err(Trouble::Store {
                    error,
                    prior: progress.prior,
                }),
                Err(trouble) => Err(trouble),
            }
        }
        .instrument(span)
        .await
    }

    async fn fill(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        savepoints: Savepoints,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let keys: Vec<EventKey> = (batch.items.iter())
            .filter_map(|item| item.key.as_ref().ok().cloned())
            .collect();
        let verdicts = if keys.is_empty() {
            Vec::new()
        } else {
            unit.claim(&keys).await?
        };
        let mut verdicts = verdicts.into_iter();
        for (at, item) in batch.items.iter().enumerate() {
            let verdict = item.key.is_ok().then(|| verdicts.next()).flatten();
            let fate = self
                .settle_one(unit, batch, at, item, verdict, savepoints, progress)
                .await?;
            if !fate.is_settled() {
                progress.blocked.push(batch.lanes[at]);
            }
            progress.fates.push(fate);
        }
        progress.staged.write_to(unit).await?;
        if !progress.unclaim.is_empty() {
            unit.unclaim(&progress.unclaim).await?;
        }
        if !progress.outcomes.is_empty() {
            unit.record(&progress.outcomes).await?;
        }
        if !progress.letters.is_empty() {
            unit.set_aside(&progress.letters).await?;
        }
        if !progress.forget.is_empty() {
            unit.forget_attempts(&progress.forget).await?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // the state of one loop, which is one statement long above
    async fn settle_one(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        at: usize,
        item: &Item,
        verdict: Option<Verdict>,
        savepoints: Savepoints,
        progress: &mut Progress<S::Row>,
    ) -> Result<Fate, Trouble> {
        let blocked = progress.blocked.contains(&batch.lanes[at]);
        let (key, prior, event) = match self.judge(item, verdict, blocked, progress)? {
            Judged::Handle { key, prior, event } => (key, prior, event),
            Judged::Known(fate) => return Ok(fate),
        };
        let mark = progress.staged.len();
        let (handled, took_db) = self
            .handle(
                unit,
                item,
                key,
                event,
                &prior,
                savepoints,
                &mut progress.staged,
            )
            .await?;
        let alone = batch.items.len() == 1;
        match handled {
            Handled::Applied => {
                progress.forget(key, prior.attempts);
                Ok(Fate::Applied)
            }
            Handled::Rejected(reason) => {
                progress.undo(unit, mark, took_db, savepoints).await?;
                progress.forget(key, prior.attempts);
                progress
                    .outcomes
                    .push((key.clone(), Settled::Rejected { reason }));
                Ok(Fate::Rejected)
            }
            Handled::Failed {
                blame: Blame::Outage,
                error,
            } => Err(StoreError::rolled_back(NobodysFault(Blame::Outage, error)).into()),
            Handled::Failed {
                blame: Blame::Contention,
                error,
            } if alone => {
                Err(StoreError::rolled_back(NobodysFault(Blame::Contention, error)).into())
            }
            Handled::Failed { error, .. } if alone => Err(Trouble::Failed {
                prior: prior.attempts,
                error,
            }),
            Handled::TimedOut if alone || took_db => Err(Trouble::TimedOut {
                at,
                prior: prior.attempts,
            }),
            Handled::Failed { .. } | Handled::TimedOut => {
                debug!(target: TARGET, event = %key, "an event failed in company, and runs alone");
                progress.undo(unit, mark, took_db, savepoints).await?;
                // Its claim is given back in the same unit; the rest of the batch goes on.
                progress.unclaim.push(key.clone());
                Ok(Fate::Failed {
                    wait: Duration::ZERO,
                })
            }
        }
    }

    /// What can be said of an event before its handler runs.
    fn judge<'i>(
        &self,
        item: &'i Item,
        verdict: Option<Verdict>,
        blocked: bool,
        progress: &mut Progress<S::Row>,
    ) -> Result<Judged<'i, H::Event>, Trouble> {
        let key = match &item.key {
            Ok(key) => key,
            Err(_) if blocked => return Ok(Judged::Known(Fate::NotBegun)),
            Err(unidentified) => {
                let error = error_chain(unidentified);
                progress.set_aside(item, None, DeadLetterKind::Poison, 0, &error);
                return Ok(Judged::Known(Fate::DeadLettered));
            }
        };
        let prior = match verdict {
            Some(Verdict::Fresh(prior)) => prior,
            // The broker counts by position, so behind a failed event of its lane even a duplicate
            // waits; it is settled as soon as its turn comes.
            Some(Verdict::Duplicate(_)) if blocked => return Ok(Judged::Known(Fate::NotBegun)),
            Some(Verdict::Duplicate(_)) => return Ok(Judged::Known(Fate::Duplicate)),
            None => {
                let error = "the store answered fewer verdicts than it was asked for";
                return Err(StoreError::rolled_back(error).into());
            }
        };
        progress.dirty = true;
        progress.prior = prior.attempts;
        if blocked {
            progress.unclaim.push(key.clone());
            return Ok(Judged::Known(Fate::NotBegun));
        }
        if prior.attempts >= self.retry.max_attempts {
            // The process that charged the last attempt died before it wrote the dead letter.
            let error = prior
                .last_error
                .as_deref()
                .unwrap_or("the last error was not recorded");
            let kind = DeadLetterKind::Exhausted;
            progress.set_aside(item, Some(key), kind, prior.attempts, error);
            return Ok(Judged::Known(Fate::DeadLettered));
        }
        if !prior.wait.is_zero() {
            progress.unclaim.push(key.clone());
            return Ok(Judged::Known(Fate::Held { wait: prior.wait }));
        }
        match H::Event::decode(&item.delivery) {
            Ok(event) => Ok(Judged::Handle { key, prior, event }),
            Err(error) => {
                let error = format!("the payload does not decode\n{}", error_chain(&*error));
                progress.set_aside(
                    item,
                    Some(key),
                    DeadLetterKind::Poison,
                    prior.attempts,
                    &error,
                );
                Ok(Judged::Known(Fate::DeadLettered))
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // what a context is made of
    async fn handle(
        &self,
        unit: &mut S::Unit,
        item: &Item,
        key: &EventKey,
        event: H::Event,
        prior: &Prior,
        savepoints: Savepoints,
        staged: &mut Staged<S::Row>,
    ) -> Result<(Handled, bool), Trouble> {
        let mut cx = Context {
            unit,
            staged_before: staged.len(),
            staged,
            delivery: &item.delivery,
            event_key: key,
            attempt: prior.attempts + 1,
            cancelled: &item.cancelled,
            savepoint: savepoints == Savepoints::Around,
            took_db: false,
            spoilt: None,
        };
        let handling =
            tokio::time::timeout(self.handler_timeout, self.handler.handle(&mut cx, event));
        // The context is not looked at after a panic but for its flags, and what the handler holds
        // across it is the user's own.
        let result = AssertUnwindSafe(handling).catch_unwind().await;
        let took_db = cx.took_db;
        let has_savepoint = took_db && savepoints == Savepoints::Around;
        let timed_out = matches!(result, Ok(Err(_)));
        if let Some(error) = cx.spoilt.filter(|_| !timed_out) {
            // What failed was staged by others, or a savepoint: not this handler's doing.
            return Err(error.into());
        }
        let handled = match result {
            Ok(Ok(Ok(Outcome::Done))) if has_savepoint => match unit.release_savepoint().await {
                Ok(()) => Handled::Applied,
                // The handler swallowed the error of a statement.
                Err(error) => Handled::Failed {
                    blame: self.blame(&error),
                    error: error_chain(&error),
                },
            },
            Ok(Ok(Ok(Outcome::Done))) => Handled::Applied,
            Ok(Ok(Ok(Outcome::Rejected { reason }))) => Handled::Rejected(reason),
            Ok(Ok(Err(failure))) => Handled::Failed {
                blame: self.blame(failure.error()),
                error: failure.chain(),
            },
            Ok(Err(_elapsed)) => {
                warn!(target: TARGET, event = %key, timeout = ?self.handler_timeout, "a handler took too long");
                Handled::TimedOut
            }
            Err(panic) => {
                let message = panic_message(&*panic);
                error!(target: TARGET, event = %key, message, "a handler panicked");
                Handled::Failed {
                    blame: Blame::Event,
                    error: format!("the handler panicked: {message}"),
                }
            }
        };
        Ok((handled, took_db))
    }
}

impl<R: Send> Progress<R> {
    fn new(batch: &Batch) -> Self {
        Self {
            fates: Vec::with_capacity(batch.items.len()),
            staged: Staged::new(),
            unclaim: Vec::new(),
            outcomes: Vec::new(),
            letters: Vec::new(),
            forget: Vec::new(),
            blocked: Vec::new(),
            dirty: false,
            undone: false,
            prior: 0,
        }
    }

    /// Undoes what one handler did: what it staged is dropped, what it wrote is rolled back to its
    /// savepoint.
    async fn undo<U: Unit<Row = R>>(
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

    fn set_aside(
        &mut self,
        item: &Item,
        key: Option<&EventKey>,
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) {
        self.dirty = true;
        let letter = DeadLetter::new(&item.delivery, key.cloned(), kind, attempts, error);
        log_dead_letter(&letter);
        self.letters.push(letter);
        if let Some(key) = key {
            self.outcomes.push((key.clone(), Settled::Dead));
            self.forget(key, attempts);
        }
    }

    /// A settled event's retry row goes with it; most have none.
    fn forget(&mut self, key: &EventKey, attempts: u32) {
        if attempts > 0 {
            self.forget.push(key.clone());
        }
    }
}

pub(super) fn log_dead_letter(letter: &DeadLetter) {
    error!(
        target: TARGET,
        event = letter.event.as_ref().map(tracing::field::display),
        position = %letter.position, kind = letter.kind.as_str(), attempts = letter.attempts,
        error = letter.error,
        "an event is set aside as a dead letter"
    );
}

/// A handler's failure that the store knows as nobody's fault, on its way to where that matters.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct NobodysFault(pub(super) Blame, pub(super) String);

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}
