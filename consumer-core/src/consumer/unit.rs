//! One batch in one transaction: the first run, and what follows when it fails.

mod exhausted;
mod handle;
mod progress;
mod run;
mod whole;
mod work;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tracing::{debug, warn};

pub(super) use self::work::{Each, Whole, Work};

use self::run::{NobodysFault, Savepoints, Trouble};
use self::work::Plan;
use super::config::ConsumerConfig;
use super::item::{Fate, Item};
use super::opening::blame;
use crate::caution::Caution;
use crate::handler::error_chain;
use crate::retry::RetrySchedule;
use crate::store::{Begin, Blame, ConsumerId, Store, StoreError};
use crate::telemetry::TARGET;

/// Everything that all units of a consumer share.
#[derive(Debug)]
pub(super) struct Workshop<S, W> {
    consumer: ConsumerId,
    store: S,
    work: W,
    retry: RetrySchedule,
    handler_timeout: Duration,
    reply_limit: usize,
    caution: Caution,
}

/// How often a batch is run at once, with more savepoints or without events that have failed, before
/// it comes back in halves.
const MOST_RUNS: usize = 8;

/// What one unit is to do.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) items: Vec<Arc<Item>>,
    /// For each item, which of the batch's lanes it is in.
    pub(super) lanes: Vec<usize>,
    /// The batch is a part of one that failed: busy keys are waited for only briefly.
    pub(super) split: bool,
    /// Where this unit's jitter comes from.
    pub(super) seed: u64,
}

/// How a unit ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) end: End,
    pub(super) took: Duration,
    pub(super) second_run: bool,
    pub(super) charged: u64,
}

#[derive(Debug)]
pub(super) enum End {
    /// It committed, and this is what became of each item.
    Fates(Vec<Fate>),
    /// Nothing of it happened, or nobody knows: all of it runs again.
    Again(Again),
    /// The consumer must not go on.
    Fatal(StoreError),
}

/// Why a whole batch runs again, which says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// The store is away.
    Outage,
    /// Two transactions got in each other's way: smaller batches, after a moment.
    Contention,
    /// Another unit holds a key: smaller batches, until it stands alone; then it waits.
    Busy,
    /// The commit's answer was lost: claim again.
    Indeterminate,
    /// An event of it failed, and nothing tells which one: smaller batches.
    Unexplained,
    /// The item at this place overran its time and spoilt the unit: it runs alone.
    TimedOut(usize),
}

impl<S: Store, W: Work<S>> Workshop<S, W> {
    pub(super) fn new(consumer: ConsumerId, store: S, work: W, config: &ConsumerConfig) -> Self {
        Self {
            consumer,
            store,
            work,
            retry: config.retry,
            handler_timeout: config.handler_timeout,
            reply_limit: config.reply_limit,
            caution: Caution::default(),
        }
    }

    pub(super) fn max_units(&self) -> Option<usize> {
        self.store.max_units()
    }

    /// Runs a batch to an end.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transaction: nothing happened, or (dropped within the commit)
    /// claiming again tells.
    pub(super) async fn run(&self, batch: Batch) -> Report {
        let begun = Instant::now();
        let mut report = Report {
            end: End::Fates(Vec::new()),
            took: Duration::ZERO,
            second_run: false,
            charged: 0,
        };
        report.end = self
            .run_until_it_ends(&batch, &mut report.second_run, &mut report.charged)
            .await;
        report.took = begun.elapsed();
        report
    }

    async fn run_until_it_ends(
        &self,
        batch: &Batch,
        second_run: &mut bool,
        charged: &mut u64,
    ) -> End {
        let savepoints = if self.caution.advises_savepoints() {
            Savepoints::Around
        } else {
            Savepoints::None
        };
        let mut plan = Plan::first(savepoints);
        let mut result = self.run_once(batch, &mut plan).await;
        for _ in 0..MOST_RUNS {
            match &mut result {
                Err(Trouble::MustUndo) => {}
                Err(Trouble::Unwritten(error)) if self.blame(error) == Blame::Event => {}
                Err(Trouble::Without(events)) => {
                    plan.without.extend(events.drain(..));
                    result = self.run_once(batch, &mut plan).await;
                    continue;
                }
                _ => break,
            }
            // The second run undoes with savepoints, and never asks for this again.
            *second_run = true;
            plan.savepoints = Savepoints::Around;
            result = self.run_once(batch, &mut plan).await;
        }
        let trouble = match result {
            Ok(fates) => return End::Fates(fates),
            Err(trouble) => trouble,
        };
        match trouble {
            Trouble::Failed { prior, error } => self.charge(batch, prior, &error, charged).await,
            Trouble::TimedOut { at, .. } if batch.items.len() > 1 => {
                End::Again(at.map_or(Again::Unexplained, Again::TimedOut))
            }
            Trouble::TimedOut { prior, .. } => {
                let error = format!(
                    "the handler took longer than its {:?}",
                    self.handler_timeout
                );
                self.charge(batch, prior, &error, charged).await
            }
            Trouble::Store { error, prior } => {
                self.after_store_error(batch, error, prior, charged).await
            }
            Trouble::Unwritten(error) => self.after_store_error(batch, error, 0, charged).await,
            // Too many fail for runs of the whole batch.
            Trouble::MustUndo | Trouble::Without(_) => End::Again(Again::Unexplained),
        }
    }

    async fn after_store_error(
        &self,
        batch: &Batch,
        error: StoreError,
        prior: u32,
        charged: &mut u64,
    ) -> End {
        let alone = batch.items.len() == 1;
        match error {
            StoreError::Busy => End::Again(Again::Busy),
            StoreError::Indeterminate(cause) => {
                warn!(target: TARGET, cause = %error_chain(&*cause), "the answer to a commit was lost, claiming again");
                End::Again(Again::Indeterminate)
            }
            StoreError::HandlerEndedTransaction | StoreError::Misconfigured { .. } => {
                End::Fatal(error)
            }
            StoreError::RolledBack(_) => match self.blame(&error) {
                Blame::Outage => {
                    debug!(target: TARGET, cause = %error_chain(&error), "the store is away");
                    End::Again(Again::Outage)
                }
                Blame::Contention => {
                    debug!(target: TARGET, cause = %error_chain(&error), "transactions got in each other's way");
                    End::Again(Again::Contention)
                }
                Blame::Event if alone => {
                    self.charge(batch, prior, &error_chain(&error), charged)
                        .await
                }
                Blame::Event => {
                    debug!(target: TARGET, cause = %error_chain(&error), events = batch.items.len(), "a batch failed as a whole");
                    End::Again(Again::Unexplained)
                }
            },
        }
    }

    /// Whose fault an error is.
    fn blame(&self, error: &(dyn std::error::Error + 'static)) -> Blame {
        let cause = error.source().unwrap_or(error);
        if let Some(NobodysFault(blame, _)) = cause.downcast_ref() {
            return *blame;
        }
        blame(&self.store, error)
    }

    fn begin(&self, batch: &Batch) -> Begin {
        let mut begin = Begin::new(self.consumer);
        if batch.split {
            begin.claim_wait = Duration::from_millis(10);
        }
        begin
    }

    /// An event failed standing alone: the attempt counts once it is written down, which also shows
    /// that the store is healthy.
    async fn charge(&self, batch: &Batch, prior: u32, error: &str, charged: &mut u64) -> End {
        let item = &batch.items[0];
        if item.cancelled.is_cancelled() {
            // It may have failed because it was told to give up.
            return End::Fates(vec![Fate::Failed {
                wait: Duration::ZERO,
            }]);
        }
        let Ok(key) = &item.key else {
            // Only the writing of its dead letter can have failed.
            return End::Again(Again::Outage);
        };
        let wait = self
            .retry
            .wait(prior + 1, &mut StdRng::seed_from_u64(batch.seed));
        match self.store.charge(self.consumer, key, error, wait).await {
            Ok(attempts) => {
                *charged += 1;
                warn!(
                    target: TARGET,
                    event = %key, position = %item.delivery.position, attempts, error, wait = ?wait,
                    "an event failed"
                );
                if attempts >= self.retry.max_attempts {
                    return self
                        .set_aside_exhausted(batch, item, key, attempts, error)
                        .await;
                }
                End::Fates(vec![Fate::Failed { wait }])
            }
            Err(store_error) => {
                debug!(target: TARGET, cause = %error_chain(&store_error), "a failed attempt could not be written down, and is not counted");
                End::Again(Again::Outage)
            }
        }
    }
}
