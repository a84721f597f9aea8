//! The end of an event that has failed, or ended the process, as often as it may.

use tracing::warn;

use super::progress::log_dead_letter;
use super::run::FewerVerdicts;
use super::work::Work;
use super::{Again, Batch, End, Workshop};
use crate::consumer::item::{Fate, Item};
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::store::{Settled, Store, StoreError, Unit, Verdict};
use crate::telemetry::TARGET;

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// Sets the event aside in a unit of its own. If that fails, the event stays unsettled and
    /// comes back here.
    pub(super) async fn set_aside_alone(
        &self,
        batch: &Batch,
        item: &Item,
        key: &EventKey,
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) -> End {
        match self
            .write_dead_letter(batch, item, key, kind, attempts, error)
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
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) -> Result<Fate, StoreError> {
        let mut unit = self.store.begin(self.begin(batch)).await?;
        let claim = item.claim();
        let verdict = match &claim {
            Some(claim) => {
                let verdict = unit.claim(std::slice::from_ref(claim)).await?.pop();
                Some(verdict.ok_or_else(|| StoreError::rolled_back(FewerVerdicts))?)
            }
            None => None,
        };
        let letter = || {
            DeadLetter::new(&item.delivery, Some(key.clone()), kind, attempts, error)
                .with_fingerprint(item.fingerprint)
        };
        let (letter, fate) = match verdict {
            Some(Verdict::Fresh(_)) => {
                unit.record(&[(key.clone(), Settled::Dead)]).await?;
                unit.forget_attempts(std::slice::from_ref(key)).await?;
                (letter(), Fate::DeadLettered)
            }
            // Its day was forgotten while it failed. It had not been settled until then, and was
            // tried as often as it may.
            //
            // Or it has no day that could be read, and so no key that could be claimed.
            Some(Verdict::TooLate { .. } | Verdict::Future { .. }) | None => {
                unit.forget_attempts(std::slice::from_ref(key)).await?;
                (letter(), Fate::DeadLettered)
            }
            // Another process has settled the key meanwhile.
            Some(Verdict::Duplicate { settled, age }) => {
                unit.rollback().await;
                return Ok(Fate::Duplicate { settled, age });
            }
            Some(Verdict::Mismatch {
                ours,
                theirs,
                settled,
            }) => {
                let key = key.clone();
                let letter = DeadLetter::mismatch(&item.delivery, key, ours, theirs, &settled);
                (letter, Fate::Mismatched)
            }
        };
        let bounds = &self.config.dead_letters;
        let room = unit.room_for_letters(bounds.letters).await?;
        if room == 0 && !unit.has_letter(&letter.source_key).await? {
            unit.rollback().await;
            return Ok(Fate::NoRoom);
        }
        let letter = letter.within(bounds);
        unit.set_aside(std::slice::from_ref(&letter)).await?;
        unit.commit().await?;
        log_dead_letter(&letter);
        Ok(fate)
    }
}
