//! The end of an event that has failed as often as it may.

use tracing::warn;

use super::progress::log_dead_letter;
use super::{Again, Batch, End, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::event_key::EventKey;
use crate::handler::{Handler, error_chain};
use crate::store::{Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::TARGET;

impl<S: Store, H: Handler<S>> Workshop<S, H> {
    /// Sets the event aside in a unit of its own. If that fails, the event stays unsettled and
    /// comes back here.
    pub(super) async fn set_aside_exhausted(
        &self,
        batch: &Batch,
        item: &Item,
        key: &EventKey,
        attempts: u32,
        error: &str,
    ) -> End {
        match self
            .write_dead_letter(batch, item, key, attempts, error)
            .await
        {
            Ok(fate) => End::Fates(vec![fate]),
            Err(StoreError::Busy) => End::Again(Again::Busy),
            Err(store_error) => {
                warn!(
                    target: TARGET, event = %key, cause = %error_chain(&store_error),
                    "a dead letter could not be written; the event stays unsettled"
                );
                End::Again(Again::Outage)
            }
        }
    }

    async fn write_dead_letter(
        &self,
        batch: &Batch,
        item: &Item,
        key: &EventKey,
        attempts: u32,
        error: &str,
    ) -> Result<Fate, StoreError> {
        let mut unit = self.store.begin(self.begin(batch)).await?;
        let keys = std::slice::from_ref(key);
        match unit.claim(keys).await?.pop() {
            Some(Verdict::Fresh(_)) => {
                let kind = DeadLetterKind::Exhausted;
                let letter =
                    DeadLetter::new(&item.delivery, Some(key.clone()), kind, attempts, error);
                unit.record(&[(key.clone(), Settled::Dead)]).await?;
                unit.set_aside(std::slice::from_ref(&letter)).await?;
                unit.forget_attempts(keys).await?;
                unit.commit().await?;
                log_dead_letter(&letter);
                Ok(Fate::DeadLettered)
            }
            Some(Verdict::Duplicate(_)) | None => {
                unit.rollback().await;
                Ok(Fate::Duplicate)
            }
        }
    }
}
