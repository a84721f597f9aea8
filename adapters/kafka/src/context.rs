//! What librdkafka calls: all of it on the poll thread, from within a poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use oneffect_core::{AssignmentId, Revocation, SourceEvent};
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::{debug, error, info, warn};

use crate::TARGET;
use crate::state::Shared;

/// What is remembered between callbacks.
#[derive(Debug)]
pub(crate) struct Context {
    shared: Arc<Shared>,
    /// How long a revocation waits for the runtime.
    drain: Duration,
    /// A callback ran: the poll that returned nothing did something nevertheless.
    served: AtomicBool,
    /// The text of the last error; the poll that returns it has only its code.
    last_error: Mutex<Option<String>>,
    /// The same, without what follows from others.
    last_cause: Mutex<Option<String>>,
    link: Mutex<Link>,
}

/// Whether we take part in the group, as far as we know.
#[derive(Debug)]
struct Link {
    reachable: bool,
    in_group: bool,
    told: bool,
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>, drain: Duration) -> Self {
        Self {
            shared,
            drain,
            served: AtomicBool::new(false),
            last_error: Mutex::new(None),
            last_cause: Mutex::new(None),
            link: Mutex::new(Link {
                reachable: true,
                in_group: false,
                told: false,
            }),
        }
    }

    /// Whether a callback ran since the last call.
    pub(crate) fn take_served(&self) -> bool {
        self.served.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Why brokers are out of reach, as far as is known.
    pub(crate) fn last_cause(&self) -> Option<String> {
        lock(&self.last_cause).clone().or_else(|| self.last_error())
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.shared.is_closing()
    }

    pub(crate) fn is_reachable(&self) -> bool {
        lock(&self.link).reachable
    }

    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.update_link(|link| link.reachable = reachable);
    }

    pub(crate) fn set_in_group(&self, in_group: bool) {
        self.update_link(|link| link.in_group = in_group);
    }

    fn update_link(&self, change: impl FnOnce(&mut Link)) {
        let mut link = lock(&self.link);
        change(&mut link);
        let connected = link.reachable && link.in_group;
        let changed = std::mem::replace(&mut link.told, connected) != connected;
        drop(link);
        if changed {
            self.shared.tell(SourceEvent::Connected(connected));
        }
    }

    fn assigned(&self, list: &TopicPartitionList) {
        let mut state = self.shared.lock();
        let elements = list.elements();
        let assignments: Vec<_> = elements
            .iter()
            .map(|element| state.assign(element.topic(), element.partition()))
            .collect();
        drop(state);
        if !assignments.is_empty() {
            self.shared.tell(SourceEvent::Assigned(assignments));
            self.shared.look_at_pauses();
        }
        // Also when nothing was added: a member without partitions is a member.
        self.set_in_group(true);
    }

    fn revoked(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let elements = list.elements();
        let mut state = self.shared.lock();
        let ids: Vec<AssignmentId> = elements
            .iter()
            .filter_map(|element| state.id(element.topic(), element.partition()))
            .collect();
        // What waits for the runtime must not reach it any more.
        state.drop_ready(&ids);
        drop(state);
        if consumer.assignment_lost() {
            self.lost(&ids);
        } else if !ids.is_empty() {
            self.give_away(consumer, &ids);
        }
    }

    /// Others may own these already: nothing is waited for and nothing is committed.
    fn lost(&self, ids: &[AssignmentId]) {
        let commits = self.shared.hold_commits();
        self.shared.lock().end(ids);
        drop(commits);
        self.set_in_group(false);
        if !ids.is_empty() {
            warn!(target: TARGET, partitions = ids.len(), "partitions were lost: the group went on without this member");
            let (revocation, _) = Revocation::new(ids.to_vec(), Duration::ZERO);
            self.shared.tell(SourceEvent::Revoked(revocation));
        }
    }

    fn give_away(&self, consumer: &BaseConsumer<Self>, ids: &[AssignmentId]) {
        /// The runtime looks at the deadline itself; this is for one that does not come back.
        const GRACE: Duration = Duration::from_millis(500);
        let (revocation, drained) = Revocation::new(ids.to_vec(), self.drain);
        self.shared.tell(SourceEvent::Revoked(revocation));
        let stop = || self.shared.is_closing();
        if block_on(drained, Instant::now() + self.drain + GRACE, stop).is_none() {
            debug!(target: TARGET, "a revocation was not waited for to the end");
        }
        let commits = self.shared.hold_commits();
        let offsets = self.shared.lock().end(ids);
        if let Err(commit_error) = commits.commit(consumer, &offsets) {
            warn!(target: TARGET, error = %commit_error, partitions = offsets.len(), "what was settled last could not be committed before a revocation; the next owner will find duplicates");
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.served.store(true, Ordering::Relaxed);
        // Its errors are mostly connections that it opens again, and come as events as well.
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                error!(target: "librdkafka", facility, "{message}");
            }
            RDKafkaLogLevel::Warning => warn!(target: "librdkafka", facility, "{message}"),
            RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Notice
            | RDKafkaLogLevel::Info
            | RDKafkaLogLevel::Debug => debug!(target: "librdkafka", facility, "{message}"),
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.served.store(true, Ordering::Relaxed);
        info!(target: "librdkafka", statistics = %String::from_utf8_lossy(statistics));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.served.store(true, Ordering::Relaxed);
        if error.rdkafka_error_code() != Some(Code::AllBrokersDown) {
            *lock(&self.last_cause) = Some(reason.to_owned());
        }
        *lock(&self.last_error) = Some(reason.to_owned());
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        self.served.store(true, Ordering::Relaxed);
        match rebalance {
            // A partition that was paused when it was taken away is still paused in the client when
            // it comes back (confluent-kafka-go #193). In a list of its own: this notes errors in
            // it, of partitions that the client has not met before.
            Rebalance::Assign(list) => {
                let mut own = TopicPartitionList::with_capacity(list.count());
                for element in list.elements() {
                    own.add_partition(element.topic(), element.partition());
                }
                if let Err(resume_error) = consumer.resume(&own) {
                    warn!(target: TARGET, error = %resume_error, "partitions could not be resumed");
                }
            }
            Rebalance::Revoke(list) => self.revoked(consumer, list),
            Rebalance::Error(rebalance_error) => {
                warn!(target: TARGET, error = %rebalance_error, "a rebalance failed");
            }
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            self.assigned(list);
        }
    }
}

/// Waits for a future on this thread, which is the one that gets woken. `None` when it did not end
/// in time.
pub(crate) fn block_on<T>(
    future: impl Future<Output = T>,
    deadline: Instant,
    stop: impl Fn() -> bool,
) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = Pin::as_mut(&mut future).poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return None;
        }
        thread::park_timeout(left);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
