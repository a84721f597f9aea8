//! The thread that owns the consumer.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use oneffect_core::SourceError;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::TARGET;
use crate::arena::Arena;
use crate::commit;
use crate::config::KafkaConfig;
use crate::context::Context;
use crate::fault::{self, Fault, Quiet};
use crate::record::Record;
use crate::state::{Shared, Wanted};
use crate::topics;

/// What the thread is started with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) brokers: String,
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
    pub(crate) config: KafkaConfig,
    pub(crate) shared: Arc<Shared>,
}

/// What the thread answers.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Once the topics are known to exist and are subscribed to.
    pub(crate) opened: oneshot::Sender<Result<(), SourceError>>,
    /// Once the last offsets are committed; with the refusal, if they were not.
    pub(crate) committed: oneshot::Sender<Result<(), KafkaError>>,
    /// Dropped once the client is gone.
    pub(crate) left: oneshot::Sender<std::convert::Infallible>,
}

/// Runs until the source is closed.
pub(crate) fn run(setup: &Setup, answers: Answers) {
    let shared = &setup.shared;
    shared.this_is_the_poll_thread();
    let _alarm = Alarm(Arc::clone(shared));
    let consumer = match create(setup) {
        Ok(consumer) => consumer,
        Err(error) => {
            let _ = answers.opened.send(Err(error));
            return;
        }
    };
    if let Err(error) = subscribe(setup, &consumer) {
        // Told before the client is dropped, which may take its time.
        let _ = answers.opened.send(Err(error));
        return;
    }
    let consumer = Arc::new(consumer);
    let committer = match start_committer(setup, &consumer) {
        Ok(committer) => committer,
        Err(error) => {
            let _ = answers.opened.send(Err(error));
            return;
        }
    };
    let _ = answers.opened.send(Ok(()));
    let mut poller = Poller::new(setup, consumer);
    poller.run();
    committer.thread().unpark();
    // It ends with the commit that it may be waiting for, which the last one would wait for too.
    let _ = committer.join();
    let _ = answers.committed.send(poller.commit_last());
    // Leaves the group. This can hang without limit (rust-rdkafka #509), which is why nobody waits
    // for it without a deadline.
    drop(poller);
    drop(answers.left);
}

fn create(setup: &Setup) -> Result<BaseConsumer<Context>, SourceError> {
    let context = Context::new(Arc::clone(&setup.shared), setup.config.drain_limit());
    let client = setup.config.client_config(&setup.brokers, &setup.group);
    let consumer: Result<BaseConsumer<Context>, _> = client.create_with_context(context);
    let mut consumer = consumer.map_err(|error| {
        let hint = if error.to_string().contains("OpenSSL") {
            "; TLS and SCRAM need the feature `ssl`"
        } else {
            ""
        };
        SourceError::misconfigured(format!(
            "the client does not take these settings: {error}{hint}"
        ))
        .because(error)
    })?;
    let poll_thread = thread::current();
    consumer.set_nonempty_callback(move || poll_thread.unpark());
    Ok(consumer)
}

fn subscribe(setup: &Setup, consumer: &BaseConsumer<Context>) -> Result<(), SourceError> {
    let timeout = setup.config.connect_timeout;
    topics::check(consumer, &setup.topics, &setup.brokers, timeout)?;
    let topics: Vec<&str> = setup.topics.iter().map(String::as_str).collect();
    consumer
        .subscribe(&topics)
        .map_err(|error| SourceError::misconfigured("cannot subscribe").because(error))
}

fn start_committer(
    setup: &Setup,
    consumer: &Arc<BaseConsumer<Context>>,
) -> Result<JoinHandle<()>, SourceError> {
    let (shared, consumer) = (Arc::clone(&setup.shared), Arc::clone(consumer));
    let interval = setup.config.commit_interval;
    thread::Builder::new()
        .name("oneffect-commit".to_owned())
        .spawn(move || commit::run(&shared, &consumer, interval))
        .map_err(|error| SourceError::fatal("cannot start the thread that commits").because(error))
}

/// Tells the runtime if the thread dies: it would wait for ever.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(SourceError::fatal(
                "the thread that polls Kafka has panicked",
            ));
        }
    }
}

/// How often the thread looks around when nothing wakes it: an arriving record, a pause or a resume
/// wakes it at once.
const IDLE: Duration = Duration::from_millis(100);

/// How many records are read before pauses are looked at.
const BATCH: usize = 500;

/// How long reading may stand still while the runtime is behind or wants partitions paused, before
/// they are and polling goes on. Pausing throws away what is prefetched, to be fetched again; a
/// runtime that works has room again long before that.
const PATIENCE: Duration = Duration::from_millis(200);

struct Poller {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    /// A topic to ask for when looking for a broker; `None` asks for all.
    probe_topic: Option<String>,
    arena: Arena,
    quiet: Quiet,
    probed_at: Option<Instant>,
    full_since: Option<Instant>,
    /// All is paused, since the runtime is behind.
    held: bool,
    /// The source has failed; what is left is to close it.
    ended: bool,
}

impl Poller {
    fn new(setup: &Setup, consumer: Arc<BaseConsumer<Context>>) -> Self {
        let named = setup.topics.iter().find(|topic| !topics::is_pattern(topic));
        Self {
            consumer,
            shared: Arc::clone(&setup.shared),
            probe_topic: named.cloned(),
            arena: Arena::default(),
            quiet: Quiet::default(),
            probed_at: None,
            full_since: None,
            held: false,
            ended: false,
        }
    }

    fn run(&mut self) {
        while !self.shared.is_closing() {
            self.apply_pauses();
            self.look_for_brokers();
            if self.ended || self.waits_for_room() || !self.read() {
                thread::park_timeout(IDLE);
            }
        }
    }

    /// Reads what has arrived, a batch at most. Tells whether there may be more.
    fn read(&mut self) -> bool {
        let mut delivered = false;
        let mut more = true;
        for _ in 0..BATCH {
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => {
                    use rdkafka::Message;
                    let record = Record::copy(&message, &mut self.arena);
                    let mut state = self.shared.lock();
                    state.deliver(message.topic(), record);
                    delivered = true;
                    if state.is_full() {
                        break;
                    }
                }
                Some(Err(error)) => {
                    self.fault(&error);
                    if self.ended {
                        break;
                    }
                }
                // A poll that served a callback says that there is nothing, too.
                None if self.consumer.context().take_served() => {}
                None => {
                    more = false;
                    break;
                }
            }
        }
        if delivered {
            self.shared.delivered();
        }
        more
    }

    /// Whether reading must wait for the runtime to take what is there. It waits only briefly: then
    /// everything is paused, and polling goes on.
    fn waits_for_room(&mut self) -> bool {
        let state = self.shared.lock();
        let full = state.is_full() || state.awaits_pause();
        let ready = state.has_ready();
        drop(state);
        if self.held {
            if !ready {
                self.hold(false);
            }
            return false;
        }
        if !full {
            self.full_since = None;
            return false;
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return true;
        }
        self.full_since = None;
        if self.shared.lock().is_full() {
            self.hold(true);
        } else {
            self.apply(Wanted::All);
        }
        false
    }

    fn hold(&mut self, held: bool) {
        self.held = held;
        self.full_since = None;
        self.shared.look_at_pauses();
        self.apply_pauses();
    }

    fn apply_pauses(&mut self) {
        if self.shared.take_pauses_changed() {
            self.apply(if self.held {
                Wanted::Paused
            } else {
                Wanted::Resumed
            });
        }
    }

    fn apply(&mut self, wanted: Wanted) {
        let changes = self.shared.lock().pause_changes(wanted);
        let list = |partitions: &[(Arc<str>, i32)]| {
            let mut list = TopicPartitionList::with_capacity(partitions.len());
            for (topic, partition) in partitions {
                list.add_partition(topic, *partition);
            }
            list
        };
        let mut result = Ok(());
        if !changes.pause.is_empty() {
            result = self.consumer.pause(&list(&changes.pause));
        }
        if !changes.resume.is_empty() {
            result = result.and(self.consumer.resume(&list(&changes.resume)));
        }
        if let Err(error) = result {
            warn!(target: TARGET, %error, "partitions could not be paused or resumed");
        }
    }

    /// Commits what is left. Ends all assignments: nothing can be settled any more.
    fn commit_last(&mut self) -> Result<(), KafkaError> {
        let commits = self.shared.hold_commits();
        let mut state = self.shared.lock();
        let ids = state.ids();
        let offsets = state.end(&ids);
        drop(state);
        if self.consumer.assignment_lost() || self.consumer.client().fatal_error().is_some() {
            // Others may be further than we are.
            return Ok(());
        }
        commits.commit(&self.consumer, &offsets)
    }

    fn fault(&mut self, error: &KafkaError) {
        let context = self.consumer.context();
        let reason = context.last_error().unwrap_or_else(|| error.to_string());
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            return self.end(fault::fatal(code, &reason));
        }
        match Fault::of(code, &reason) {
            Fault::Ends(error) => self.end(error),
            Fault::AllBrokersDown => {
                // Said too early when a connection that was idle is closed: ask.
                if context.is_reachable() && !self.probe() {
                    warn!(target: TARGET, reason, "no broker is within reach");
                    self.consumer.context().set_reachable(false);
                }
            }
            Fault::Expelled => {
                warn!(target: TARGET, reason, "this process was held up for too long, and the group goes on without it; joining again");
                context.set_in_group(false);
            }
            Fault::Passing => {
                if let Some(suppressed) = self.quiet.admit(code, Instant::now()) {
                    warn!(target: TARGET, reason, suppressed, "the client reports an error, and goes on trying");
                }
            }
        }
    }

    fn end(&mut self, error: SourceError) {
        self.ended = true;
        self.shared.fail(error);
    }

    /// While no broker is within reach, nothing tells when one is again.
    fn look_for_brokers(&mut self) {
        const INTERVAL: Duration = Duration::from_secs(1);
        if self.consumer.context().is_reachable()
            || self.probed_at.is_some_and(|at| at.elapsed() < INTERVAL)
        {
            return;
        }
        if self.probe() {
            info!(target: TARGET, "a broker is within reach again");
            self.consumer.context().set_reachable(true);
        }
    }

    fn probe(&mut self) -> bool {
        const TIMEOUT: Duration = Duration::from_millis(500);
        let topic = self.probe_topic.as_deref();
        let found = self.consumer.fetch_metadata(topic, TIMEOUT).is_ok();
        self.probed_at = Some(Instant::now());
        found
    }
}
