//! The crash guard: what is written down before handlers begin, so that an event that ends the
//! process is found out.

use std::sync::atomic::Ordering;

use tracing::{debug, warn};

use super::run::FewerVerdicts;
use super::{Again, Batch, End, Report, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::crash_guard::{Mark, ProcessId};
use crate::dead_letter::DeadLetterKind;
use crate::event_key::EventKey;
use crate::handler::{Handler, error_chain};
use crate::store::{Blame, Store, StoreError};
use crate::telemetry::TARGET;

/// Who guards, and how strictly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) process: ProcessId,
    /// After so many crashes alone an event is set aside.
    pub(super) limit: u32,
}

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    /// Marks the events, runs the batch, and takes the marks back unless the unit did.
    pub(super) async fn run_guarded(
        &self,
        guard: Guard,
        batch: &Batch,
        report: &mut Report,
    ) -> End {
        if let ([item], true) = (&*batch.items, batch.alone)
            && let Ok(key) = &item.key
        {
            let end = self.run_suspect(guard, batch, item, key, report).await;
            return end.unwrap_or_else(|error| self.without_marks(error, report));
        }
        let keys = batch.keys();
        if keys.is_empty() {
            return self.run_until_it_ends(batch, report).await;
        }
        let places = (batch.items.iter().enumerate()).filter(|(_, item)| item.key.is_ok());
        let marked = match self.store.mark(self.consumer, guard.process, &keys).await {
            Ok(marked) if marked.len() == keys.len() => marked,
            Ok(_) => return self.without_marks(StoreError::rolled_back(FewerVerdicts), report),
            Err(error) => return self.without_marks(error, report),
        };
        let suspects: Vec<_> = (places.zip(&marked))
            .filter_map(|((at, _), marked)| (!marked).then_some(at))
            .collect();
        let end = if suspects.is_empty() {
            self.run_until_it_ends(batch, report).await
        } else {
            End::Suspects(suspects)
        };
        if !report.committed {
            self.unmark_after(&end, &keys).await;
        }
        end
    }

    /// Runs an event and nothing else, since a process may have ended of it.
    async fn run_suspect(
        &self,
        guard: Guard,
        batch: &Batch,
        item: &Item,
        key: &EventKey,
        report: &mut Report,
    ) -> Result<End, StoreError> {
        let found = self.store.find_mark(self.consumer, key).await?;
        let mark = Mark::alone(found, guard.process);
        let guilty = mark.crashes >= guard.limit;
        // What does not run its handler cannot end of it.
        let begins = if guilty {
            mark.not_run(mark.crashes)
        } else {
            mark
        };
        self.store.put_mark(self.consumer, key, begins).await?;
        let end = if guilty {
            let error = format!(
                "the process ended {} times while it handled this event and nothing else",
                mark.crashes
            );
            let kind = DeadLetterKind::Crashed;
            self.set_aside_alone(batch, item, key, kind, mark.crashes, &error)
                .await
        } else {
            if found.is_some_and(|found| found.process != guard.process) {
                warn!(target: TARGET, event = %key, position = %item.delivery.position, crashes = mark.crashes, "an earlier process began this event and never said how it ended: it runs alone");
            }
            self.run_until_it_ends(batch, report).await
        };
        let settled = matches!(&end, End::Fates(fates) if fates.iter().all(Fate::is_settled));
        if report.handled || settled {
            item.suspect.store(false, Ordering::Relaxed);
            if !report.committed {
                self.unmark_after(&end, std::slice::from_ref(key)).await;
            }
        } else if !matches!(end, End::Again(Again::Outage)) {
            // Whoever holds the key has not crashed: it was frozen, or cut off, or is slow.
            let crashes = match (&end, found) {
                (End::Again(Again::Busy), Some(found)) => found.crashes,
                _ => mark.crashes,
            };
            let put = mark.not_run(crashes);
            if let Err(error) = self.store.put_mark(self.consumer, key, put).await {
                debug!(target: TARGET, cause = %error_chain(&error), "a mark stays until its event runs again");
            }
        }
        Ok(end)
    }

    /// The batch has ended in good order: no process will have ended of its events. If that cannot
    /// be written down, the marks are as good as new ones to this process, and to another they say
    /// no more than that the events should run alone once.
    async fn unmark_after(&self, end: &End, keys: &[EventKey]) {
        // It would only wait for what is known to be away.
        if matches!(end, End::Again(Again::Outage | Again::Indeterminate)) {
            return;
        }
        self.unmark(keys).await;
    }

    /// Takes back the marks of events that no process has ended of.
    pub(in crate::consumer) async fn unmark(&self, keys: &[EventKey]) {
        let Some(guard) = self.guard else {
            return;
        };
        let unmarked = self.store.unmark(self.consumer, guard.process, keys).await;
        if let Err(error) = unmarked {
            debug!(target: TARGET, cause = %error_chain(&error), "marks stay until their events run again");
        }
    }

    /// Nothing runs that is not marked.
    fn without_marks(&self, error: StoreError, report: &mut Report) -> End {
        if matches!(error, StoreError::Misconfigured { .. }) {
            return End::Fatal(error);
        }
        debug!(target: TARGET, cause = %error_chain(&error), "events could not be marked, and do not run");
        report.failure = Some(error_chain(&error));
        End::Again(match self.blame(&error) {
            Blame::Contention => Again::Contention,
            Blame::Outage | Blame::Event => Again::Outage,
        })
    }
}
