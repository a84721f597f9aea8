//! A store that fails, around any other.

mod faults;
mod letters;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::faults::Faults;
pub use self::faults::{Call, Fault, Injected, InjectedError};
use crate::claim::Claim;
use crate::day::DaysFrom;
use crate::dead_letter::DeadLetter;
use crate::duplicate_ages::DuplicateAges;
use crate::event_key::EventKey;
use crate::finding::Finding;
use crate::letters::{Letter, LetterId};
use crate::store::{
    Begin, Blame, ConsumerId, Maintained, Reopen, Settled, Store, StoreError, Unit, Verdict,
};
use crate::window::Window;

/// A store that fails when it is told to, or now and then by a seed. Clones share their faults.
///
/// On one thread with a paused clock the same seed and the same calls give the same faults.
#[derive(Clone, Debug)]
pub struct Unreliable<S> {
    store: S,
    faults: Shared,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    faults: Faults,
    /// Commits that nobody waits for any more; they end with the last clone.
    late_commits: JoinSet<()>,
}

impl<S: Store> Unreliable<S> {
    /// A store that fails only when told to.
    pub fn new(store: S) -> Self {
        Self::with_probability(store, 0, 0.0)
    }

    /// A store of whose calls this share fails (0 to 1), in ways that follow from the seed.
    pub fn with_probability(store: S, seed: u64, probability: f64) -> Self {
        let state = State {
            faults: Faults::new(seed, probability),
            late_commits: JoinSet::new(),
        };
        Self {
            store,
            faults: Shared(Arc::new(Mutex::new(state))),
        }
    }

    /// Changes the share of calls that fail: 0 lets a test come to its end.
    pub fn set_probability(&self, probability: f64) {
        self.faults.state().faults.probability = probability;
    }

    /// Fails the next commit; called twice, the next two.
    pub fn fail_next_commit(&self, fault: Fault) {
        self.faults.state().faults.scripted_commits.push_back(fault);
    }

    /// Fails the next call of that kind, as a failure that the store blames on whom is said.
    pub fn fail_next(&self, call: Call, blame: Blame) {
        self.faults.state().faults.scripted.push_back((call, blame));
    }

    /// All faults so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.faults.state().faults.injected.clone()
    }

    /// The store itself.
    pub fn inner(&self) -> &S {
        &self.store
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this call fails now.
    fn call(&self, call: Call) -> Result<(), StoreError> {
        self.state().faults.call(call)
    }
}

#[async_trait]
impl<S: Store> Store for Unreliable<S> {
    type Connection = S::Connection;
    type Row = S::Row;
    type Unit = UnreliableUnit<S>;

    async fn open(&self, consumer: &str, days: DaysFrom) -> Result<ConsumerId, StoreError> {
        self.store.open(consumer, days).await
    }

    async fn begin(&self, begin: Begin) -> Result<UnreliableUnit<S>, StoreError> {
        self.faults.call(Call::Begin)?;
        Ok(UnreliableUnit {
            unit: self.store.begin(begin).await?,
            faults: self.faults.clone(),
        })
    }

    async fn charge(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError> {
        self.faults.call(Call::Charge)?;
        self.store.charge(consumer, key, error, wait).await
    }

    fn blame(&self, error: &(dyn Error + 'static)) -> Option<Blame> {
        let injected = error.downcast_ref().map(InjectedError::blame);
        injected.or_else(|| self.store.blame(error))
    }

    async fn maintain(&self) -> Result<Maintained, StoreError> {
        self.faults.call(Call::Maintain)?;
        self.store.maintain().await
    }

    async fn note_duplicate_ages(
        &self,
        consumer: ConsumerId,
        ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        self.store.note_duplicate_ages(consumer, ages).await
    }

    async fn duplicate_ages(&self, consumer: ConsumerId) -> Result<DuplicateAges, StoreError> {
        self.store.duplicate_ages(consumer).await
    }

    async fn window(&self) -> Result<Window, StoreError> {
        self.store.window().await
    }

    async fn examine(&self) -> Vec<Finding> {
        self.store.examine().await
    }

    fn max_units(&self) -> Option<usize> {
        self.store.max_units()
    }
}

/// A unit of an [`Unreliable`] store.
pub struct UnreliableUnit<S: Store> {
    unit: S::Unit,
    faults: Shared,
}

impl<S: Store> fmt::Debug for UnreliableUnit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreliableUnit").finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: Store> Unit for UnreliableUnit<S> {
    type Connection = S::Connection;
    type Row = S::Row;

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, StoreError> {
        self.faults.call(Call::Claim)?;
        self.unit.claim(claims).await
    }

    fn connection(&mut self) -> &mut S::Connection {
        self.unit.connection()
    }

    async fn write(&mut self, rows: &[S::Row]) -> Result<(), StoreError> {
        self.faults.call(Call::Write)?;
        self.unit.write(rows).await
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        self.unit.savepoint().await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        self.unit.rollback_to_savepoint().await
    }

    async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.unit.release_savepoint().await
    }

    async fn rows_written(&mut self) -> Result<Option<u64>, StoreError> {
        self.unit.rows_written().await
    }

    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.unit.unclaim(keys).await
    }

    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        self.faults.call(Call::Record)?;
        self.unit.record(outcomes).await
    }

    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        self.faults.call(Call::SetAside)?;
        self.unit.set_aside(letters).await
    }

    async fn room_for_letters(&mut self, limit: u64) -> Result<u64, StoreError> {
        self.faults.call(Call::Letters)?;
        self.unit.room_for_letters(limit).await
    }

    async fn has_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        self.faults.call(Call::Letters)?;
        self.unit.has_letter(source_key).await
    }

    async fn take_letter(&mut self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        self.faults.call(Call::Letters)?;
        self.unit.take_letter(id).await
    }

    async fn delete_letter(&mut self, id: LetterId) -> Result<(), StoreError> {
        self.faults.call(Call::Letters)?;
        self.unit.delete_letter(id).await
    }

    async fn reopen(&mut self, claim: &Claim, what: Reopen) -> Result<(), StoreError> {
        self.faults.call(Call::Letters)?;
        self.unit.reopen(claim, what).await
    }

    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.unit.forget_attempts(keys).await
    }

    async fn commit(self) -> Result<(), StoreError> {
        let Some(fault) = self.faults.state().faults.commit() else {
            return self.unit.commit().await;
        };
        match fault {
            Fault::BeforeCommit | Fault::DuringCommit | Fault::LostBefore => {
                self.unit.rollback().await;
            }
            Fault::AfterCommit => self.unit.commit().await?,
            Fault::LateCommit(delay) => {
                let unit = self.unit;
                self.faults.state().late_commits.spawn(async move {
                    sleep(delay).await;
                    // Whether it works is for the next claim to find out.
                    let _ = unit.commit().await;
                });
            }
        }
        Err(fault.error())
    }

    async fn rollback(self) {
        self.unit.rollback().await;
    }
}
