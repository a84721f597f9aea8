//! One run of a batch: claim, handle, record, commit.

use std::time::Duration;

use tracing::{Instrument, debug, debug_span};

use super::handle::Handled;
use super::progress::{Mark, Progress, log_dead_letter};
use super::{Batch, Report, Workshop};
use crate::claim::Claim;
use crate::consumer::item::{Fate, Item};
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::decode::decode;
use crate::event_key::EventKey;
use crate::handler::{Handler, error_chain};
use crate::store::{Blame, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::{BATCH, PROCESS, TARGET};

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

/// What is known of an event before its handler runs.
enum Judged<'i, E> {
    Handle {
        key: &'i EventKey,
        prior: Prior,
        event: E,
    },
    Known(Fate),
}

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    /// One transaction. On any trouble it is rolled back, and nothing of it has happened (but for
    /// an indeterminate commit).
    pub(super) async fn run_once(
        &self,
        batch: &Batch,
        savepoints: Savepoints,
        report: &mut Report,
    ) -> Result<Vec<Fate>, Trouble> {
        let span = debug_span!(target: TARGET, PROCESS, { BATCH } = batch.items.len(), ?savepoints);
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
            report.failure = progress.failure;
            report.handled |= progress.handled;
            report.committed = ended.is_ok();
            match ended {
                Ok(()) => {
                    progress.letters.iter().for_each(log_dead_letter);
                    Ok(progress.fates)
                }
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
        let claims: Vec<Claim> = (batch.items.iter())
            .filter_map(|item| item.claim())
            .collect();
        let verdicts = if claims.is_empty() {
            Vec::new()
        } else {
            unit.claim(&claims).await?
        };
        let mut verdicts = verdicts.into_iter();
        for (at, item) in batch.items.iter().enumerate() {
            let verdict = item.key.is_ok().then(|| verdicts.next()).flatten();
            let is_claimed = matches!(verdict, Some(Verdict::Fresh(_)));
            let mark = progress.mark();
            let mut fate = self
                .settle_one(unit, batch, at, item, verdict, savepoints, progress)
                .await?;
            if !self.has_room(unit, mark, progress).await? {
                if let Ok(key) = &item.key
                    && is_claimed
                {
                    progress.unclaim.push(key.clone());
                }
                fate = Fate::NoRoom;
            }
            if !fate.is_settled() {
                progress.blocked.push(batch.lanes[at]);
            }
            progress.fates.push(fate);
        }
        progress.write_to(unit, &self.config.dead_letters).await?;
        if let Some(guard) = self.guard {
            // What ran alone and has not been begun after all stays under suspicion.
            let begun = progress.handled || progress.fates.iter().all(Fate::is_settled);
            let keys = batch.keys();
            if !keys.is_empty() && (begun || !batch.alone) {
                unit.forget_started(guard.process, &keys).await?;
                progress.dirty = true;
            }
        }
        Ok(())
    }

    /// Whether there is room for the letter of an event, if it has one; if not, it is taken back.
    async fn has_room(
        &self,
        unit: &mut S::Unit,
        mark: Mark,
        progress: &mut Progress<S::Row>,
    ) -> Result<bool, Trouble> {
        let Some(letter) = progress.letters.get(mark.letters) else {
            return Ok(true);
        };
        let source_key = letter.source_key;
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
        progress.take_back(mark);
        Ok(false)
    }

    #[allow(clippy::too_many_arguments)] // the state of one loop, which is one statement long above
    pub(super) async fn settle_one(
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
        progress.handled = true;
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
            Handled::Applied(reply) => {
                progress.forget(key, prior.attempts);
                if reply.is_some() {
                    let reply = reply.clone();
                    progress
                        .outcomes
                        .push((key.clone(), Settled::Done { reply }));
                }
                Ok(Fate::Applied { reply })
            }
            Handled::Unstorable(unstorable) => {
                progress.undo(unit, mark, took_db, savepoints).await?;
                progress.set_aside(
                    item,
                    Some(key),
                    DeadLetterKind::ReplyTooLarge,
                    prior.attempts,
                    &error_chain(&unstorable),
                );
                Ok(Fate::DeadLettered)
            }
            Handled::Rejected(reason) => {
                progress.undo(unit, mark, took_db, savepoints).await?;
                progress.forget(key, prior.attempts);
                let settled = Settled::Rejected {
                    reason: reason.clone(),
                };
                progress.outcomes.push((key.clone(), settled));
                if self.config.set_aside_rejected {
                    progress.set_aside_rejected(item, key, prior.attempts, &reason);
                }
                Ok(Fate::Rejected { reason })
            }
            // Nobody's fault, and so not charged. What is away may be another database than ours:
            // in company the event is taken out like any other that fails, so that its neighbours
            // go on; if it is ours, the next statement shows it.
            Handled::Failed {
                blame: blame @ (Blame::Outage | Blame::Contention),
                error,
            } if alone => Err(StoreError::rolled_back(NobodysFault(blame, error)).into()),
            Handled::Failed { error, .. } if alone => Err(Trouble::Failed {
                prior: prior.attempts,
                error,
            }),
            Handled::TimedOut if alone || took_db => Err(Trouble::TimedOut {
                at,
                prior: prior.attempts,
            }),
            handled @ (Handled::Failed { .. } | Handled::TimedOut) => {
                debug!(target: TARGET, event = %key, "an event failed in company, and runs alone");
                progress.failure = Some(if let Handled::Failed { error, .. } = handled {
                    error
                } else {
                    self.too_long()
                });
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
            Some(verdict) if blocked && !matches!(verdict, Verdict::Fresh(_)) => {
                return Ok(Judged::Known(Fate::NotBegun));
            }
            Some(Verdict::Duplicate { settled, .. }) => {
                return Ok(Judged::Known(Fate::Duplicate(settled)));
            }
            Some(Verdict::Mismatch {
                ours,
                theirs,
                settled,
            }) => {
                let (delivery, key) = (&item.delivery, key.clone());
                let letter = DeadLetter::mismatch(delivery, key, ours, theirs, &settled);
                progress.set_aside_unclaimed(letter);
                return Ok(Judged::Known(Fate::Mismatched));
            }
            Some(verdict @ (Verdict::TooLate { .. } | Verdict::Future { .. })) => {
                let letter = untimely(item, key, &verdict);
                progress.set_aside_unclaimed(letter);
                return Ok(Judged::Known(Fate::DeadLettered));
            }
            None => return Err(StoreError::rolled_back(FewerVerdicts).into()),
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
        match decode::<H::Event>(&item.delivery) {
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
}

/// The dead letter of an event whose day is no longer remembered, or cannot be true.
pub(super) fn untimely(item: &Item, key: &EventKey, verdict: &Verdict) -> DeadLetter {
    let (kind, error) = match verdict {
        Verdict::TooLate { day, floor } => (
            DeadLetterKind::TooLate,
            format!("its day is {day}, and the inbox remembers nothing before {floor}"),
        ),
        Verdict::Future { day, last } => (
            DeadLetterKind::Future,
            format!("its day is {day}, and {last} is the last one that is believed"),
        ),
        _ => (DeadLetterKind::Poison, format!("{verdict:?}")),
    };
    DeadLetter::new(&item.delivery, Some(key.clone()), kind, 0, &error)
        .with_fingerprint(item.fingerprint)
}

/// A store that breaks its contract.
#[derive(Debug, thiserror::Error)]
#[error("the store answered fewer verdicts than it was asked for")]
pub(super) struct FewerVerdicts;

/// A handler's failure that the store knows as nobody's fault, on its way to where that matters.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct NobodysFault(pub(super) Blame, pub(super) String);
