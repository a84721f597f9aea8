//! Receives messages: as many long polls at a time as the queue fills.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::Message;
use oneffect_core::Delivery;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::api::{Api, CallError, CallErrorKind};
use crate::backoff::Backoff;
use crate::message::{Queue, delivery, receipt};
use crate::shared::{Gate, Shared};

/// A batch that is full says that there is more.
const FULL: usize = 10;

/// After one failure the next receive may still succeed; only a second one in a row is news.
const FAILURES_BEFORE_ALARM: u32 = 2;

const RETRY: Backoff = Backoff {
    shortest: Duration::from_millis(200),
    longest: Duration::from_secs(20),
};

type Batch = Vec<Delivery>;
type Place = mpsc::OwnedPermit<Batch>;

pub(crate) struct Receiver {
    api: Arc<Api>,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// Has a place for each poller. A receive is issued only with a place for what it brings, so
    /// a runtime that takes nothing is sent nothing.
    batches: mpsc::Sender<Batch>,
    max_pollers: usize,
    /// How many receives should be outstanding now.
    pollers: usize,
    outstanding: JoinSet<Received>,
    /// The attempts of a FIFO queue whose answer did not arrive. Asked again by the same id, SQS
    /// gives the same messages; by another, their groups would hide for a visibility timeout.
    unanswered: Vec<String>,
    failures: u32,
    resume_at: Instant,
    condition: Condition,
}

/// The end of one receive.
struct Received {
    place: Place,
    attempt: Option<String>,
    issued_at: Instant,
    answer: Result<Vec<Message>, CallError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Good,
    Throttled,
    Failing,
}

impl Receiver {
    pub(crate) fn new(
        api: Arc<Api>,
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        Self {
            api,
            shared,
            queue,
            max_pollers: batches.max_capacity(),
            batches,
            pollers: 1,
            outstanding: JoinSet::new(),
            unanswered: Vec::new(),
            failures: 0,
            resume_at: Instant::now(),
            condition: Condition::Good,
        }
    }

    /// Runs until it was stopped and every receive has been answered.
    pub(crate) async fn run(mut self) {
        let mut gate = self.shared.gate();
        loop {
            let now: Gate = *gate.borrow_and_update();
            if now.stopped && self.outstanding.is_empty() {
                return;
            }
            let wanted = now.is_open() && self.outstanding.len() < self.pollers;
            let resting = wanted && self.resume_at > Instant::now();
            tokio::select! {
                biased;
                Some(received) = self.outstanding.join_next() => self.received(received),
                // The other end is held by `self.shared`.
                _ = gate.changed() => {}
                () = tokio::time::sleep_until(self.resume_at), if resting => {}
                place = self.batches.clone().reserve_owned(), if wanted && !resting => match place {
                    Ok(place) => self.receive(place),
                    // The source has gone, and this task is about to be.
                    Err(_) => return,
                },
            }
        }
    }

    fn receive(&mut self, place: Place) {
        let attempt = self.queue.is_fifo.then(|| {
            (self.unanswered.pop()).unwrap_or_else(|| Uuid::now_v7().simple().to_string())
        });
        let api = Arc::clone(&self.api);
        self.outstanding.spawn(async move {
            let issued_at = Instant::now();
            let answer = api.receive(attempt.clone()).await;
            Received {
                place,
                attempt,
                issued_at,
                answer,
            }
        });
    }

    fn received(&mut self, received: Result<Received, JoinError>) {
        let received = match received {
            Ok(received) => received,
            // Nobody aborts receives but the dropping of their set. The source finds this task
            // ended, and tells the runtime.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return,
            },
        };
        match received.answer {
            Ok(messages) => {
                self.adapt(messages.len());
                self.recovered();
                self.hand_over(received.place, &messages);
            }
            Err(error) => {
                if error.kind != CallErrorKind::Refused {
                    self.unanswered.extend(received.attempt);
                }
                self.failed(&error, received.issued_at);
            }
        }
    }

    /// Gives the runtime what was received, or gives it back if the runtime has stopped. Which of
    /// the two is decided under the ledger's lock, where [`stop`](crate::Sqs) empties the channel.
    fn hand_over(&self, place: Place, messages: &[Message]) {
        let now = Instant::now();
        let mut ledger = self.shared.ledger();
        let receipts =
            (messages.iter()).filter_map(|message| Some((message, receipt(message, &self.queue)?)));
        if self.shared.is_stopped() {
            for (_, receipt) in receipts {
                ledger.give_back(&receipt, now);
            }
        } else {
            let batch: Batch = receipts
                .map(|(message, receipt)| {
                    let tag = ledger.received(&receipt, now);
                    delivery(message, &receipt, &self.queue, tag)
                })
                .collect();
            if !batch.is_empty() {
                place.send(batch);
            }
        }
        drop(ledger);
        if !messages.is_empty() {
            self.shared.settled.notify_one();
        }
    }

    /// More pollers while receives come back full, fewer while they do not.
    fn adapt(&mut self, messages: usize) {
        self.pollers = match messages {
            0 => 1,
            FULL.. => (self.pollers * 2).min(self.max_pollers),
            few if few < FULL / 2 => (self.pollers - 1).max(1),
            _ => self.pollers,
        };
    }

    fn recovered(&mut self) {
        self.failures = 0;
        if self.condition != Condition::Good {
            self.condition = Condition::Good;
            info!(queue = %self.queue.name, "receiving again");
        }
        self.shared.set_health(|health| health.receiving = true);
    }

    fn failed(&mut self, error: &CallError, issued_at: Instant) {
        debug!(queue = %self.queue.name, error = %error.message, "a receive failed");
        self.pollers = 1;
        // Receives that failed together are one failure.
        if self.failures > 0 && issued_at < self.resume_at {
            return;
        }
        self.failures += 1;
        self.resume_at = Instant::now() + RETRY.after(self.failures);
        if self.failures < FAILURES_BEFORE_ALARM {
            return;
        }
        let condition = match error.kind {
            CallErrorKind::Throttled => Condition::Throttled,
            CallErrorKind::Unreachable | CallErrorKind::Refused => Condition::Failing,
        };
        if self.condition != condition {
            self.condition = condition;
            warn!(queue = %self.queue.name, error = %error.message, "cannot receive, trying on");
        }
        self.shared
            .set_health(|health| health.receiving = condition != Condition::Failing);
    }
}
