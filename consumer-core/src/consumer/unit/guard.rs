//! The crash guard: what is written down before handlers begin, so that an event that ends the
//! process is found out.

use std::sync::atomic::Ordering;

use tracing::{debug, warn};

use super::run::FewerVerdicts;
use super::work::Work;
use super::{Again, Batch, End, Report, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::crash_guard::{ProcessId, Started};
use crate::dead_letter::DeadLetterKind;
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::store::{Blame, Store, StoreError};
use crate::telemetry::TARGET;

/// Who guards, and how strictly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) process: ProcessId,
    /// After so many crashes alone an event is set aside.
    pub(super) limit: u32,
}

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// Writes down that the events are started, runs the batch, and forgets it unless the unit did.
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
            return end.unwrap_or_else(|error| self.not_noted(error, report));
        }
        let keys = batch.keys();
        if keys.is_empty() {
            return self.run_until_it_ends(batch, report).await;
        }
        let places = (batch.items.iter().enumerate()).filter(|(_, item)| item.key.is_ok());
        let noted = match self
            .store
            .note_started(self.consumer, guard.process, &keys)
            .await
        {
            Ok(noted) if noted.len() == keys.len() => noted,
            Ok(_) => return self.not_noted(StoreError::rolled_back(FewerVerdicts), report),
            Err(error) => return self.not_noted(error, report),
        };
        let suspects: Vec<_> = (places.zip(&noted))
            .filter_map(|((at, _), noted)| (!noted).then_some(at))
            .collect();
        let end = if suspects.is_empty() {
            self.run_until_it_ends(batch, report).await
        } else {
            End::Suspects(suspects)
        };
        if !report.committed {
            self.forget_after(&end, &keys).await;
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
        let found = self.store.find_started(self.consumer, key).await?;
        let started = Started::alone(found, guard.process);
        let guilty = started.crashes >= guard.limit;
        // What does not run its handler cannot end of it.
        let begins = if guilty {
            started.not_run(started.crashes)
        } else {
            started
        };
        self.store.put_started(self.consumer, key, begins).await?;
        let end = if guilty {
            let error = format!(
                "the process ended {} times while it handled this event and nothing else",
                started.crashes
            );
            let kind = DeadLetterKind::Crashed;
            self.set_aside_alone(batch, item, key, kind, started.crashes, &error)
                .await
        } else {
            if found.is_some_and(|found| found.process != guard.process) {
                warn!(target: TARGET, event = %key, position = %item.delivery.position, crashes = started.crashes, "an earlier process began this event and never said how it ended: it runs alone");
            }
            self.run_until_it_ends(batch, report).await
        };
        let settled = matches!(&end, End::Fates(fates) if fates.iter().all(Fate::is_settled));
        if report.handled || settled {
            item.suspect.store(false, Ordering::Relaxed);
            if !report.committed {
                self.forget_after(&end, std::slice::from_ref(key)).await;
            }
        } else if !matches!(end, End::Again(Again::Outage)) {
            // Whoever holds the key has not crashed: it was frozen, or cut off, or is slow.
            let crashes = match (&end, found) {
                (End::Again(Again::Busy), Some(found)) => found.crashes,
                _ => started.crashes,
            };
            let put = started.not_run(crashes);
            if let Err(error) = self.store.put_started(self.consumer, key, put).await {
                debug!(target: TARGET, cause = %error_chain(&error), "an event stays written down as started until it runs again");
            }
        }
        Ok(end)
    }

    /// The batch has ended in good order: no process will have ended of its events. If that cannot
    /// be written down, this process knows all the same, and another runs them alone once.
    async fn forget_after(&self, end: &End, keys: &[EventKey]) {
        // It would only wait for what is known to be away.
        if matches!(end, End::Again(Again::Outage | Again::Indeterminate)) {
            return;
        }
        self.forget_started(keys).await;
    }

    /// Forgets that events were started which no process has ended of.
    pub(in crate::consumer) async fn forget_started(&self, keys: &[EventKey]) {
        let Some(guard) = self.crash_guard else {
            return;
        };
        let forgotten = self
            .store
            .forget_started(self.consumer, guard.process, keys)
            .await;
        if let Err(error) = forgotten {
            debug!(target: TARGET, cause = %error_chain(&error), "events stay written down as started until they run again");
        }
    }

    /// Writes down that an event is started whose letter is redriven. Answers whether an earlier
    /// process has, and never said how it ended.
    pub(super) async fn note_redrive(
        &self,
        guard: Guard,
        event: &EventKey,
    ) -> Result<bool, StoreError> {
        let event = std::slice::from_ref(event);
        let noted = self
            .store
            .note_started(self.consumer, guard.process, event)
            .await?;
        Ok(noted != [true])
    }

    /// A redrive has ended. One that was given up begins anew when somebody asks for it.
    pub(super) async fn forget_redrive(&self, guard: Guard, event: &EventKey, given_up: bool) {
        if given_up {
            let ours = Started::alone(None, guard.process);
            let put = self.store.put_started(self.consumer, event, ours).await;
            if let Err(error) = put {
                debug!(target: TARGET, cause = %error_chain(&error), "an event stays written down as started");
                return;
            }
        }
        self.forget_started(std::slice::from_ref(event)).await;
    }

    /// Nothing runs that is not written down.
    fn not_noted(&self, error: StoreError, report: &mut Report) -> End {
        if matches!(error, StoreError::Misconfigured { .. }) {
            return End::Fatal(error);
        }
        debug!(target: TARGET, cause = %error_chain(&error), "events could not be written down as started, and do not run");
        report.failure = Some(error_chain(&error));
        End::Again(match self.blame(&error) {
            Blame::Contention => Again::Contention,
            Blame::Outage | Blame::Event => Again::Outage,
        })
    }
}
