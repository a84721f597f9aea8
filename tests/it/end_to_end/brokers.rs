//! The brokers of the end-to-end tests, and what can be asked of them from outside.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use oneffect::{Kafka, RunError, Source, Sqs, Stats};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::databases::Database;
use super::handler::Probe;
use super::run_to_end;
use crate::support::{service, sqs_client, unique};

/// Something to send: bytes, and what they are to be kept in order with.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) lane: u32,
    pub(crate) payload: Vec<u8>,
}

#[async_trait]
pub(crate) trait Broker: Send + Sync + Sized + 'static {
    type Source: Source;

    /// A topic or queue of its own; `None` where there is no such service.
    async fn fresh() -> Option<Self>;
    async fn source(&self) -> Self::Source;
    fn spec(&self) -> BrokerSpec;
    async fn send(&self, messages: &[Sent]);
    /// Whether all that was sent is settled, as the broker sees it.
    async fn is_drained(&self) -> bool;
}

/// How a child process finds the same topic or queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum BrokerSpec {
    Kafka(KafkaSpec),
    Sqs(SqsSpec),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct KafkaSpec {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    /// Milliseconds; the broker allows one second at least, the default of the adapter is ten.
    pub(crate) session_timeout: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SqsSpec {
    endpoint: String,
    queue_url: String,
}

/// Runs a consumer to its end, in the child.
pub(crate) async fn run<D: Database>(
    broker: BrokerSpec,
    database: &D,
    probe: Probe,
    crash_guard: Option<u32>,
) -> Result<Stats, RunError>
where
    Probe: oneffect::Handler<D::Store>,
{
    match broker {
        BrokerSpec::Kafka(spec) => run_to_end(spec.source(), database, probe, crash_guard).await,
        BrokerSpec::Sqs(spec) => run_to_end(spec.source(), database, probe, crash_guard).await,
    }
}

pub(crate) const PARTITIONS: i32 = 4;

pub(crate) struct OnKafka {
    pub(crate) spec: KafkaSpec,
    producer: FutureProducer,
    group: BaseConsumer,
}

impl KafkaSpec {
    pub(crate) fn source(&self) -> Kafka {
        Kafka::new(&self.brokers, &self.topic, [&self.topic])
            .set("session.timeout.ms", self.session_timeout.to_string())
            .set("heartbeat.interval.ms", "300")
    }
}

impl OnKafka {
    pub(crate) async fn with_config(topic_config: &[(&str, &str)]) -> Option<Self> {
        let brokers = service("KAFKA_BROKERS")?;
        let topic = unique("e2e");
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .create()
            .unwrap();
        let new = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
        let new = topic_config
            .iter()
            .fold(new, |new, (key, value)| new.set(key, value));
        let created = admin
            .create_topics([&new], &AdminOptions::new())
            .await
            .unwrap();
        assert!(created.iter().all(Result::is_ok), "{created:?}");
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("enable.idempotence", "true")
            .create()
            .unwrap();
        let group = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("group.id", &topic)
            .create()
            .unwrap();
        let spec = KafkaSpec {
            brokers,
            topic,
            session_timeout: 3000,
        };
        Some(Self {
            spec,
            producer,
            group,
        })
    }

    /// C(p) for all partitions, and where the log ends.
    pub(crate) fn offsets(&self) -> Vec<(i64, i64)> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.spec.topic, 0, PARTITIONS - 1);
        let committed = self
            .group
            .committed_offsets(asked, Duration::from_secs(10))
            .unwrap();
        (committed.elements().iter())
            .map(|element| {
                let (_, end) = self
                    .group
                    .fetch_watermarks(
                        &self.spec.topic,
                        element.partition(),
                        Duration::from_secs(10),
                    )
                    .unwrap();
                match element.offset() {
                    Offset::Offset(offset) => (offset, end),
                    _ => (0, end),
                }
            })
            .collect()
    }
}

#[async_trait]
impl Broker for OnKafka {
    type Source = Kafka;

    async fn fresh() -> Option<Self> {
        Self::with_config(&[]).await
    }

    async fn source(&self) -> Kafka {
        self.spec.source()
    }

    fn spec(&self) -> BrokerSpec {
        BrokerSpec::Kafka(self.spec.clone())
    }

    async fn send(&self, messages: &[Sent]) {
        let sent = messages.iter().map(|message| {
            let partition = i32::try_from(message.lane).unwrap() % PARTITIONS;
            let record = FutureRecord::<(), _>::to(&self.spec.topic)
                .partition(partition)
                .payload(&message.payload);
            self.producer.send_result(record).unwrap()
        });
        for delivered in sent.collect::<Vec<_>>() {
            delivered.await.unwrap().unwrap();
        }
    }

    async fn is_drained(&self) -> bool {
        tokio::task::block_in_place(|| {
            self.offsets()
                .iter()
                .all(|(committed, end)| committed == end)
        })
    }
}

/// SQS, with or without FIFO order.
pub(crate) struct OnSqs<const FIFO: bool> {
    spec: SqsSpec,
    client: aws_sdk_sqs::Client,
}

pub(crate) type OnStandardQueue = OnSqs<false>;
pub(crate) type OnFifoQueue = OnSqs<true>;

impl SqsSpec {
    fn source(&self) -> Sqs {
        Sqs::new(&self.queue_url).endpoint(&self.endpoint)
    }
}

impl<const FIFO: bool> OnSqs<FIFO> {
    /// Visible and not visible messages.
    pub(crate) async fn remaining(&self) -> (i64, i64) {
        let attributes = self
            .client
            .get_queue_attributes()
            .queue_url(&self.spec.queue_url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .unwrap()
            .attributes
            .unwrap();
        let number = |name: QueueAttributeName| attributes[&name].parse::<i64>().unwrap();
        (
            number(QueueAttributeName::ApproximateNumberOfMessages),
            number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }
}

#[async_trait]
impl<const FIFO: bool> Broker for OnSqs<FIFO> {
    type Source = Sqs;

    async fn fresh() -> Option<Self> {
        let endpoint = service("SQS_ENDPOINT")?;
        let client = sqs_client(&endpoint);
        let name = unique("e2e");
        // Short, so that what a killed process held comes back within the test.
        let mut create = client
            .create_queue()
            .queue_name(if FIFO { format!("{name}.fifo") } else { name })
            .attributes(QueueAttributeName::VisibilityTimeout, "3");
        if FIFO {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let queue_url = create.send().await.unwrap().queue_url.unwrap();
        let spec = SqsSpec {
            endpoint,
            queue_url,
        };
        Some(Self { spec, client })
    }

    async fn source(&self) -> Sqs {
        self.spec.source()
    }

    fn spec(&self) -> BrokerSpec {
        BrokerSpec::Sqs(self.spec.clone())
    }

    async fn send(&self, messages: &[Sent]) {
        for ten in messages.chunks(10) {
            let mut send = self
                .client
                .send_message_batch()
                .queue_url(&self.spec.queue_url);
            for (at, message) in ten.iter().enumerate() {
                let mut entry = SendMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .message_body(std::str::from_utf8(&message.payload).unwrap());
                if FIFO {
                    // The queue must not drop the repeats that the test is about.
                    entry = entry
                        .message_group_id(message.lane.to_string())
                        .message_deduplication_id(unique("d"));
                }
                send = send.entries(entry.build().unwrap());
            }
            let answer = send.send().await.unwrap();
            assert!(answer.failed.is_empty(), "{:?}", answer.failed);
        }
    }

    async fn is_drained(&self) -> bool {
        self.remaining().await == (0, 0)
    }
}
