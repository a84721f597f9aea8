//! Kafka: a real cluster, or librdkafka's mock of one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use oneffect::Kafka;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};

use super::Broker;
use crate::stream::Message;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A topic, and a group that consumes it.
#[derive(Clone)]
pub(crate) struct KafkaTopic {
    brokers: String,
    topic: String,
    group: String,
    /// With how many partitions the topic is created where it is missing; `None`: it is there.
    partitions: Option<i32>,
    /// Passed to the consumers, by librdkafka's names.
    consumer_settings: Vec<(&'static str, &'static str)>,
    /// How many records of a partition may be unconsumed before sending waits.
    most_unconsumed: Option<i64>,
    clients: Arc<Clients>,
}

struct Clients {
    producer: ThreadedProducer<Sent>,
    /// Asks for the group's offsets, and never joins the group.
    group: BaseConsumer,
    sent: Arc<Mutex<Acknowledged>>,
}

/// What the broker has acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Where each partition that was sent to ends.
    ends: BTreeMap<i32, i64>,
    failure: Option<KafkaError>,
}

/// Takes the acknowledgements.
struct Sent(Arc<Mutex<Acknowledged>>);

impl ClientContext for Sent {}

impl ProducerContext for Sent {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(message) => {
                let end = sent.ends.entry(message.partition()).or_default();
                *end = message.offset().saturating_add(1).max(*end);
            }
            Err((error, _)) => sent.failure = Some(error.clone()),
        }
    }
}

impl KafkaTopic {
    pub(crate) fn new(brokers: &str, topic: &str, group: &str) -> anyhow::Result<Self> {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", brokers);
        let sent = Arc::default();
        let producer = client
            .clone()
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .create_with_context(Sent(Arc::clone(&sent)))
            .context("cannot make a Kafka producer")?;
        let group_client = client
            .set("group.id", group)
            .create()
            .context("cannot make a Kafka client")?;
        Ok(Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            partitions: None,
            consumer_settings: Vec::new(),
            most_unconsumed: None,
            clients: Arc::new(Clients {
                producer,
                group: group_client,
                sent,
            }),
        })
    }

    /// The topic is created where it is missing.
    pub(crate) fn partitions(mut self, partitions: i32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Sending waits while so many records of a partition are unconsumed.
    pub(crate) fn most_unconsumed(mut self, records: i64) -> Self {
        self.most_unconsumed = Some(records);
        self
    }

    pub(crate) fn consumer_setting(mut self, key: &'static str, value: &'static str) -> Self {
        self.consumer_settings.push((key, value));
        self
    }

    /// How far each partition that was sent to is from being consumed.
    async fn unconsumed(&self) -> anyhow::Result<Vec<i64>> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.ask_unconsumed()).await?
    }

    fn ask_unconsumed(&self) -> anyhow::Result<Vec<i64>> {
        let ends = self.acknowledged(|sent| sent.ends.clone());
        let mut asked = TopicPartitionList::new();
        for &partition in ends.keys() {
            asked.add_partition(&self.topic, partition);
        }
        if asked.count() == 0 {
            return Ok(Vec::new());
        }
        let committed = (self.clients.group)
            .committed_offsets(asked, TIMEOUT)
            .context("cannot read the group's offsets")?;
        let consumed = |partition| match committed.find_partition(&self.topic, partition) {
            Some(found) => {
                if let Offset::Offset(offset) = found.offset() {
                    offset
                } else {
                    0
                }
            }
            None => 0,
        };
        let unconsumed = ends
            .iter()
            .map(|(&partition, end)| end - consumed(partition));
        Ok(unconsumed.map(|records| records.max(0)).collect())
    }

    fn acknowledged<T>(&self, look: impl FnOnce(&mut Acknowledged) -> T) -> T {
        let sent = self.clients.sent.lock();
        look(&mut sent.unwrap_or_else(PoisonError::into_inner))
    }

    fn send_all(&self, messages: &[Message]) -> anyhow::Result<()> {
        let producer = &self.clients.producer;
        for message in messages {
            let mut record = BaseRecord::to(&self.topic)
                .key(&message.key)
                .payload(&message.payload);
            while let Err((error, refused)) = producer.send(record) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                    return Err(anyhow!(error).context("a message cannot be sent"));
                }
                producer
                    .flush(TIMEOUT)
                    .context("Kafka takes no more messages")?;
                record = refused;
            }
        }
        producer
            .flush(TIMEOUT)
            .context("Kafka does not acknowledge messages")?;
        match self.acknowledged(|sent| sent.failure.take()) {
            Some(error) => Err(anyhow!(error).context("Kafka refuses messages")),
            None => Ok(()),
        }
    }
}

impl Broker for KafkaTopic {
    type Source = Kafka;

    fn source(&self) -> Kafka {
        let source = Kafka::new(&self.brokers, &self.group, [&self.topic]);
        let settings = self.consumer_settings.iter();
        settings.fold(source, |source, &(key, value)| source.set(key, value))
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let Some(partitions) = self.partitions else {
            return Ok(());
        };
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .create()
            .context("cannot make a Kafka client")?;
        // -1 leaves the number of replicas to the broker's own default.
        let topic = NewTopic::new(&self.topic, partitions, TopicReplication::Fixed(-1));
        let created = admin
            .create_topics(
                [&topic],
                &AdminOptions::new().operation_timeout(Some(TIMEOUT)),
            )
            .await
            .with_context(|| format!("cannot create a topic at {}", self.brokers))?;
        for result in created {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => bail!("cannot create the topic {topic}: {code}"),
            }
        }
        Ok(())
    }

    async fn room(&self) -> anyhow::Result<()> {
        let Some(most) = self.most_unconsumed else {
            return Ok(());
        };
        while self
            .unconsumed()
            .await?
            .into_iter()
            .any(|records| records >= most)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn send(&self, messages: Vec<Message>) -> anyhow::Result<()> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.send_all(&messages)).await?
    }

    async fn backlog(&self) -> anyhow::Result<u64> {
        let unconsumed: i64 = self.unconsumed().await?.into_iter().sum();
        Ok(unconsumed.unsigned_abs())
    }
}
