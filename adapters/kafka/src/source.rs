//! The source.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    AssignmentId, Finding, Reach, Settlement, Source, SourceError, SourceEvent, Window,
};
use rdkafka::error::KafkaError;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::TARGET;
use crate::config::KafkaConfig;
use crate::examine;
use crate::horizon::reaches;
use crate::inquiry::Inquiry;
use crate::poll::{self, Answers, Setup};
use crate::state::Shared;

/// Topics, read as a member of a consumer group.
///
/// Deliveries of a partition are in order with one another ([`Order::Assignment`]); each partition
/// is an assignment, named `topic/3`. An event that waits for its next attempt may wait in this
/// process for as long as it takes: Kafka cannot take single records back.
///
/// Dropping the source without closing it leaves the group in the background.
///
/// [`Order::Assignment`]: oneffect_core::Order::Assignment
#[derive(Debug)]
pub struct Kafka {
    brokers: String,
    group: String,
    topics: Vec<String>,
    config: KafkaConfig,
    shared: Arc<Shared>,
    closing: Option<Closing>,
}

/// What the poll thread says at the end.
#[derive(Debug)]
struct Closing {
    committed: oneshot::Receiver<Result<(), KafkaError>>,
    left: oneshot::Receiver<std::convert::Infallible>,
}

impl Kafka {
    /// A source for these topics.
    ///
    /// `brokers` is a comma-separated list of `host:port`. Every process with the same `group`
    /// shares the work; offsets are the group's. A topic that starts with `^` is a regular
    /// expression, and not checked for existence.
    pub fn new<T: Into<String>>(
        brokers: impl Into<String>,
        group: impl Into<String>,
        topics: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            brokers: brokers.into(),
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            config: KafkaConfig::default(),
            shared: Arc::default(),
            closing: None,
        }
    }

    /// Replaces all settings.
    #[must_use]
    pub fn config(mut self, config: KafkaConfig) -> Self {
        self.config = config;
        self
    }

    /// How long a revocation waits for running units of work; see [`KafkaConfig::drain`].
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.config.drain = drain;
        self
    }

    /// How long settled offsets may wait to be committed; see [`KafkaConfig::commit_interval`].
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.config.commit_interval = interval;
        self
    }

    /// How long opening may take; see [`KafkaConfig::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Sets something of librdkafka, by its own name.
    ///
    /// This source sets `isolation.level` = `read_committed`, `auto.offset.reset` = `earliest`,
    /// `partition.assignment.strategy` = `cooperative-sticky`, `session.timeout.ms` = 10000 (a
    /// killed member's work goes on then, not after 45 s), `queued.max.messages.kbytes` = 16384,
    /// `fetch.queue.backoff.ms` = 20 and `client.id` = `oneffect`; each may be set to something
    /// else. With `group.protocol` = `consumer` the session timeout and the assignor are the
    /// broker's. Refused when the source is opened: `enable.auto.commit`,
    /// `enable.auto.offset.store`, `enable.partition.eof`, `offset.store.method`, and what
    /// [`Kafka::new`] takes.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.properties.insert(key.into(), value.into());
        self
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry {
            brokers: self.brokers.clone(),
            group: self.group.clone(),
            topics: self.topics.clone(),
            config: self.config.clone(),
        }
    }

    fn validate(&self) -> Result<(), SourceError> {
        if self.brokers.trim().is_empty() {
            return Err(SourceError::misconfigured("no brokers are given"));
        }
        if self.group.trim().is_empty() {
            return Err(SourceError::misconfigured("the consumer group has no name"));
        }
        if self.topics.is_empty() || self.topics.iter().any(String::is_empty) {
            return Err(SourceError::misconfigured(
                "no topic is given, or one has no name",
            ));
        }
        self.config.validate()
    }
}

#[async_trait]
impl Source for Kafka {
    fn system(&self) -> &'static str {
        "kafka"
    }

    /// Topics bring duplicates for as long as they keep records. Needs `DESCRIBE_CONFIGS` on them;
    /// without it the answer is that it is unknown. Takes up to [`KafkaConfig::connect_timeout`]
    /// when no broker answers.
    async fn horizon(&mut self) -> Vec<Reach> {
        let topics = self.topics.clone();
        let answers = self.inquiry().run(Inquiry::settings).await;
        match answers {
            Some(answers) => reaches(&topics, answers),
            None => vec![Reach::unknown("Kafka", "the thread that asks has died")],
        }
    }

    async fn examine(&mut self, window: Window) -> Vec<Finding> {
        if let Err(error) = self.validate() {
            return vec![Finding::problem(
                error.to_string(),
                "the consumer does not start",
                "change the setting",
            )];
        }
        let examined = self
            .inquiry()
            .run(move |inquiry| examine::examine(inquiry, window));
        examined.await.unwrap_or_else(|| {
            let (why, to_do) = ("nothing of it was checked", "look into the log");
            vec![Finding::warning(
                "the thread that asks Kafka has died",
                why,
                to_do,
            )]
        })
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.validate()?;
        self.config.warn();
        let setup = Setup {
            brokers: self.brokers.clone(),
            group: self.group.clone(),
            topics: self.topics.clone(),
            config: self.config.clone(),
            shared: Arc::clone(&self.shared),
        };
        let (opened, open_answer) = oneshot::channel();
        let (committed, committed_answer) = oneshot::channel();
        let (left, left_answer) = oneshot::channel();
        let answers = Answers {
            opened,
            committed,
            left,
        };
        thread::Builder::new()
            .name("oneffect-kafka".to_owned())
            .spawn(move || poll::run(&setup, answers))
            .map_err(|error| {
                SourceError::fatal("cannot start the thread that polls Kafka").because(error)
            })?;
        let opened = open_answer.await;
        opened
            .unwrap_or_else(|_| Err(SourceError::fatal("the thread that polls Kafka has died")))?;
        self.closing = Some(Closing {
            committed: committed_answer,
            left: left_answer,
        });
        Ok(())
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        self.shared.next().await
    }

    fn settle(&mut self, settlements: &[Settlement]) {
        let late = self.shared.settle(settlements);
        if late.now > 0 {
            debug!(target: TARGET, late = late.now, total = late.total, "settlements came after their partition was gone, and were refused; its next owner settles these");
        }
    }

    fn pause(&mut self, assignment: AssignmentId) {
        self.shared.set_paused(assignment, true);
    }

    fn resume(&mut self, assignment: AssignmentId) {
        self.shared.set_paused(assignment, false);
    }

    fn longest_hold(&self, _ordered: bool) -> Duration {
        Duration::MAX
    }

    fn stop_receiving(&mut self) {
        self.shared.stop_receiving();
    }

    async fn close(mut self: Box<Self>, deadline: Duration) -> Result<(), SourceError> {
        self.shared.close();
        let Some(closing) = self.closing.take() else {
            return Ok(());
        };
        let deadline = Instant::now() + deadline;
        let committed = tokio::time::timeout_at(deadline, closing.committed).await;
        let unclean = |message: String| {
            warn!(target: TARGET, message, "Kafka was not closed in good order");
            Err(SourceError::Unclean { message })
        };
        match committed {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                return unclean(format!("the last offsets were refused: {error}"));
            }
            Ok(Err(_)) => return unclean("the thread that polls Kafka has died".to_owned()),
            Err(_) => {
                return unclean("the last offsets were not confirmed in time".to_owned());
            }
        }
        match tokio::time::timeout_at(deadline, closing.left).await {
            Ok(_) => Ok(()),
            Err(_) => unclean(
                "the last offsets are committed, but the client did not leave the group in time"
                    .to_owned(),
            ),
        }
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.shared.close();
    }
}
