//! The runtime: from a source to the handler's effect, and back to the broker.

mod beat;
mod circuit;
mod config;
mod driver;
mod item;
mod lag_guard;
mod opening;
mod redrive;
mod run_error;
mod short_window;
mod unit;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

pub use config::ConsumerConfig;
pub use redrive::{Redrive, RedriveReport};
pub use run_error::RunError;

use self::unit::Work;
use crate::batch_handler::BatchHandler;
use crate::dead_letter::DeadLetterBounds;
use crate::fingerprint::Fingerprint;
use crate::flow::Limit;
use crate::handler::Handler;
use crate::health::{Cause, HealthHandle};
use crate::identify::{IdFrom, TenantFrom, TimeFrom};
use crate::lanes::Lanes;
use crate::late_policy::LatePolicy;
use crate::retry::RetrySchedule;
use crate::source::Source;
use crate::stats::{Stats, StatsHandle};
use crate::store::Store;
use crate::window::ReplayHorizon;

/// A consumer: handles every event of a source once, as far as its database can tell.
///
/// ```
/// # use oneffect_core::{Consumer, Handler, RunError, Source, Store};
/// # async fn run<S: Store>(kafka: impl Source, postgres: S, ledger: impl Handler<S>) -> Result<(), RunError> {
/// let stats = Consumer::new("ledger", kafka, postgres, ledger)
///     .workers(4)
///     .run(oneffect_core::shutdown_signal())
///     .await?;
/// println!("{} events took effect", stats.applied);
/// # Ok(())
/// # }
/// ```
///
/// A handler that was written for another store is a compile error:
///
/// ```compile_fail
/// # use oneffect_core::{Consumer, Context, Handler, HandlerResult, Source, Store, done};
/// struct Ledger;
/// struct OneStore;
/// impl Handler<OneStore> for Ledger {
///     type Event = u32;
///     async fn handle(&self, _: &mut Context<'_, OneStore>, _: u32) -> HandlerResult { done() }
/// }
/// # fn run<OtherStore: Store>(source: impl Source, other_store: OtherStore) {
/// Consumer::new("ledger", source, other_store, Ledger);
/// # }
/// ```
pub struct Consumer<Src, S, H, Calls = OneByOne> {
    name: Box<str>,
    source: Src,
    store: S,
    handler: H,
    config: ConsumerConfig,
    stats: StatsHandle,
    health: HealthHandle,
    calls: PhantomData<Calls>,
}

/// Marks a consumer whose [`Handler`] is called for each event.
#[derive(Debug)]
pub struct OneByOne(());

/// Marks a consumer whose [`BatchHandler`] is called for all fresh events of a batch.
#[derive(Debug)]
pub struct AllAtOnce(());

impl<Src: Source, S: Store, H: Handler<S>> Consumer<Src, S, H> {
    /// A consumer of that name. The name is part of every event key: two consumers with different
    /// names each handle every event once, and renaming one makes it handle all of them again.
    pub fn new(name: impl Into<Box<str>>, source: Src, store: S, handler: H) -> Self {
        Self::with(name.into(), source, store, handler)
    }

    /// Opens store and source, and runs until `shutdown` completes, then finishes the units that run, gives everything else
    /// back to the broker, and returns the final numbers.
    ///
    /// # Errors
    /// What a person must mend before it can start, what it cannot recover from while running, and
    /// a stop that took longer than its deadline: see [`RunError`]. No error loses or doubles an
    /// effect.
    ///
    /// # Cancel safety
    /// Dropping the future is a crash as far as the outside can tell: running units roll back, and
    /// the broker delivers again. Prefer `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Stats, RunError> {
        self.run_with(unit::Each, shutdown).await
    }
}

impl<Src: Source, S: Store, H: BatchHandler<S>> Consumer<Src, S, H, AllAtOnce> {
    /// A consumer of that name whose handler is given whole batches; see [`Consumer::new`] and
    /// [`BatchHandler`].
    pub fn batches(name: impl Into<Box<str>>, source: Src, store: S, handler: H) -> Self {
        Self::with(name.into(), source, store, handler)
    }

    /// As the `run` of a consumer that handles events one by one.
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Stats, RunError> {
        self.run_with(unit::Whole, shutdown).await
    }
}

impl<Src, S, H, Calls> Consumer<Src, S, H, Calls> {
    fn with(name: Box<str>, source: Src, store: S, handler: H) -> Self {
        Self {
            name,
            source,
            store,
            handler,
            config: ConsumerConfig::default(),
            stats: StatsHandle::default(),
            health: HealthHandle::starting(),
            calls: PhantomData,
        }
    }

    /// Replaces all options at once.
    #[must_use]
    pub fn config(mut self, config: ConsumerConfig) -> Self {
        self.config = config;
        self
    }

    /// Where the event id comes from; see [`IdFrom`].
    #[must_use]
    pub fn event_id(mut self, from: IdFrom) -> Self {
        self.config.event_id = from;
        self
    }

    /// Whose event it is, where several producers choose their ids without knowing of each other;
    /// see [`TenantFrom`].
    #[must_use]
    pub fn tenant(mut self, from: TenantFrom) -> Self {
        self.config.tenant = from;
        self
    }

    /// Takes an event's day from a time beside its id, where the id has none inside (as UUIDv7 and
    /// ULID have): the event is remembered under that day, which keeps the inbox fast and lets it
    /// drop whole days. Without this, such events are remembered by when they were recorded, which
    /// is always right.
    ///
    /// **Only if the producer stores that time with the event and repeats it with every sending.** A
    /// producer that stamps each sending anew gives a repeat after midnight another day, under which
    /// nobody remembers it, and it takes effect twice, unnoticed until maintenance compares the two
    /// days. That is why the name asks for a promise, and why the broker's own timestamp, which is
    /// of one sending by definition, never qualifies.
    ///
    /// An event without a readable time is set aside. The choice is kept with the consumer's name,
    /// and another one is refused at start.
    #[must_use]
    pub fn producer_repeats_time(mut self, from: TimeFrom) -> Self {
        self.config.producer_repeats_time = Some(from);
        self
    }

    /// What becomes of events whose day is forgotten; see [`LatePolicy`].
    #[must_use]
    pub fn late(mut self, policy: LatePolicy) -> Self {
        self.config.late = policy;
        self
    }

    /// Finds out events of other content that come under a key that is settled; see
    /// [`Fingerprint`], which also says why it is off by default.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.config.fingerprint = fingerprint;
        self
    }

    /// How large a handler's reply may be; see [`ConsumerConfig::reply_limit`].
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.config.reply_limit = bytes;
        self
    }

    /// How many units of work run at once; see [`ConsumerConfig::workers`].
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// What is handled in order; see [`Lanes`].
    #[must_use]
    pub fn lanes(mut self, lanes: Lanes) -> Self {
        self.config.lanes = lanes;
        self
    }

    /// The largest batch; see [`ConsumerConfig::batch`].
    #[must_use]
    pub fn batch(mut self, limit: Limit) -> Self {
        self.config.batch = limit;
        self
    }

    /// What may be in flight; see [`ConsumerConfig::in_flight`].
    #[must_use]
    pub fn in_flight(mut self, limit: Limit) -> Self {
        self.config.in_flight = limit;
        self
    }

    /// When failed events run again; see [`RetrySchedule`].
    #[must_use]
    pub fn retry(mut self, schedule: RetrySchedule) -> Self {
        self.config.retry = schedule;
        self
    }

    /// How long failures excuse their events while nothing at all succeeds; see
    /// [`ConsumerConfig::outage_patience`].
    #[must_use]
    pub fn outage_patience(mut self, patience: Duration) -> Self {
        self.config.outage_patience = patience;
        self
    }

    /// Ends crash loops: an event whose handler ends the process `crashes` times in a row, by itself,
    /// is set aside as a dead letter of the kind [`Crashed`](crate::DeadLetterKind::Crashed), in its
    /// place in its lane. Off by default; 3 is a good number.
    ///
    /// A handler's panic is caught and needs none of this. But an abort, a stack that overflows, or
    /// memory that runs out take the process along, and whoever is given the event next, one after
    /// the other: to everybody else the consumer is simply down.
    ///
    /// # How it finds out
    /// Before a batch's handlers begin, it is written down in a small transaction of its own that its
    /// events were *started*; this is forgotten within the unit that settles them, or once the batch
    /// has ended in any other good order. An event that another process has started, and whose end
    /// was never told, is a suspect, and no more: it runs when nothing else of this consumer does. If
    /// *that* process ends without a word, nothing else can have ended it, and this is what counts.
    ///
    /// So what is killed in company (`kill -9`, a lost machine) only runs alone next, and is cleared
    /// once its handler has returned, with success or without. A stop in good order forgets all that
    /// was started, also what it aborts at its deadline. A process that is still at work on a
    /// partition that was taken from it, or that is frozen, holds its event key in an open
    /// transaction: whoever finds the key held strikes that count again. What cannot be told from a
    /// crash is a process that is killed while it runs a suspect, so many times in a row, on the
    /// very same event. Consumers that share a process do not know of each other's suspects; where
    /// their handlers may end it, give each a process of its own.
    ///
    /// # What it costs
    /// One small transaction more for each batch, and one statement more in its unit. After a crash,
    /// what was in flight runs one by one. What ends the process before handlers begin (a closure
    /// that finds event ids, for one) is not guarded.
    #[must_use]
    pub fn crash_guard(mut self, crashes: u32) -> Self {
        self.config.crash_guard = Some(crashes);
        self
    }

    /// How long one handler may take; see [`ConsumerConfig::handler_timeout`].
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.config.handler_timeout = timeout;
        self
    }

    /// How much of what cannot be handled is kept; see [`DeadLetterBounds`].
    #[must_use]
    pub fn dead_letters(mut self, bounds: DeadLetterBounds) -> Self {
        self.config.dead_letters = bounds;
        self
    }

    /// Sets aside the events that the handler rejects; see
    /// [`ConsumerConfig::set_aside_rejected`].
    #[must_use]
    pub fn set_aside_rejected(mut self) -> Self {
        self.config.set_aside_rejected = true;
        self
    }

    /// How often a dead letter is redriven in vain; see [`ConsumerConfig::redrive_attempts`].
    #[must_use]
    pub fn redrive_attempts(mut self, attempts: u32) -> Self {
        self.config.redrive_attempts = attempts;
        self
    }

    /// How long a stop may take; see [`ConsumerConfig::drain`].
    #[must_use]
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.config.drain = deadline;
        self
    }

    /// Says that somebody outside of the broker may publish an event again, up to so long after its
    /// first publication: a webhook sender with retries, an outbox with a backlog, an operator with
    /// an archive. The window has to cover that, and the broker's own retention on top.
    ///
    /// The name of one of the source's own ways (`topic transfers`) speaks for that way instead: a
    /// compacted topic keeps its records for ever, and only people know how far back they will ever
    /// be read again.
    #[must_use]
    pub fn replay_horizon(mut self, name: impl Into<String>, after: Duration) -> Self {
        let horizon = ReplayHorizon::new(name, after);
        self.config.replay_horizons.push(horizon);
        self
    }

    /// Starts although duplicates may come after their events are forgotten, and would take effect
    /// again (or, with a day of their own, be dead letters). The reason is logged at every start.
    #[must_use]
    pub fn accept_short_window(mut self, reason: impl Into<Box<str>>) -> Self {
        self.config.accept_short_window = Some(reason.into());
        self
    }

    /// Makes every random choice from this seed; see [`ConsumerConfig::seed`].
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// Looks at the numbers while the consumer runs.
    pub fn stats(&self) -> StatsHandle {
        self.stats.clone()
    }

    /// Looks at whether the consumer is ready, and why not: for a `/readyz`.
    pub fn health(&self) -> HealthHandle {
        self.health.clone()
    }

    async fn run_with<W: Work<S>>(
        mut self,
        work: impl FnOnce(H) -> W,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Stats, RunError>
    where
        Src: Source,
        S: Store,
    {
        // However this ends: what no longer runs is not ready.
        let _ended = Ended(self.health.clone());
        self.config.validate().map_err(RunError::Config)?;
        let mut shutdown = std::pin::pin!(shutdown);
        let consumer = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(self.stats.snapshot()),
            consumer = opening::open(&self.store, &self.name, self.config.days_from(), &self.health) => consumer.map_err(RunError::Store)?,
        };
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(self.stats.snapshot()),
            checked = short_window::check(&self.name, &self.store, &mut self.source, &self.config) => checked?,
        }
        let mut source: Box<dyn Source> = Box::new(self.source);
        source.open().await.map_err(RunError::Source)?;
        let shop = unit::Workshop::new(consumer, self.store, work(self.handler), &self.config);
        let driver = driver::Driver::new(
            &self.name,
            source,
            shop,
            self.config,
            self.stats,
            self.health,
        );
        // Boxed, or whoever awaits this would hold all of the driver on the stack.
        Box::pin(driver.run(shutdown)).await
    }
}

/// Says so when a consumer has ended, also when its future was dropped.
struct Ended(HealthHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.raise(Cause::Stopping, "");
    }
}

impl<Src, S: fmt::Debug, H, Calls> fmt::Debug for Consumer<Src, S, H, Calls> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
