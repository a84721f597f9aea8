//! One run of a batch: claim, handle, record, commit.

use tracing::{Instrument, debug_span};

use super::progress::{Progress, log_dead_letter};
use super::untimely::{future, untimed};
use super::work::{Plan, Work};
use super::{Batch, Report, Workshop};
use crate::claim::Claim;
use crate::consumer::item::{Fate, Item};
use crate::consumer::lag_guard::Lag;
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::decode::decode;
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::store::{Blame, Prior, Store, StoreError, Unit, Verdict};
use crate::telemetry::{BATCH, PROCESS, TARGET};

/// Whether handlers run in savepoints, so that one can be undone without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::consumer) enum Savepoints {
    None,
    Around,
}

/// Why a run did not commit.
#[derive(Debug)]
pub(in crate::consumer) enum Trouble {
    /// A handler's writes must be undone, and there was no savepoint: run again with them.
    MustUndo,
    /// Rows could not be written, and nobody knows whose: run again with savepoints around parts of
    /// the write.
    Unwritten(StoreError),
    /// These events of a batch handler's failed: run again without them.
    Without(Vec<usize>),
    /// The only event of the batch failed, and the store is well.
    Failed { prior: u32, error: String },
    /// A handler overran its time while it had the connection, which is of no use any more; with
    /// the event it was for, if it was for one.
    TimedOut { at: Option<usize>, prior: u32 },
    /// What is late is a backlog.
    Lagging(Lag),
    /// The store; with the attempts charged to the last event that was handled.
    Store { error: StoreError, prior: u32 },
}

impl Trouble {
    /// Staged rows could not be written in one go: with one event it is known whose they are.
    pub(super) fn unwritten(batch: &Batch, error: StoreError) -> Self {
        match error {
            StoreError::RolledBack(_) if batch.items.len() > 1 => Self::Unwritten(error),
            _ => error.into(),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store { error, prior: 0 }
    }
}

/// What is known of an event before its handler runs.
pub(super) enum Judged<'i, E> {
    Handle {
        key: &'i EventKey,
        prior: Prior,
        event: E,
    },
    Known(Fate),
}

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// One transaction. On any trouble it is rolled back, and nothing of it has happened (but for
    /// an indeterminate commit).
    pub(super) async fn run_once(
        &self,
        batch: &Batch,
        plan: &mut Plan<S::Row>,
        report: &mut Report,
    ) -> Result<Vec<Fate>, Trouble> {
        let span = debug_span!(target: TARGET, PROCESS, { BATCH } = batch.items.len(), savepoints = ?plan.savepoints);
        async {
            let mut unit = self.store.begin(self.begin(batch)).await?;
            let mut progress = Progress::new(batch);
            let filled = self.fill(&mut unit, batch, plan, &mut progress).await;
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
            let second_run = matches!(ended, Err(Trouble::MustUndo | Trouble::Unwritten(_)));
            self.caution.observe(progress.undone || second_run);
            report.failure = progress.failure;
            match ended {
                Ok(()) => {
                    let letters = progress.letters.iter();
                    letters.for_each(|(_, letter)| log_dead_letter(letter));
                    Ok(progress.fates)
                }
                Err(Trouble::Store { error, .. }) => Err(Trouble::Store {
                    error,
                    prior: progress.prior,
                }),
                Err(trouble @ Trouble::Unwritten(_)) => {
                    plan.keep(progress.answers, progress.staged);
                    Err(trouble)
                }
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
        plan: &mut Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let claims: Vec<Claim> = (batch.items.iter())
            .filter_map(|item| item.claim())
            .collect();
        let verdicts = if claims.is_empty() {
            Vec::new()
        } else {
            unit.claim(&claims).await?
        };
        let mut verdicts = verdicts.into_iter();
        let verdicts = (batch.items.iter())
            .map(|item| {
                let claimed = item.key.is_ok() && item.day.is_ok();
                claimed.then(|| verdicts.next()).flatten()
            })
            .collect();
        W::run(self, unit, batch, verdicts, plan, progress).await?;
        self.write_staged(unit, batch, plan, progress).await?;
        progress
            .write_to(unit, &self.config.dead_letters)
            .await
            .map_err(Trouble::from)
    }

    /// Looks whether there is room for the letter of an event, if it has one; if not, it is as if
    /// the event had not begun. Answers whether there was.
    pub(super) async fn find_room(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        at: usize,
        progress: &mut Progress<S::Row>,
    ) -> Result<bool, Trouble> {
        let letter = progress.letters.last().filter(|&&(of, _)| of == at);
        let Some(source_key) = letter.map(|(_, letter)| letter.source_key) else {
            return Ok(true);
        };
        let room = match progress.room {
            Some(room) => room,
            None => {
                let limit = self.config.dead_letters.letters;
                unit.room_for_letters(limit).await?
            }
        };
        progress.room = Some(room.saturating_sub(1));
        // One that is there already only counts once more.
        if room > 0 || unit.has_letter(&source_key).await? {
            return Ok(true);
        }
        progress.no_room(batch, at);
        Ok(false)
    }

    pub(super) async fn write_staged(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        plan: &Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let events = batch.items.len();
        if plan.savepoints == Savepoints::None || events == 1 {
            let written = progress.staged.write_all(unit).await;
            return written.map_err(|error| Trouble::unwritten(batch, error));
        }
        let staged = &mut progress.staged;
        staged.write_apart(unit, events, &batch.lanes).await?;
        progress.undone |= staged.refuses_any();
        if W::SEPARABLE {
            progress.withdraw_refused(batch);
        } else if staged.refuses_any() {
            let refused = staged.take_refused().into_iter();
            return Err(Trouble::Without(refused.map(|r| r.event).collect()));
        }
        Ok(())
    }

    /// What can be said of an event before its handler runs.
    pub(super) fn judge<'i>(
        &self,
        batch: &'i Batch,
        at: usize,
        verdict: Option<Verdict>,
        progress: &mut Progress<S::Row>,
    ) -> Result<Judged<'i, W::Event>, Trouble> {
        let item: &'i Item = &batch.items[at];
        let blocked = progress.is_blocked(batch.lanes[at]);
        let key = match &item.key {
            Ok(key) => key,
            Err(_) if blocked => return Ok(Judged::Known(Fate::NotBegun)),
            Err(unidentified) => {
                let error = error_chain(unidentified);
                progress.set_aside((at, item), None, DeadLetterKind::Poison, 0, &error);
                return Ok(Judged::Known(Fate::DeadLettered));
            }
        };
        if let Err(unreadable) = &item.day {
            return Ok(Judged::Known(if blocked {
                Fate::NotBegun
            } else {
                untimed((at, item), key, unreadable, progress)
            }));
        }
        let prior = match verdict {
            Some(Verdict::Fresh(prior)) => prior,
            // The broker counts by position, so behind a failed event of its lane even a duplicate
            // waits; it is settled as soon as its turn comes.
            Some(verdict) if blocked && !matches!(verdict, Verdict::Fresh(_)) => {
                return Ok(Judged::Known(Fate::NotBegun));
            }
            Some(Verdict::Duplicate { settled, age }) => {
                return Ok(Judged::Known(Fate::Duplicate { settled, age }));
            }
            Some(Verdict::Mismatch {
                ours,
                theirs,
                settled,
            }) => {
                let (delivery, key) = (&item.delivery, key.clone());
                let letter = DeadLetter::mismatch(delivery, key, ours, theirs, &settled);
                progress.set_aside_unclaimed(at, letter);
                return Ok(Judged::Known(Fate::Mismatched));
            }
            Some(Verdict::TooLate { day, floor }) => {
                let fate = self.too_late((at, item), key, (day, floor), progress)?;
                return Ok(Judged::Known(fate));
            }
            Some(Verdict::Future { day, last }) => {
                let fate = future((at, item), key, (day, last), progress);
                return Ok(Judged::Known(fate));
            }
            None => return Err(StoreError::rolled_back(FewerVerdicts).into()),
        };
        progress.claimed(at, key, prior.attempts);
        if blocked {
            progress.unclaim(at, key);
            return Ok(Judged::Known(Fate::NotBegun));
        }
        if prior.attempts >= self.retry.max_attempts {
            // The process that charged the last attempt died before it wrote the dead letter.
            let error = prior
                .last_error
                .as_deref()
                .unwrap_or("the last error was not recorded");
            let kind = DeadLetterKind::Exhausted;
            progress.set_aside((at, item), Some(key), kind, prior.attempts, error);
            return Ok(Judged::Known(Fate::DeadLettered));
        }
        if !prior.wait.is_zero() {
            progress.unclaim(at, key);
            return Ok(Judged::Known(Fate::Held { wait: prior.wait }));
        }
        match decode::<W::Event>(&item.delivery) {
            Ok(event) => Ok(Judged::Handle { key, prior, event }),
            Err(error) => {
                let error = format!("the payload does not decode\n{}", error_chain(&*error));
                progress.set_aside(
                    (at, item),
                    Some(key),
                    DeadLetterKind::Poison,
                    prior.attempts,
                    &error,
                );
                Ok(Judged::Known(Fate::DeadLettered))
            }
        }
    }
}

/// A store that breaks its contract.
#[derive(Debug, thiserror::Error)]
#[error("the store answered fewer verdicts than it was asked for")]
pub(super) struct FewerVerdicts;

/// A handler's failure that the store knows as nobody's fault, on its way to where that matters.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct NobodysFault(pub(super) Blame, pub(super) String);
