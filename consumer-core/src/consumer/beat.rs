//! What a consumer does beside its events, now and then: maintenance, and handing in what it counted.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::duplicate_ages::DuplicateAges;
use crate::handler::{error_chain, panic_message};
use crate::stats::StatsHandle;
use crate::store::{ConsumerId, Maintained, Store, StoreError};
use crate::telemetry::TARGET;

/// From one round to the next, more or less, so that the processes of a consumer do not meet.
const INTERVAL: Duration = Duration::from_mins(1);

/// The same, when a round has left something to be done.
const SOON: Duration = Duration::from_secs(5);

/// A round that hangs counts as a failed one.
const LONGEST: Duration = Duration::from_mins(10);

/// What the beat and the consumer's events tell each other.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// The database's, as far as it has told; until then the process's own.
    clock: Mutex<Clock>,
    /// Of the duplicates that nobody has been told of yet.
    ages: Mutex<DuplicateAges>,
}

impl Pulse {
    /// The time, by the database's clock where that is known.
    pub(super) fn now(&self) -> SystemTime {
        lock(&self.clock).now()
    }

    /// Duplicates of that age were settled.
    pub(super) fn duplicates(&self, age: Duration, count: u64) {
        lock(&self.ages).record_many(age, count);
    }

    /// Hands in the ages of duplicates. What cannot be handed in is kept.
    ///
    /// # Cancel safety
    /// Dropping the future may lose some ages, which are a sample anyway.
    pub(super) async fn flush<S: Store>(
        &self,
        store: &S,
        consumer: ConsumerId,
    ) -> Result<(), StoreError> {
        let ages = std::mem::take(&mut *lock(&self.ages));
        if ages.is_empty() {
            return Ok(());
        }
        let noted = store.note_duplicate_ages(consumer, &ages).await;
        if noted.is_err() {
            lock(&self.ages).merge(&ages);
        }
        noted
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The background task of one consumer.
#[derive(Debug)]
pub(super) struct Beat<S> {
    name: Box<str>,
    store: S,
    consumer: ConsumerId,
    pulse: Arc<Pulse>,
    stats: StatsHandle,
    /// The last round did not work, and that has been said.
    failing: bool,
}

impl<S: Store> Beat<S> {
    pub(super) fn new(
        name: &str,
        store: S,
        consumer: ConsumerId,
        pulse: Arc<Pulse>,
        stats: StatsHandle,
    ) -> Self {
        Self {
            name: name.into(),
            store,
            consumer,
            pulse,
            stats,
            failing: false,
        }
    }

    /// Beats until it is dropped. The first round is at once.
    ///
    /// # Cancel safety
    /// Every step may be dropped at any await point; the next round, of whatever process, goes on
    /// from there.
    pub(super) async fn run(mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        loop {
            let round = AssertUnwindSafe(timeout(LONGEST, self.round())).catch_unwind();
            let ended = match round.await {
                Ok(Ok(Ok(postponed))) => Ok(postponed),
                Ok(Ok(Err(store_error))) => Err(error_chain(&store_error)),
                Ok(Err(_elapsed)) => Err(format!("it took longer than {LONGEST:?}")),
                Err(panic) => Err(format!("it panicked: {}", panic_message(&*panic))),
            };
            self.tell(ended.as_ref().err());
            let interval = if ended == Ok(true) { SOON } else { INTERVAL };
            sleep(interval.mul_f64(rng.random_range(0.8..1.2))).await;
        }
    }

    /// Everything that is done now and then; says whether something is left to be done soon.
    async fn round(&mut self) -> Result<bool, StoreError> {
        // Neither waits for the other to work.
        let flushed = self.pulse.flush(&self.store, self.consumer).await;
        let maintained = self.store.maintain().await?;
        self.maintained(&maintained);
        flushed?;
        Ok(maintained.postponed)
    }

    fn maintained(&self, maintained: &Maintained) {
        let Maintained {
            floor,
            created,
            dropped,
            doubled,
            ..
        } = *maintained;
        if let Some(now) = maintained.now {
            *lock(&self.pulse.clock) = Clock::at(now);
        }
        let floor = floor.map(tracing::field::display);
        if created + dropped > 0 {
            info!(target: TARGET, consumer = %self.name, floor, created, dropped, "the inbox was maintained");
        }
        if doubled > 0 {
            error!(
                target: TARGET, consumer = %self.name, doubled,
                "event keys were settled under two days, and their effect may have happened twice: \
                 the producer does not repeat the time that `producer_repeats_time` names"
            );
            self.stats.update(|stats| stats.doubled += doubled);
        }
    }

    /// Once when it begins to fail, and once when it works again.
    fn tell(&mut self, failed: Option<&String>) {
        match failed {
            Some(cause) if self.failing => {
                debug!(target: TARGET, consumer = %self.name, cause, "maintenance still does not work");
            }
            Some(cause) => {
                warn!(target: TARGET, consumer = %self.name, cause, "maintenance does not work, and is tried again");
            }
            None if self.failing => {
                info!(target: TARGET, consumer = %self.name, "maintenance works again");
            }
            None => {}
        }
        self.failing = failed.is_some();
    }
}
