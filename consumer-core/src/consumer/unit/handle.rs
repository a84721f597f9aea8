//! One handler, one event: lends the unit, and tells what came of it.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures::FutureExt;
use tokio::time::error::Elapsed;
use tracing::warn;

use super::Workshop;
use super::run::{Savepoints, Trouble};
use crate::consumer::item::Item;
use crate::context::{Context, Staged};
use crate::duplicate::Duplicate;
use crate::event_key::EventKey;
use crate::handler::{Handler, Outcome, error_chain, panic_message};
use crate::reply::Unstorable;
use crate::store::{Blame, Prior, Settled, Store, StoreError, Unit};
use crate::telemetry::TARGET;

/// What a handler left behind.
pub(super) enum Handled {
    Applied(Option<Bytes>),
    Rejected(Box<str>),
    /// Its reply cannot be stored, and no retry mends that.
    Unstorable(Unstorable),
    Failed {
        error: String,
        blame: Blame,
    },
    TimedOut,
}

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    #[allow(clippy::too_many_arguments)] // what a context is made of
    pub(super) async fn handle(
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
            unwritten: None,
        };
        // All of the user's code is in here: what comes before the handler's future, and its error's
        // own words.
        let handling = async {
            let handled = self.handler.handle(&mut cx, event);
            let handled = tokio::time::timeout(self.handler_timeout, handled).await?;
            Ok::<_, Elapsed>(
                handled.map_err(|failure| (self.blame(failure.error()), failure.chain())),
            )
        };
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
            Ok(Ok(Ok(Outcome::Done { .. }))) if cx.unwritten.is_some() => Handled::Failed {
                blame: Blame::Event,
                error: cx.unwritten.unwrap_or_default(),
            },
            Ok(Ok(Ok(Outcome::Done { reply }))) => {
                match reply
                    .map(|reply| reply.within(self.reply_limit))
                    .transpose()
                {
                    // The savepoint stays: all is undone to it.
                    Err(unstorable) => Handled::Unstorable(unstorable),
                    Ok(reply) if has_savepoint => match unit.release_savepoint().await {
                        Ok(()) => Handled::Applied(reply),
                        Err(error @ StoreError::HandlerEndedTransaction) => {
                            return Err(error.into());
                        }
                        // The handler swallowed the error of a statement.
                        Err(error) => Handled::Failed {
                            blame: self.blame(&error),
                            error: error_chain(&error),
                        },
                    },
                    Ok(reply) => Handled::Applied(reply),
                }
            }
            Ok(Ok(Ok(Outcome::Rejected { reason }))) => Handled::Rejected(reason),
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
        };
        Ok((handled, took_db))
    }
}

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    /// Tells the handler of a duplicate.
    pub(in crate::consumer) fn replay(&self, item: &Item, settled: &Settled) {
        let Ok(event_key) = &item.key else {
            return;
        };
        let duplicate = Duplicate {
            event_key,
            delivery: &item.delivery,
        };
        let told = AssertUnwindSafe(|| self.handler.on_duplicate(&duplicate, settled));
        if let Err(panic) = std::panic::catch_unwind(told) {
            let message = panic_message(&*panic);
            warn!(target: TARGET, event = %event_key, message, "a handler panicked when it was told of a duplicate, which is acknowledged all the same");
        }
    }
}
