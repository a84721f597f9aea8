//! One handler, one event: lends the unit, and tells what came of it.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures::FutureExt;
use tokio::time::error::Elapsed;
use tracing::{debug, warn};

use super::progress::Progress;
use super::run::{Judged, NobodysFault, Savepoints, Trouble};
use super::work::{Each, Plan, Work};
use super::{Batch, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::context::{About, Context, Lent, LentState, Spoilt};
use crate::dead_letter::DeadLetterKind;
use crate::duplicate::Duplicate;
use crate::event_key::EventKey;
use crate::handler::{Handler, HandlerResult, Outcome, error_chain, panic_message};
use crate::reply::Unstorable;
use crate::staged::Staged;
use crate::store::{Blame, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::TARGET;

/// What a handler left behind.
#[derive(Clone, Debug)]
pub(in crate::consumer) enum Handled {
    Applied(Option<Bytes>),
    Rejected(Box<str>),
    /// Its reply cannot be stored, and no retry mends that.
    Unstorable(Unstorable),
    Failed {
        error: String,
        blame: Blame,
    },
    TimedOut,
    /// An earlier event of its lane has failed meanwhile.
    Displaced,
}

/// How a call of a handler ended: in time, without a panic, with its answer.
pub(super) type Called<T> = Result<Result<T, Elapsed>, Box<dyn Any + Send>>;

impl<S: Store, H: Handler<S>> Work<S> for Each<H> {
    type Event = H::Event;

    const SEPARABLE: bool = true;

    async fn run(
        shop: &Workshop<S, Self>,
        unit: &mut S::Unit,
        batch: &Batch,
        verdicts: Vec<Option<Verdict>>,
        plan: &mut Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let savepoints = plan.savepoints;
        for (at, verdict) in verdicts.into_iter().enumerate() {
            let (key, prior, event) = match shop.judge(batch, at, verdict, progress)? {
                Judged::Handle { key, prior, event } => (key, prior, event),
                Judged::Known(fate) => {
                    progress.push(batch, fate);
                    shop.find_room(unit, batch, at, progress).await?;
                    continue;
                }
            };
            let (handled, took_db) = if let Some((handled, rows)) = plan.answers.remove(&at) {
                rows.into_iter()
                    .for_each(|row| progress.staged.push(at, row));
                (handled, false)
            } else {
                let staged = &mut progress.staged;
                shop.handle((batch, at), unit, key, event, &prior, savepoints, staged)
                    .await?
            };
            progress.withdraw_refused(batch);
            if !took_db && savepoints == Savepoints::None && batch.items.len() > 1 {
                progress.answers.push((at, handled.clone()));
            }
            let fate = shop
                .conclude(
                    unit, batch, at, key, &prior, handled, took_db, savepoints, progress,
                )
                .await?;
            progress.push(batch, fate);
            shop.find_room(unit, batch, at, progress).await?;
        }
        Ok(())
    }

    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        self.0.on_duplicate(duplicate, settled);
    }
}

impl<S: Store, H: Handler<S>> Workshop<S, Each<H>> {
    #[allow(clippy::too_many_arguments)] // what a context is made of
    async fn handle(
        &self,
        (batch, at): (&Batch, usize),
        unit: &mut S::Unit,
        key: &EventKey,
        event: H::Event,
        prior: &Prior,
        savepoints: Savepoints,
        staged: &mut Staged<S::Row>,
    ) -> Result<(Handled, bool), Trouble> {
        let item = &batch.items[at];
        let savepoint = savepoints == Savepoints::Around;
        let mut cx = Context {
            lent: Lent::new(unit, staged, at, &batch.lanes, savepoint),
            about: About {
                delivery: &item.delivery,
                event_key: key,
                attempt: prior.attempts + 1,
            },
            cancelled: &item.cancelled,
        };
        // All of the user's code is in here: what comes before the handler's future, and its error's
        // own words.
        let handling = async {
            let handled = self.work.0.handle(&mut cx, event);
            let handled = tokio::time::timeout(self.handler_timeout, handled).await?;
            Ok::<_, Elapsed>(
                handled.map_err(|failure| (self.blame(failure.error()), failure.chain())),
            )
        };
        // The context is not looked at after a panic but for its flags, and what the handler holds
        // across it is the user's own.
        let result = AssertUnwindSafe(handling).catch_unwind().await;
        let LentState {
            took_db,
            spoilt,
            displaced,
            unwritten,
        } = cx.lent.state;
        if displaced {
            // Nothing was lent to it, whatever it says.
            return Ok((Handled::Displaced, false));
        }
        let timed_out = matches!(result, Ok(Err(_)));
        // What failed was staged by others, or a savepoint: not this handler's doing.
        match spoilt.filter(|_| !timed_out) {
            Some(Spoilt::Unwritten(error)) => return Err(Trouble::unwritten(batch, error)),
            Some(Spoilt::Other(error)) => return Err(error.into()),
            None => {}
        }
        let handled = self.handled(key, result, unwritten);
        let handled = match handled {
            Handled::Applied(reply) if took_db && savepoint => {
                self.keep(unit, staged, reply).await?
            }
            handled => handled,
        };
        Ok((handled, took_db))
    }
}

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// What the end of a handler's call for one event means.
    pub(super) fn handled(
        &self,
        key: &EventKey,
        called: Called<Result<Outcome, (Blame, String)>>,
        unwritten: Option<String>,
    ) -> Handled {
        match called {
            Ok(Ok(Ok(Outcome::Done { .. }))) if unwritten.is_some() => Handled::Failed {
                blame: Blame::Event,
                error: unwritten.unwrap_or_default(),
            },
            Ok(Ok(Ok(outcome))) => self.answered(outcome),
            Ok(Ok(Err((blame, error)))) => Handled::Failed { error, blame },
            Ok(Err(_elapsed)) => {
                warn!(target: TARGET, event = %key, timeout = ?self.handler_timeout, "a handler took too long");
                Handled::TimedOut
            }
            Err(panic) => {
                let message = panic_message(&*panic);
                warn!(target: TARGET, event = %key, message, "a handler panicked");
                Handled::Failed {
                    blame: Blame::Event,
                    error: format!("the handler panicked: {message}"),
                }
            }
        }
    }

    pub(super) fn answered(&self, outcome: Outcome) -> Handled {
        match outcome {
            Outcome::Rejected { reason } => Handled::Rejected(reason),
            Outcome::Done { reply } => {
                let reply = reply.map(|reply| reply.within(self.reply_limit));
                reply
                    .transpose()
                    .map_or_else(Handled::Unstorable, Handled::Applied)
            }
        }
    }

    /// What one event of a batch handler's answer means.
    pub(super) fn one_of(&self, result: HandlerResult) -> Handled {
        match result {
            Ok(outcome) => self.answered(outcome),
            Err(failure) => Handled::Failed {
                blame: self.blame(failure.error()),
                error: failure.chain(),
            },
        }
    }

    /// Keeps what a handler did that has had the connection, and removes its savepoint: from then on
    /// it cannot be undone any more, so what it staged last is written first.
    pub(super) async fn keep(
        &self,
        unit: &mut S::Unit,
        staged: &mut Staged<S::Row>,
        reply: Option<Bytes>,
    ) -> Result<Handled, Trouble> {
        let mut kept = staged.write_all(unit).await;
        if kept.is_ok() {
            kept = unit.release_savepoint().await;
        }
        match kept {
            Ok(()) => Ok(Handled::Applied(reply)),
            Err(error @ StoreError::HandlerEndedTransaction) => Err(error.into()),
            // Or the handler swallowed the error of a statement.
            Err(error) => Ok(Handled::Failed {
                blame: self.blame(&error),
                error: error_chain(&error),
            }),
        }
    }

    /// Draws the consequences of what a handler left behind.
    #[allow(clippy::too_many_arguments)] // what is known of an event that has been handled
    pub(super) async fn conclude(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        at: usize,
        key: &EventKey,
        prior: &Prior,
        handled: Handled,
        took_db: bool,
        savepoints: Savepoints,
        progress: &mut Progress<S::Row>,
    ) -> Result<Fate, Trouble> {
        let alone = batch.items.len() == 1;
        match handled {
            Handled::Applied(reply) => {
                progress.forget(at, key, prior.attempts);
                if reply.is_some() {
                    let reply = reply.clone();
                    progress.record(at, key, Settled::Done { reply });
                }
                Ok(Fate::Applied { reply })
            }
            Handled::Unstorable(unstorable) => {
                progress.undo(unit, at, took_db, savepoints).await?;
                progress.set_aside(
                    (at, &batch.items[at]),
                    Some(key),
                    DeadLetterKind::ReplyTooLarge,
                    prior.attempts,
                    &error_chain(&unstorable),
                );
                Ok(Fate::DeadLettered)
            }
            Handled::Rejected(reason) => {
                progress.undo(unit, at, took_db, savepoints).await?;
                progress.forget(at, key, prior.attempts);
                let settled = Settled::Rejected {
                    reason: reason.clone(),
                };
                progress.record(at, key, settled);
                if self.config.set_aside_rejected {
                    let item = (at, &*batch.items[at]);
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
                at: Some(at),
                prior: prior.attempts,
            }),
            handled @ (Handled::Failed { .. } | Handled::TimedOut) => {
                debug!(target: TARGET, event = %key, "an event failed in company, and runs alone");
                progress.failure = Some(if let Handled::Failed { error, .. } = handled {
                    error
                } else {
                    self.too_long()
                });
                progress.undo(unit, at, took_db, savepoints).await?;
                // Its claim is given back in the same unit; the rest of the batch goes on.
                progress.unclaim(at, key);
                let wait = std::time::Duration::ZERO;
                Ok(Fate::Failed { wait })
            }
            Handled::Displaced => {
                progress.staged.drop_rows_of(at);
                progress.unclaim(at, key);
                Ok(Fate::NotBegun)
            }
        }
    }

    /// Tells the handler of a duplicate.
    pub(in crate::consumer) fn replay(&self, item: &Item, settled: &Settled) {
        let Ok(event_key) = &item.key else {
            return;
        };
        let duplicate = Duplicate {
            event_key,
            delivery: &item.delivery,
        };
        let told = AssertUnwindSafe(|| self.work.on_duplicate(&duplicate, settled));
        if let Err(panic) = std::panic::catch_unwind(told) {
            let message = panic_message(&*panic);
            warn!(target: TARGET, event = %event_key, message, "a handler panicked when it was told of a duplicate, which is acknowledged all the same");
        }
    }
}
