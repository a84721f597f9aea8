//! One batch in one transaction: the first run, and what follows when it fails.

mod exhausted;
mod handle;
mod progress;
mod redrive;
mod run;
mod untimely;
mod whole;
mod work;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tracing::{debug, warn};

pub(super) use self::redrive::Redriven;
use self::run::{NobodysFault, Savepoints, Trouble};
use self::work::Plan;
pub(super) use self::work::{Each, Whole, Work};
use super::beat::{Beat, Pulse};
use super::config::ConsumerConfig;
use super::item::{Fate, Item};
use super::lag_guard::{Lag, LagGuard};
use super::opening::blame;
use crate::caution::Caution;
use crate::handler::error_chain;
use crate::late_policy::LatePolicy;
use crate::pace::Pace;
use crate::retry::{LONGEST_WAIT, RetrySchedule};
use crate::stats::StatsHandle;
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
    /// How long an event of now may run again by our own retries.
    horizon: Duration,
    late: LatePolicy,
    caution: Caution,
    pub(super) pulse: Arc<Pulse>,
    pub(super) guard: LagGuard,
    pace: Pace,
    config: ConsumerConfig,
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
    /// An event that fails is not to be blamed: everything fails.
    pub(super) excused: bool,
}

/// How a unit ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) end: End,
    pub(super) took: Duration,
    pub(super) second_run: bool,
    pub(super) charged: u64,
    /// What the last failure said, if there was one.
    pub(super) failure: Option<String>,
}

#[derive(Debug)]
pub(super) enum End {
    /// It committed, and this is what became of each item.
    Fates(Vec<Fate>),
    /// Nothing of it happened, or nobody knows: all of it runs again.
    Again(Again),
    /// The consumer must not go on.
    Fatal(StoreError),
    /// Nor here: it lags too far behind.
    Lagging(Lag),
}

/// Why a whole batch runs again, which says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// The store is away.
    Outage,
    /// Something else that a handler needs is away.
    Elsewhere,
    /// The only event of the batch failed as everything does, and is not blamed; it waits for as
    /// long as if it were.
    Excused(Duration),
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
            horizon: config.longest_failure().min(LONGEST_WAIT),
            late: config.late,
            caution: Caution::default(),
            pulse: Arc::default(),
            guard: LagGuard::default(),
            pace: Pace::new(),
            config: config.clone(),
        }
    }

    /// What is done beside the units of work.
    pub(super) fn beat(&self, name: &str, stats: StatsHandle) -> Beat<S> {
        let (store, pulse) = (self.store.clone(), Arc::clone(&self.pulse));
        Beat::new(name, store, self.consumer, pulse, stats)
    }

    /// Hands in what was counted since the last beat, if that works in time.
    pub(super) async fn flush(&self, deadline: Duration) {
        let flush = self.pulse.flush(&self.store, self.consumer);
        if let Ok(Err(store_error)) = tokio::time::timeout(deadline, flush).await {
            debug!(target: TARGET, cause = %error_chain(&store_error), "the ages of the last duplicates are not noted");
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
            failure: None,
        };
        report.end = self.run_until_it_ends(&batch, &mut report).await;
        report.took = begun.elapsed();
        if let End::Fates(_) = report.end {
            self.pace.observe(report.took);
        }
        report
    }

    async fn run_until_it_ends(&self, batch: &Batch, report: &mut Report) -> End {
        let savepoints = if self.caution.advises_savepoints() {
            Savepoints::Around
        } else {
            Savepoints::None
        };
        let mut plan = Plan::first(savepoints);
        let mut result = self.run_once(batch, &mut plan, report).await;
        for _ in 0..MOST_RUNS {
            match &mut result {
                Err(Trouble::MustUndo) => {}
                Err(Trouble::Unwritten(error)) if self.blame(error) == Blame::Event => {}
                Err(Trouble::Without(events)) => {
                    plan.without.extend(events.drain(..));
                    result = self.run_once(batch, &mut plan, report).await;
                    continue;
                }
                _ => break,
            }
            // The second run undoes with savepoints, and never asks for this again.
            report.second_run = true;
            plan.savepoints = Savepoints::Around;
            result = self.run_once(batch, &mut plan, report).await;
        }
        let trouble = match result {
            Ok(fates) => return End::Fates(fates),
            Err(trouble) => trouble,
        };
        match trouble {
            Trouble::Failed { prior, error } => self.charge(batch, prior, &error, report).await,
            Trouble::TimedOut { at, .. } if batch.items.len() > 1 => {
                End::Again(at.map_or(Again::Unexplained, Again::TimedOut))
            }
            Trouble::TimedOut { prior, .. } => {
                let error = self.too_long();
                self.charge(batch, prior, &error, report).await
            }
            Trouble::Store { error, prior } => {
                self.after_store_error(batch, error, prior, report).await
            }
            Trouble::Lagging(lag) => End::Lagging(lag),
            Trouble::Unwritten(error) => self.after_store_error(batch, error, 0, report).await,
            // Too many fail for runs of the whole batch.
            Trouble::MustUndo | Trouble::Without(_) => End::Again(Again::Unexplained),
        }
    }

    async fn after_store_error(
        &self,
        batch: &Batch,
        error: StoreError,
        prior: u32,
        report: &mut Report,
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
            StoreError::RolledBack(ref cause) => match self.blame(&error) {
                Blame::Outage if cause.is::<NobodysFault>() => {
                    debug!(target: TARGET, %cause, "what a handler needs is away");
                    report.failure = Some(cause.to_string());
                    End::Again(Again::Elsewhere)
                }
                Blame::Outage => {
                    debug!(target: TARGET, cause = %error_chain(&error), "the store is away");
                    report.failure = Some(error_chain(&error));
                    End::Again(Again::Outage)
                }
                Blame::Contention => {
                    debug!(target: TARGET, cause = %error_chain(&error), "transactions got in each other's way");
                    End::Again(Again::Contention)
                }
                Blame::Event if alone => {
                    self.charge(batch, prior, &error_chain(&error), report)
                        .await
                }
                Blame::Event => {
                    debug!(target: TARGET, cause = %error_chain(&error), events = batch.items.len(), "a batch failed as a whole");
                    End::Again(Again::Unexplained)
                }
            },
        }
    }

    fn too_long(&self) -> String {
        let timeout = self.handler_timeout;
        format!("the handler took longer than its {timeout:?}")
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
        begin.claim_wait = if batch.split {
            Duration::from_millis(10)
        } else {
            self.pace.worth_waiting()
        };
        begin.late = self.late.at(self.pulse.now());
        begin
    }

    /// An event failed standing alone: the attempt counts once it is written down, which also shows
    /// that the store is healthy.
    async fn charge(&self, batch: &Batch, prior: u32, error: &str, report: &mut Report) -> End {
        let item = &batch.items[0];
        report.failure = Some(error.to_owned());
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
        if batch.excused {
            debug!(target: TARGET, event = %key, error, "an event failed as everything does, and is not blamed");
            return End::Again(Again::Excused(wait));
        }
        match self.store.charge(self.consumer, key, error, wait).await {
            Ok(attempts) => {
                report.charged += 1;
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
                report.failure = Some(error_chain(&store_error));
                End::Again(Again::Outage)
            }
        }
    }
}
