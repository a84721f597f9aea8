//! One handler, all events of a batch.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::time::error::Elapsed;
use tracing::{debug, warn};

use super::handle::{Called, Handled};
use super::progress::Progress;
use super::run::{Judged, NobodysFault, Savepoints, Trouble};
use super::work::{Plan, Whole, Work};
use super::{Batch, Workshop};
use crate::batch_handler::{BatchContext, BatchHandler, Fresh, Kind, Outcomes};
use crate::consumer::item::Fate;
use crate::context::{About, Lent, LentState, Spoilt};
use crate::decode::decode;
use crate::duplicate::Duplicate;
use crate::event_key::EventKey;
use crate::handler::{Failure, HandlerResult, done, panic_message};
use crate::store::{Blame, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::TARGET;

/// A fresh event of the batch, apart from the event itself.
struct Given<'b> {
    at: usize,
    key: &'b EventKey,
    prior: Prior,
}

/// What a call came to.
struct Answer {
    called: Called<Result<Outcomes, (Blame, String)>>,
    took_db: bool,
    unwritten: Option<String>,
}

impl<S: Store, H: BatchHandler<S>> Work<S> for Whole<H> {
    type Event = H::Event;

    const SEPARABLE: bool = false;

    async fn run(
        shop: &Workshop<S, Self>,
        unit: &mut S::Unit,
        batch: &Batch,
        verdicts: Vec<Option<Verdict>>,
        plan: &mut Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let (mut given, mut events) = (Vec::new(), Vec::new());
        for (at, verdict) in verdicts.into_iter().enumerate() {
            let fate = match shop.judge(batch, at, verdict, progress)? {
                Judged::Known(fate) => fate,
                Judged::Handle { key, .. } if plan.without.contains(&at) => {
                    progress.unclaim(at, key);
                    Fate::Failed {
                        wait: std::time::Duration::ZERO,
                    }
                }
                Judged::Handle { key, prior, event } => {
                    let about = About {
                        delivery: &batch.items[at].delivery,
                        event_key: key,
                        attempt: prior.attempts + 1,
                    };
                    events.push(Fresh::new(event, about, at));
                    given.push(Given { at, key, prior });
                    // For now; what follows in its lane is in the handler's hands.
                    Fate::Applied { reply: None }
                }
            };
            progress.push(batch, fate);
            shop.find_room(unit, batch, at, progress).await?;
        }
        match &given[..] {
            [] => Ok(()),
            [one] => shop.one(unit, batch, one, events, plan, progress).await,
            all => shop.several(unit, batch, all, events, progress).await,
        }
    }

    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        self.0.on_duplicate(duplicate, settled);
    }
}

impl<S: Store, H: BatchHandler<S>> Workshop<S, Whole<H>> {
    async fn call(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        events: Vec<Fresh<'_, H::Event>>,
        savepoint: bool,
        progress: &mut Progress<S::Row>,
    ) -> Result<Answer, Trouble> {
        let first = events.first().map_or(0, |event| event.at);
        let mut cx = BatchContext {
            lent: Lent::new(unit, &mut progress.staged, first, &batch.lanes, savepoint),
            cancelled: &batch.items[first].cancelled,
        };
        // As for a handler of single events.
        let handling = async {
            let handled = self.work.0.handle(&mut cx, events);
            let handled = tokio::time::timeout(self.handler_timeout, handled).await?;
            let failed = |failure: Failure| (self.blame(failure.error()), failure.chain());
            Ok::<_, Elapsed>(handled.map_err(failed))
        };
        let called = AssertUnwindSafe(handling).catch_unwind().await;
        let LentState {
            took_db,
            spoilt,
            unwritten,
            ..
        } = cx.lent.state;
        let timed_out = matches!(called, Ok(Err(_)));
        match spoilt.filter(|_| !timed_out) {
            Some(Spoilt::Unwritten(error) | Spoilt::Other(error)) => Err(error.into()),
            None => Ok(Answer {
                called,
                took_db,
                unwritten,
            }),
        }
    }

    /// One event alone in the handler's hands is undone by the database, as by a handler of single
    /// events.
    async fn one(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        given: &Given<'_>,
        events: Vec<Fresh<'_, H::Event>>,
        plan: &Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let savepoints = plan.savepoints;
        let savepoint = savepoints == Savepoints::Around;
        let answer = self.call(unit, batch, events, savepoint, progress).await?;
        let took_db = answer.took_db;
        let called = match answer.called {
            Ok(Ok(Ok(outcomes))) => match outcomes_of(outcomes, 1) {
                Err(error) => Ok(Ok(Err((Blame::Event, error)))),
                Ok(mut outcomes) => match outcomes.pop().unwrap_or_else(done) {
                    Ok(outcome) => Ok(Ok(Ok(outcome))),
                    Err(failure) => Ok(Ok(Err((self.blame(failure.error()), failure.chain())))),
                },
            },
            Ok(Ok(Err(failed))) => Ok(Ok(Err(failed))),
            Ok(Err(elapsed)) => Ok(Err(elapsed)),
            Err(panic) => Err(panic),
        };
        let mut handled = self.handled(given.key, called, answer.unwritten);
        if let Handled::Applied(reply) = handled {
            handled = if took_db && savepoint {
                self.keep(unit, &mut progress.staged, reply).await?
            } else {
                Handled::Applied(reply)
            };
        }
        let fate = self
            .conclude(
                unit,
                batch,
                given.at,
                given.key,
                &given.prior,
                handled,
                took_db,
                savepoints,
                progress,
            )
            .await?;
        progress.replace(batch, given.at, fate);
        self.find_room(unit, batch, given.at, progress).await?;
        Ok(())
    }

    /// Of several events in the handler's hands none can be undone: those that failed are left out
    /// the next time.
    async fn several(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        given: &[Given<'_>],
        events: Vec<Fresh<'_, H::Event>>,
        progress: &mut Progress<S::Row>,
    ) -> Result<(), Trouble> {
        let answer = self.call(unit, batch, events, false, progress).await?;
        let outcomes = self.outcomes(answer.called, answer.unwritten, given.len())?;
        let outcomes: Vec<Handled> = (outcomes.into_iter())
            .map(|result| self.one_of(result))
            .collect();
        let failed: Vec<usize> = (given.iter().zip(&outcomes))
            .filter(|(_, handled)| !matches!(handled, Handled::Applied(_) | Handled::Rejected(_)))
            .map(|(given, _)| given.at)
            .collect();
        if !failed.is_empty() {
            debug!(target: TARGET, events = failed.len(), "events failed in company, and run alone");
            return Err(Trouble::Without(failed));
        }
        if answer.took_db && cfg!(debug_assertions) {
            let rejected = given.iter().zip(&outcomes);
            for (given, _) in
                rejected.filter(|(_, handled)| matches!(handled, Handled::Rejected(_)))
            {
                self.check_rejection(unit, batch, given).await?;
            }
        }
        for (given, handled) in given.iter().zip(outcomes) {
            let fate = self
                .conclude(
                    unit,
                    batch,
                    given.at,
                    given.key,
                    &given.prior,
                    handled,
                    // It has written nothing for what it rejects; what it staged is dropped.
                    false,
                    Savepoints::None,
                    progress,
                )
                .await?;
            progress.replace(batch, given.at, fate);
            if !self.find_room(unit, batch, given.at, progress).await? {
                // What follows it in its lane is done already.
                return Err(Trouble::Without(vec![given.at]));
            }
        }
        Ok(())
    }

    /// One outcome an event, or why there is none.
    fn outcomes(
        &self,
        called: Called<Result<Outcomes, (Blame, String)>>,
        unwritten: Option<String>,
        events: usize,
    ) -> Result<Vec<HandlerResult>, Trouble> {
        let (blame, error) = match called {
            Ok(Ok(Ok(outcomes))) => match (unwritten, outcomes_of(outcomes, events)) {
                (None, Ok(outcomes)) => return Ok(outcomes),
                (Some(error), _) | (None, Err(error)) => (Blame::Event, error),
            },
            Ok(Ok(Err(failed))) => failed,
            Ok(Err(_elapsed)) => {
                warn!(target: TARGET, events, timeout = ?self.handler_timeout, "a batch handler took too long");
                return Err(Trouble::TimedOut { at: None, prior: 0 });
            }
            Err(panic) => {
                let message = panic_message(&*panic);
                warn!(target: TARGET, events, message, "a batch handler panicked");
                (Blame::Event, format!("the handler panicked: {message}"))
            }
        };
        Err(StoreError::rolled_back(NobodysFault(blame, error)).into())
    }

    /// Has the handler reject the event once more, alone and in a savepoint, and looks whether it
    /// writes anything. For builds with debug assertions.
    async fn check_rejection(
        &self,
        unit: &mut S::Unit,
        batch: &Batch,
        given: &Given<'_>,
    ) -> Result<(), Trouble> {
        let item = &batch.items[given.at];
        let Ok(event) = decode::<H::Event>(&item.delivery) else {
            return Ok(());
        };
        let about = About {
            delivery: &item.delivery,
            event_key: given.key,
            attempt: given.prior.attempts + 1,
        };
        unit.savepoint().await?;
        let before = unit.rows_written().await?;
        let mut apart = Progress::new(batch);
        let events = vec![Fresh::new(event, about, given.at)];
        let answer = self.call(unit, batch, events, false, &mut apart).await?;
        if let Ok(Err(_elapsed)) = answer.called {
            // A statement may still be under way.
            return Err(Trouble::TimedOut { at: None, prior: 0 });
        }
        let rejected = match answer.called {
            Ok(Ok(Ok(outcomes))) => outcomes_of(outcomes, 1).is_ok_and(|mut outcomes| {
                let outcome = outcomes.pop().map(|result| self.one_of(result));
                matches!(outcome, Some(Handled::Rejected(_)))
            }),
            _ => false,
        };
        // If it does not reject it now, its neighbours' effects have made it another question.
        let after = if rejected {
            unit.rows_written().await?
        } else {
            before
        };
        unit.rollback_to_savepoint().await?;
        if before == after {
            return Ok(());
        }
        Err(StoreError::misconfigured(format!(
            "the batch handler has written rows for the event {}, which it rejects: in a batch \
             nothing can undo them; let it decide before it writes, or answer with an error",
            given.key
        ))
        .into())
    }
}

fn outcomes_of(outcomes: Outcomes, events: usize) -> Result<Vec<HandlerResult>, String> {
    match outcomes.0 {
        Kind::AllDone => Ok((0..events).map(|_| done()).collect()),
        Kind::Each(outcomes) if outcomes.len() == events => Ok(outcomes),
        Kind::Each(outcomes) => Err(format!(
            "the batch handler answered {} outcomes for {events} events",
            outcomes.len()
        )),
    }
}
