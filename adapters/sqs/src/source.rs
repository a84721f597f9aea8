//! The source: one queue, its pollers and its settler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use oneffect_core::{
    Assignment, AssignmentId, Delivery, Finding, Reach, Settle, Settlement, Source, SourceError,
    SourceEvent, Window,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::api::Api;
use crate::config::SqsConfig;
use crate::ledger::Ledger;
use crate::message::{ASSIGNMENT, Queue};
use crate::open;
use crate::queues::Queues;
use crate::receiver::Receiver;
use crate::settler::Settler;
use crate::shared::{Health, Shared};

/// How long the group of a failed event may wait in this process. Its buffered messages are kept
/// hidden together meanwhile; a release would use up one of their receives each.
const LONGEST_ORDERED_HOLD: Duration = Duration::from_mins(1);

/// An SQS queue, standard or FIFO, as a source.
///
/// Needs the rights `sqs:ReceiveMessage`, `sqs:DeleteMessage`, `sqs:ChangeMessageVisibility` and,
/// for the check at start, `sqs:GetQueueAttributes`.
///
/// ```no_run
/// use std::time::Duration;
/// use oneffect_sqs::{Sqs, SqsConfig};
///
/// let orders = Sqs::new("https://sqs.eu-west-1.amazonaws.com/123456789012/orders")
///     .config(SqsConfig::default().visibility(Duration::from_mins(1)));
/// ```
pub struct Sqs {
    queue_url: String,
    endpoint: Option<String>,
    config: SqsConfig,
    /// The user's own; made when opened otherwise.
    client: Option<Client>,
    running: Option<Running>,
}

/// What there is once the source is open. Dropping it ends both tasks, and with them every call.
struct Running {
    shared: Arc<Shared>,
    /// Told by the first `next`.
    assignment: Option<Assignment>,
    batches: mpsc::Receiver<Vec<Delivery>>,
    health: watch::Receiver<Health>,
    /// What the runtime was told last.
    connected: bool,
    receiver: AbortOnDropHandle<()>,
    settler: AbortOnDropHandle<()>,
}

impl Sqs {
    /// A queue, by its URL, with a client that is set up when the source is opened: credentials,
    /// region, profile and endpoint come from the environment and the AWS configuration files, as
    /// for any AWS tool (`AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL_SQS`, ..). The region in a
    /// URL of AWS goes before the environment's.
    pub fn new(queue_url: impl Into<String>) -> Self {
        Self {
            queue_url: queue_url.into(),
            endpoint: None,
            config: SqsConfig::default(),
            client: None,
            running: None,
        }
    }

    /// A queue, by its URL, reached by a client of your own.
    ///
    /// The client's timeouts and retries do not matter: each call sets its own.
    pub fn with_client(client: Client, queue_url: impl Into<String>) -> Self {
        Self {
            client: Some(client),
            ..Self::new(queue_url)
        }
    }

    /// Sets the endpoint, for an emulator or a private one: `http://localhost:4566`. It goes
    /// before the environment's, and is ignored with a client of your own.
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn config(mut self, config: SqsConfig) -> Self {
        self.config = config;
        self
    }
}

#[async_trait]
impl Source for Sqs {
    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    /// A queue brings duplicates for as long as it keeps messages, and its dead-letter queue for as
    /// long as that does and once more. Needs `sqs:GetQueueAttributes` on both, and
    /// `sqs:GetQueueUrl` on the latter.
    async fn horizon(&mut self) -> Vec<Reach> {
        let client = self.client().await;
        Box::pin(async {
            let queues = Queues::ask(&client, &self.queue_url).await;
            queues.reaches(self.config.visibility)
        })
        .await
    }

    async fn examine(&mut self, _window: Window) -> Vec<Finding> {
        if let Err(error) = self.config.validate() {
            let why = "the consumer does not start";
            return vec![Finding::problem(
                error.to_string(),
                why,
                "change the setting",
            )];
        }
        let client = self.client().await;
        Box::pin(async {
            let queues = Queues::ask(&client, &self.queue_url).await;
            queues.examine(self.config.attempt_limit)
        })
        .await
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.config.validate()?;
        let name: Arc<str> = open::queue_name(&self.queue_url)?.into();
        let client = self.client().await;
        let endpoint = self.endpoint.as_deref();
        Box::pin(open::check_queue(
            &client,
            &self.queue_url,
            endpoint,
            &self.config,
        ))
        .await?;
        let queue = Arc::new(Queue {
            is_fifo: open::is_fifo(&name),
            name,
        });
        self.running = Some(Running::start(client, &self.queue_url, queue, &self.config));
        Ok(())
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        match &mut self.running {
            Some(running) => running.next().await,
            None => Err(SourceError::fatal("the source has not been opened")),
        }
    }

    fn settle(&mut self, settlements: &[Settlement]) {
        if let Some(running) = &self.running {
            running.settle(settlements);
        }
    }

    fn pause(&mut self, assignment: AssignmentId) {
        self.set_paused(assignment, true);
    }

    fn resume(&mut self, assignment: AssignmentId) {
        self.set_paused(assignment, false);
    }

    /// A standard queue can delay each message by itself; no slot is kept for one that waits.
    fn longest_hold(&self, ordered: bool) -> Duration {
        if ordered && self.is_fifo() {
            LONGEST_ORDERED_HOLD
        } else {
            Duration::ZERO
        }
    }

    fn stop_receiving(&mut self) {
        if let Some(running) = &mut self.running {
            running.stop_receiving();
        }
    }

    async fn close(self: Box<Self>, deadline: Duration) -> Result<(), SourceError> {
        match self.running {
            Some(running) => running.close(deadline).await,
            None => Ok(()),
        }
    }
}

impl Sqs {
    /// The user's client, or one of our own, which is kept.
    async fn client(&mut self) -> Client {
        if let Some(client) = &self.client {
            return client.clone();
        }
        let loading = open::load_client(&self.queue_url, self.endpoint.as_deref());
        let client = Box::pin(loading).await;
        self.client.insert(client).clone()
    }

    fn is_fifo(&self) -> bool {
        open::queue_name(&self.queue_url).is_ok_and(open::is_fifo)
    }

    fn set_paused(&self, assignment: AssignmentId, paused: bool) {
        if let Some(running) = (self.running.as_ref()).filter(|_| assignment == ASSIGNMENT) {
            running.shared.set_gate(|gate| gate.paused = paused);
        }
    }
}

impl Running {
    fn start(client: Client, queue_url: &str, queue: Arc<Queue>, config: &SqsConfig) -> Self {
        let api = Arc::new(Api::new(client, queue_url.to_owned(), config));
        let shared = Arc::new(Shared::new(Ledger::new(config.visibility)));
        let (sender, batches) = mpsc::channel(config.max_pollers);
        let assignment = Assignment {
            id: ASSIGNMENT,
            name: Arc::clone(&queue.name),
        };
        let receiver = Receiver::new(
            Arc::clone(&api),
            Arc::clone(&shared),
            Arc::clone(&queue),
            sender,
        );
        let settler = Settler::new(api, Arc::clone(&shared), queue);
        Self {
            assignment: Some(assignment),
            batches,
            health: shared.health(),
            connected: true,
            shared,
            receiver: AbortOnDropHandle::new(spawn(receiver.run())),
            settler: AbortOnDropHandle::new(spawn(settler.run())),
        }
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        if let Some(assignment) = self.assignment.take() {
            return Ok(SourceEvent::Assigned(vec![assignment]));
        }
        loop {
            let connected = self.health.borrow_and_update().is_good();
            if connected != self.connected {
                self.connected = connected;
                return Ok(SourceEvent::Connected(connected));
            }
            let stopped = self.shared.is_stopped();
            if self.settler.is_finished() {
                return Err(died("settles messages"));
            }
            tokio::select! {
                biased;
                _ = self.health.changed() => {}
                batch = self.batches.recv(), if !stopped => {
                    return match batch {
                        Some(batch) => Ok(SourceEvent::Deliveries(batch)),
                        None => Err(died("receives messages")),
                    };
                }
                _ = &mut self.settler => return Err(died("settles messages")),
            }
        }
    }

    fn settle(&self, settlements: &[Settlement]) {
        let ours: Vec<_> = (settlements.iter().copied())
            .filter(|settlement| settlement.assignment == ASSIGNMENT)
            .collect();
        if !ours.is_empty() {
            self.shared.ledger().settle(&ours, Instant::now());
            self.shared.settled.notify_one();
        }
    }

    /// What was received and not handed out goes back at once. What an outstanding receive brings
    /// later does so too; the receiver looks whether it was stopped under the same lock.
    fn stop_receiving(&mut self) {
        let mut ledger = self.shared.ledger();
        self.shared.set_gate(|gate| gate.stopped = true);
        let mut unclaimed = Vec::new();
        while let Ok(batch) = self.batches.try_recv() {
            unclaimed.extend(batch.iter().map(|delivery| Settlement {
                assignment: delivery.assignment,
                tag: delivery.tag,
                settle: Settle::Release(Duration::ZERO),
            }));
        }
        ledger.settle(&unclaimed, Instant::now());
        drop(ledger);
        self.shared.settled.notify_one();
    }

    async fn close(mut self, deadline: Duration) -> Result<(), SourceError> {
        let start = Instant::now();
        let deadline = start + deadline;
        self.stop_receiving();
        self.shared.ledger().let_go(Instant::now());
        self.shared.settled.notify_one();
        // A receive that is abandoned may take messages with it. What it brings has to be given
        // back, so it gets a part of the time only.
        let last_answer = deadline - (deadline - start) / 4;
        let answered = tokio::time::timeout_at(last_answer, &mut self.receiver).await;
        if answered.is_err() {
            self.receiver.abort();
            info!(
                "a receive was still outstanding; a message that it brings now hides until its visibility times out"
            );
        }
        self.shared.ledger().close();
        self.shared.settled.notify_one();
        let settled = tokio::time::timeout_at(deadline, &mut self.settler).await;
        let ledger = self.shared.ledger();
        let message = match settled {
            Ok(Ok(())) if ledger.given_up() == 0 => return Ok(()),
            Ok(Ok(())) => format!(
                "SQS refused the settlements of {} messages",
                ledger.given_up()
            ),
            Ok(Err(_)) => "the task that settles messages has died".to_owned(),
            Err(_) => format!("{} messages were not settled in time", ledger.len()),
        };
        Err(SourceError::Unclean { message })
    }
}

/// The tasks are owned by [`Running`], which ends them when it is dropped.
#[allow(
    clippy::disallowed_methods,
    reason = "the handle is wrapped into one that aborts on drop"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

fn died(what_for: &str) -> SourceError {
    SourceError::fatal(format!(
        "the task that {what_for} has died; its panic stands in the log"
    ))
}

impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs")
            .field("queue_url", &self.queue_url)
            .field("endpoint", &self.endpoint)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
