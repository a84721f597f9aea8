//! Redriving dead letters in a program made for it.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::config::ConsumerConfig;
use super::opening;
use super::run_error::RunError;
use super::unit::{Each, Redriven, Work, Workshop};
use crate::handler::Handler;
use crate::health::HealthHandle;
use crate::letters::{LetterFilter, LetterId, RedriveAs, Requested};
use crate::store::Store;

/// How many letters are looked at together.
const PAGE: u32 = 256;

/// What has to wait for somebody else, or for the database, waits so long at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// Redrives a consumer's dead letters: each in a unit of work of its own, as its event would have
/// been handled, in which the letter goes and the inbox row changes.
///
/// A consumer that runs does the same by itself with the letters that are marked
/// ([`DeadLetters::request_redrive`](crate::DeadLetters::request_redrive)), so this is for a
/// consumer that does not, or for a handler that is there to mend.
///
/// ```
/// # use oneffect_core::{Handler, LetterFilter, DeadLetterKind, Redrive, RedriveAs, RunError, Store};
/// # async fn run<S: Store>(postgres: S, ledger: impl Handler<S>) -> Result<(), RunError> {
/// let mut exhausted = LetterFilter::default();
/// exhausted.kinds.push(DeadLetterKind::Exhausted);
/// let report = Redrive::new("ledger", postgres, ledger)
///     .run(exhausted, RedriveAs::Itself)
///     .await?;
/// println!("{} took effect, {} are still there", report.applied, report.given_up);
/// # Ok(())
/// # }
/// ```
pub struct Redrive<S, H> {
    name: Box<str>,
    store: S,
    handler: H,
    config: ConsumerConfig,
}

/// What a redrive came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedriveReport {
    /// How many letters the filter found, and which of them cannot be redriven so.
    pub requested: Requested,
    /// Letters whose event took effect.
    pub applied: u64,
    /// Letters whose event the handler refused for good.
    pub rejected: u64,
    /// Letters whose event was settled meanwhile in another way.
    pub was_settled: u64,
    /// Letters that failed as often as they may, and are still there.
    pub given_up: u64,
}

impl<S: Store, H: Handler<S>> Redrive<S, H> {
    /// Redrives letters of the consumer of that name, by this handler.
    pub fn new(name: impl Into<Box<str>>, store: S, handler: H) -> Self {
        Self {
            name: name.into(),
            store,
            handler,
            config: ConsumerConfig::default(),
        }
    }

    /// The options of the consumer: where event id, tenant and day come from, what fingerprint is
    /// taken, how long a handler may take, how often a redrive may fail. Give those that the
    /// consumer has.
    #[must_use]
    pub fn config(mut self, config: ConsumerConfig) -> Self {
        self.config = config;
        self
    }

    /// Marks the letters of the consumer that a filter finds, and redrives all that are marked, one
    /// after the other, until none is left: each took effect, was settled otherwise, or has failed
    /// [`ConsumerConfig::redrive_attempts`] times. A letter that fails holds back those behind it in
    /// its lane until it has ended in one of these ways.
    ///
    /// # Errors
    /// [`RunError::Config`] for options that cannot work, and a filter for another consumer;
    /// [`RunError::Store`] when the store cannot be used. What was not redriven is still marked, and
    /// what was is done.
    ///
    /// # Cancel safety
    /// Dropping the future is safe: each letter was redriven, or is still there and marked.
    pub async fn run(
        self,
        mut filter: LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<RedriveReport, RunError> {
        self.config.validate().map_err(RunError::Config)?;
        let other = filter.consumer.replace(self.name.clone());
        if let Some(other) = other.filter(|other| *other != self.name) {
            return Err(RunError::Config(format!(
                "the filter asks for letters of {other:?}, and this redrives those of {:?}",
                self.name
            )));
        }
        let health = HealthHandle::starting();
        let consumer = opening::open(&self.store, &self.name, self.config.days_from(), &health)
            .await
            .map_err(RunError::Store)?;
        let requested = self.store.request_redrive(&filter, redrive_as).await;
        let mut report = RedriveReport {
            requested: requested.map_err(RunError::Store)?,
            ..RedriveReport::default()
        };
        let mut rng = (self.config.seed).map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        let shop = Workshop::new(consumer, self.store, Each(self.handler), &self.config);
        while let Some(wait) = pass(&shop, &self.name, &mut report, &mut rng).await? {
            sleep(wait).await;
        }
        Ok(report)
    }
}

/// Goes through all marked letters once, in order. Returns how long to wait before the next pass;
/// `None` when nothing is marked any more.
async fn pass<S: Store, W: Work<S>>(
    shop: &Workshop<S, W>,
    name: &str,
    report: &mut RedriveReport,
    rng: &mut StdRng,
) -> Result<Option<Duration>, RunError> {
    let mut blocked = HashSet::new();
    let mut after: Option<LetterId> = None;
    let mut wait = PATIENCE;
    loop {
        let letters = shop.requested_redrives(after, PAGE).await;
        let letters = letters.map_err(RunError::Store)?;
        let Some(last) = letters.last() else {
            return Ok(after.map(|_| wait));
        };
        after = Some(last.id);
        for letter in letters {
            if letter.lane.is_some_and(|lane| blocked.contains(&lane)) {
                continue;
            }
            if !letter.wait.is_zero() {
                wait = wait.min(letter.wait);
                blocked.extend(letter.lane);
                continue;
            }
            let redriven = shop
                .redrive(&letter, CancellationToken::new(), rng.next_u64())
                .await;
            redriven.log(name, letter.id);
            match redriven {
                Redriven::Applied => report.applied += 1,
                Redriven::Rejected(_) => report.rejected += 1,
                Redriven::WasSettled(_) => report.was_settled += 1,
                Redriven::GivenUp(_) => report.given_up += 1,
                Redriven::Fatal(store_error) => return Err(RunError::Store(store_error)),
                Redriven::Failed(_) | Redriven::NotNow | Redriven::Later(_) => {
                    blocked.extend(letter.lane);
                    continue;
                }
            }
            // There may be others that it held back.
            wait = Duration::ZERO;
        }
    }
}

impl<S: fmt::Debug, H> fmt::Debug for Redrive<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("name", &self.name)
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
