//! The broker, as the tests see it from outside.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use uuid::Uuid;

/// When to give up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Where Kafka is; `None` after saying that the test is skipped.
pub(crate) fn brokers() -> Option<String> {
    let brokers = std::env::var("KAFKA_BROKERS").ok();
    if brokers.is_none() {
        assert!(std::env::var_os("CI").is_none(), "KAFKA_BROKERS is not set");
        eprintln!("skipped: KAFKA_BROKERS is not set");
    }
    brokers
}

/// A topic of the test's own, and a group.
#[derive(Clone)]
pub(crate) struct Topic {
    pub(crate) brokers: String,
    pub(crate) name: String,
    pub(crate) group: String,
}

impl Topic {
    pub(crate) async fn create(brokers: &str, partitions: i32) -> Self {
        Self::with(brokers, partitions, &[]).await
    }

    pub(crate) async fn with(brokers: &str, partitions: i32, config: &[(&str, &str)]) -> Self {
        let unique = Uuid::now_v7();
        let topic = Self {
            brokers: brokers.to_owned(),
            name: format!("test-{unique}"),
            group: format!("group-{unique}"),
        };
        let mut new = NewTopic::new(&topic.name, partitions, TopicReplication::Fixed(1));
        for (key, value) in config {
            new = new.set(key, value);
        }
        let admin: AdminClient<DefaultClientContext> = topic.client().create().unwrap();
        let created = admin.create_topics([&new], &AdminOptions::new()).await;
        for result in created.unwrap() {
            result.unwrap();
        }
        topic
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        client
    }

    pub(crate) fn producer(&self) -> BaseProducer {
        self.client().set("linger.ms", "1").create().unwrap()
    }

    /// Appends records whose value says their number.
    pub(crate) fn produce(&self, partition: i32, numbers: std::ops::Range<usize>) {
        let producer = self.producer();
        for number in numbers {
            let value = number.to_string();
            self.send(&producer, partition, Some("key"), Some(&value), None);
        }
        producer.flush(PATIENCE).unwrap();
    }

    pub(crate) fn send(
        &self,
        producer: &BaseProducer,
        partition: i32,
        key: Option<&str>,
        value: Option<&str>,
        headers: Option<&OwnedHeaders>,
    ) {
        loop {
            let mut record: BaseRecord<'_, str, str> =
                BaseRecord::to(&self.name).partition(partition);
            record.key = key;
            record.payload = value;
            record.headers = headers.cloned();
            if producer.send(record).is_ok() {
                return;
            }
            // Its queue is full.
            producer.poll(Duration::from_millis(10));
        }
    }

    /// What the group has committed.
    pub(crate) fn committed(&self, partition: i32) -> Option<i64> {
        let consumer = self.observer();
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.name, partition);
        let list = consumer.committed_offsets(list, PATIENCE).unwrap();
        let found = list.find_partition(&self.name, partition).unwrap().offset();
        if let Offset::Offset(offset) = found {
            Some(offset)
        } else {
            None
        }
    }

    /// The end of the log.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        let consumer = self.observer();
        let (_, end) = consumer
            .fetch_watermarks(&self.name, partition, PATIENCE)
            .unwrap();
        end
    }

    fn observer(&self) -> BaseConsumer {
        self.client().set("group.id", &self.group).create().unwrap()
    }
}
