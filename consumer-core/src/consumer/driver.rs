//! The loop that owns everything: it takes deliveries, forms batches, and settles what has ended.
//!
//! One task holds all state, so there is no lock; units of work run in tasks of their own.

mod pacing;
mod redriving;
mod settling;
mod stopping;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug_span, error, info, warn};

use self::redriving::Redriving;
use self::stopping::{Ending, Stop};
use super::circuit::Circuit;
use super::config::ConsumerConfig;
use super::item::Item;
use super::run_error::RunError;
use super::unit::{Batch, End, Report, Work, Workshop};
use crate::batch_size::BatchSize;
use crate::delivery::{AssignmentId, Delivery};
use crate::event_key::EventKey;
use crate::flow::{Change, Flow, Limit};
use crate::handler::error_chain;
use crate::health::{Cause, HealthHandle};
use crate::keys_in_flight::KeysInFlight;
use crate::lanes::{LaneId, LaneTable, Taken};
use crate::retry::LONGEST_WAIT;
use crate::source::{Assignment, Settle, Settlement, Source, SourceError, SourceEvent};
use crate::stats::{Stats, StatsHandle};
use crate::store::Store;
use crate::telemetry::{BATCH, CONSUMER, RECEIVE, SYSTEM, TARGET};

pub(super) struct Driver<S, W> {
    name: Box<str>,
    source: Box<dyn Source>,
    shop: Arc<Workshop<S, W>>,
    config: ConsumerConfig,
    stats: StatsHandle,
    health: HealthHandle,
    circuit: Circuit,
    rng: StdRng,
    batch_size: BatchSize,
    lanes: LaneTable<Arc<Item>>,
    keys: KeysInFlight<Arc<Item>>,
    flow: Flow,
    /// What is ours now, revocations under way included.
    assignments: BTreeMap<AssignmentId, Held>,
    revocations: Vec<Ending>,
    units: JoinSet<Report>,
    /// The unit that nothing else may run beside.
    quarantine: Option<task::Id>,
    /// Events whose unit was aborted at the end.
    aborted: Vec<EventKey>,
    /// What each running unit was given: a unit that dies gives nothing back itself.
    running: HashMap<task::Id, Taken<Arc<Item>>>,
    redriving: Redriving,
    /// Lanes whose next event would have to be set aside, which there is no room for.
    without_room: BTreeSet<LaneId>,
    /// Maintenance; it ends with the driver, if not before.
    beat: JoinSet<()>,
    stop: Option<Stop>,
    fatal: Option<RunError>,
    /// It has nothing to say any more, and may answer at once, again and again.
    source_failed: bool,
}

/// An assignment that is ours.
struct Held {
    name: Arc<str>,
    cancelled: CancellationToken,
}

impl<S: Store, W: Work<S>> Driver<S, W> {
    pub(super) fn new(
        name: &str,
        source: Box<dyn Source>,
        shop: Workshop<S, W>,
        config: ConsumerConfig,
        stats: StatsHandle,
        health: HealthHandle,
    ) -> Self {
        let workers = config.workers.min(shop.max_units().unwrap_or(usize::MAX));
        Self {
            name: name.into(),
            source,
            shop: Arc::new(shop),
            stats,
            health,
            circuit: Circuit::new(workers, config.outage_patience),
            rng: config
                .seed
                .map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64),
            batch_size: BatchSize::new(config.batch.messages),
            lanes: LaneTable::new(),
            keys: KeysInFlight::new(),
            flow: Flow::new(config.in_flight),
            assignments: BTreeMap::new(),
            revocations: Vec::new(),
            units: JoinSet::new(),
            quarantine: None,
            aborted: Vec::new(),
            running: HashMap::new(),
            redriving: Redriving::new(),
            without_room: BTreeSet::new(),
            beat: JoinSet::new(),
            stop: None,
            fatal: None,
            source_failed: false,
            config,
        }
    }

    pub(super) async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Stats, RunError> {
        let mut shutdown = pin!(shutdown);
        info!(target: TARGET, consumer = %self.name, source = self.source.system(), "consumer started");
        let beat = self.shop.beat(&self.name, self.stats.clone());
        self.beat.spawn(beat.run(self.rng.next_u64()));
        while !self.has_stopped() {
            if self.redriving.owes_a_turn() {
                self.form_batches();
            }
            self.redrive_next();
            self.form_batches();
            self.tell_flow();
            self.tell_room();
            let timer = self.next_timer();
            // Ended units come first: what is settled makes room. The source comes last: a stop or
            // a timer must not wait for a lull in the stream.
            tokio::select! {
                biased;
                () = &mut shutdown, if self.stop.is_none() => self.begin_stop(),
                Some(ended) = self.units.join_next_with_id(), if !self.units.is_empty() => {
                    self.unit_ended(ended);
                }
                Some(ended) = self.redriving.join_next() => self.errand_ended(ended),
                () = tokio::time::sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                    self.timer_fired();
                }
                event = self.source.next(), if !self.source_failed => self.source_says(event),
            }
        }
        self.close().await
    }

    fn source_says(&mut self, event: Result<SourceEvent, SourceError>) {
        match event {
            Ok(SourceEvent::Deliveries(deliveries)) => self.admit(deliveries),
            Ok(SourceEvent::Assigned(assignments)) => self.assigned(assignments),
            Ok(SourceEvent::Revoked(revocation)) => self.revoked(revocation),
            Ok(SourceEvent::Connected(connected)) => {
                if connected {
                    info!(target: TARGET, consumer = %self.name, "connected");
                } else {
                    warn!(target: TARGET, consumer = %self.name, "the source is out of reach; waiting for it");
                    self.health.raise(Cause::SourceAway, "");
                }
                self.connected(connected);
            }
            Err(source_error) => {
                error!(target: TARGET, consumer = %self.name, error = %error_chain(&source_error), "the source cannot go on");
                self.source_failed = true;
                self.fail(RunError::Source(source_error));
            }
        }
    }

    fn assigned(&mut self, assignments: Vec<Assignment>) {
        for Assignment { id, name } in assignments {
            info!(target: TARGET, consumer = %self.name, assignment = %name, "assigned");
            self.flow.assigned(id);
            let cancelled = CancellationToken::new();
            self.assignments.insert(id, Held { name, cancelled });
        }
        self.connected(true);
    }

    fn connected(&self, connected: bool) {
        if connected {
            self.health.clear(Cause::Starting);
            self.health.clear(Cause::SourceAway);
        }
        self.stats.update(|stats| stats.connected = connected);
    }

    /// Identifies deliveries and puts each where it waits: in its lane, or behind its first.
    fn admit(&mut self, deliveries: Vec<Delivery>) {
        let system = self.source.system();
        let span = debug_span!(
            target: TARGET, RECEIVE,
            { SYSTEM } = system, { CONSUMER } = &*self.name, { BATCH } = deliveries.len()
        );
        let _span = span.enter();
        let count = deliveries.len() as u64;
        self.stats.update(|stats| {
            stats.deliveries += count;
            stats.in_flight += count;
        });
        let mut dropped = 0;
        let mut released = Vec::new();
        let mut admitted = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let assignment = delivery.assignment;
            if self.stop.is_some() {
                released.push(Settlement {
                    assignment,
                    tag: delivery.tag,
                    settle: Settle::Release(Duration::ZERO),
                });
                continue;
            }
            // What was on its way when its assignment ended is not begun.
            let held = self.assignments.get(&assignment);
            let Some(held) = held.filter(|held| !held.cancelled.is_cancelled()) else {
                dropped += 1;
                continue;
            };
            let cancelled = held.cancelled.clone();
            let item = Arc::new(Item::new(&self.config, delivery, cancelled));
            self.flow.add(assignment, item.bytes);
            admitted.push(item);
        }
        let sent = admitted
            .iter()
            .map(|item| (item.assignment(), item.sent_on()));
        self.shop.guard.received(sent);
        for item in admitted {
            self.enqueue(item);
        }
        let (_, bytes) = self.flow.total();
        self.source.settle(&released);
        self.stats.update(|stats| {
            stats.in_flight -= dropped + released.len() as u64;
            stats.dropped += dropped;
            stats.released += released.len() as u64;
            stats.peak_bytes = stats.peak_bytes.max(bytes as u64);
        });
    }

    fn enqueue(&mut self, item: Arc<Item>) {
        let first = match &item.key {
            Ok(key) => self.keys.enter(key, Arc::clone(&item)),
            Err(_) => Some(item),
        };
        if let Some(item) = first {
            self.lanes.push(item.lane(), Arc::clone(&item), item.bytes);
        }
    }

    /// Gives what waits to the workers that are idle, an equal part to each: nothing waits for a
    /// batch to fill, and no worker is left out while another takes all. While the circuit is open,
    /// one event is tried now and then.
    fn form_batches(&mut self) {
        let now = Instant::now();
        self.tick_circuit(now);
        while self.stop.is_none() && self.quarantine.is_none() {
            let waiting = self.lanes.ready_items();
            let room = self
                .circuit
                .room(self.units.len() + self.redriving.running());
            if waiting == 0 || room == 0 {
                break;
            }
            let most = if self.circuit.is_open() {
                self.lanes.untried_first();
                1
            } else {
                waiting.div_ceil(room).min(self.batch_size.get())
            };
            let first = self.lanes.first();
            let alone = first.is_some_and(|item| item.suspect.load(Ordering::Relaxed));
            if alone && self.units.len() + self.redriving.running() > 0 {
                break;
            }
            let limit = Limit {
                messages: most,
                bytes: self.config.batch.bytes,
            };
            let Some(taken) = self.lanes.take(limit) else {
                break;
            };
            let lanes = taken.lanes.iter().enumerate();
            let batch = Batch {
                items: taken.items.clone(),
                lanes: lanes
                    .flat_map(|(at, &(_, count))| std::iter::repeat_n(at, count))
                    .collect(),
                split: taken.split,
                seed: self.rng.next_u64(),
                excused: self.circuit.excuses(now),
                alone,
            };
            let shop = Arc::clone(&self.shop);
            let unit = self.units.spawn(async move { shop.run(batch).await });
            self.circuit.begins(unit.id());
            self.quarantine = alone.then(|| unit.id());
            self.running.insert(unit.id(), taken);
        }
    }

    fn tell_flow(&mut self) {
        for change in self.flow.changes(|id| self.lanes.held(id)) {
            match change {
                Change::Pause(id) => {
                    self.source.pause(id);
                    self.stats.update(|stats| stats.pauses += 1);
                }
                Change::Resume(id) => self.source.resume(id),
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let revocations = self.revocations.iter().map(|ending| ending.deadline);
        let stop = self.stop.as_ref().map(|stop| stop.deadline);
        self.lanes
            .next_wake()
            .into_iter()
            .chain(revocations)
            .chain(stop)
            .chain(self.circuit.next_tick())
            .chain(self.next_look())
            .min()
    }

    fn timer_fired(&mut self) {
        let now = Instant::now();
        self.lanes.wake(now);
        self.end_revocations(now);
        self.abort_at_deadline(now);
    }

    fn unit_ended(&mut self, ended: Result<(task::Id, Report), task::JoinError>) {
        let (id, report) = match ended {
            Ok((id, report)) => (id, Some(report)),
            Err(join_error) => {
                if join_error.is_panic() {
                    // Handlers' panics are caught where they run: this one is the store's or ours.
                    error!(target: TARGET, consumer = %self.name, error = %join_error, "a unit of work panicked; its transaction is gone, and its events run again");
                }
                (join_error.id(), None)
            }
        };
        let Some(taken) = self.running.remove(&id) else {
            return;
        };
        self.quarantine.take_if(|unit| *unit == id);
        if self.stop.is_some() && report.is_none() {
            let keys = taken.items.iter().filter_map(|item| item.key.as_ref().ok());
            self.aborted.extend(keys.cloned());
        }
        if let Some(report) = &report {
            self.batch_size.observe(taken.items.len(), report.took);
            let (second_runs, charged) = (u64::from(report.second_run), report.charged);
            self.stats.update(|stats| {
                stats.units += 1;
                stats.second_runs += second_runs;
                stats.attempts_charged += charged;
            });
        }
        self.learn(id, report.as_ref(), &taken);
        match report.map(|report| report.end) {
            Some(End::Fates(fates)) => self.settle(&taken, &fates),
            Some(End::Again(again)) => self.put_back(&taken, Some(again)),
            Some(End::Suspects(suspects)) => self.set_apart(&taken, &suspects),
            Some(End::Fatal(store_error)) => {
                error!(target: TARGET, consumer = %self.name, error = %error_chain(&store_error), "the consumer must not go on");
                self.fail(RunError::Store(store_error));
                self.put_back(&taken, None);
            }
            Some(End::Lagging(lag)) => {
                if self.fatal.is_none() {
                    error!(target: TARGET, consumer = %self.name, %lag, "the backlog is older than the inbox remembers; the consumer stops before it is set aside");
                    self.health.raise(Cause::LagGuard, lag.to_string());
                }
                self.fail(RunError::Lagging(lag.to_string()));
                self.put_back(&taken, None);
            }
            None => self.put_back(&taken, None),
        }
        self.end_revocations(Instant::now());
    }

    fn fail(&mut self, run_error: RunError) {
        self.fatal.get_or_insert(run_error);
        if self.stop.is_none() {
            self.begin_stop();
        }
    }
}

fn later(wait: Duration) -> Instant {
    Instant::now() + wait.min(LONGEST_WAIT)
}
