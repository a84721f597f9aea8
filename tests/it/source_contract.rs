//! The sources pass the contract suite: Kafka, real and mock, and SQS, standard and FIFO.
//!
//! What the suite leaves to a broker that moves partitions about stands in `kafka_source`.

use std::time::Duration;

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use oneffect::testing::Message;
use oneffect::testing::source_contract::Fixture;
use oneffect::{ENCODING_ATTRIBUTE, Kafka, Sqs, SqsConfig, encode_body};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};

use crate::support::{service, sqs_client, unique};

struct OnKafka {
    brokers: String,
    topic: String,
    producer: FutureProducer,
}

impl OnKafka {
    fn new(brokers: String, topic: String) -> Self {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .create()
            .unwrap();
        Self {
            brokers,
            topic,
            producer,
        }
    }

    async fn produce_all(&self, messages: Vec<Message>) {
        for message in messages {
            let mut headers = OwnedHeaders::new();
            for (key, value) in message.headers.iter() {
                let value = value.map(|value| &**value);
                headers = headers.insert(Header { key, value });
            }
            let mut record = FutureRecord::to(&self.topic).partition(0).headers(headers);
            if let Some(key) = &message.key {
                record = record.key(&**key);
            }
            if let Some(payload) = &message.payload {
                record = record.payload(&**payload);
            }
            let sent = self
                .producer
                .send::<[u8], [u8], _>(record, Duration::from_secs(30))
                .await;
            sent.unwrap();
        }
    }

    fn member(&self) -> Kafka {
        Kafka::new(&self.brokers, &self.topic, [&self.topic])
            .set("session.timeout.ms", "2000")
            .set("heartbeat.interval.ms", "200")
    }
}

struct OnRealKafka(OnKafka);

impl Fixture for OnRealKafka {
    type Source = Kafka;
    const ORDERED: bool = true;
    const COUNTS_RECEIVES: bool = false;
    const HANDS_OUT_AGAIN: bool = false;
    const TOMBSTONES: bool = true;
    const EMPTY_PAYLOADS: bool = true;
    const HEADER_LISTS: bool = true;
    const QUIET: Duration = Duration::from_secs(2);

    async fn fresh() -> Option<Self> {
        let brokers = service("KAFKA_BROKERS")?;
        let topic = unique("contract");
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .create()
            .unwrap();
        let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
        let created = admin
            .create_topics([&new], &AdminOptions::new())
            .await
            .unwrap();
        assert!(created.iter().all(Result::is_ok), "{created:?}");
        Some(Self(OnKafka::new(brokers, topic)))
    }

    async fn produce(&self, messages: Vec<Message>) {
        self.0.produce_all(messages).await;
    }

    async fn source(&self) -> Kafka {
        self.0.member()
    }
}

/// librdkafka's mock of a cluster, within this process.
struct OnMockKafka {
    kafka: OnKafka,
    /// Lives as long as the test.
    _mock: MockCluster<'static, DefaultProducerContext>,
}

impl Fixture for OnMockKafka {
    type Source = Kafka;
    const ORDERED: bool = true;
    const COUNTS_RECEIVES: bool = false;
    const HANDS_OUT_AGAIN: bool = false;
    const TOMBSTONES: bool = true;
    const EMPTY_PAYLOADS: bool = true;
    const HEADER_LISTS: bool = true;
    /// The mock lets a group wait for a session whenever somebody has left.
    const QUIET: Duration = Duration::from_secs(7);

    async fn fresh() -> Option<Self> {
        let mock = MockCluster::new(1).unwrap();
        let topic = unique("contract");
        mock.create_topic(&topic, 1, 1).unwrap();
        let kafka = OnKafka::new(mock.bootstrap_servers(), topic);
        Some(Self { kafka, _mock: mock })
    }

    async fn produce(&self, messages: Vec<Message>) {
        self.kafka.produce_all(messages).await;
    }

    async fn source(&self) -> Kafka {
        // Its first rebalance takes three seconds, which a member's session has to outlast.
        self.kafka.member().set("session.timeout.ms", "6000")
    }
}

struct OnSqs<const FIFO: bool> {
    client: aws_sdk_sqs::Client,
    endpoint: String,
    queue_url: String,
}

impl<const FIFO: bool> Fixture for OnSqs<FIFO> {
    type Source = Sqs;
    const ORDERED: bool = FIFO;
    const COUNTS_RECEIVES: bool = true;
    const HANDS_OUT_AGAIN: bool = true;
    const TOMBSTONES: bool = false;
    const EMPTY_PAYLOADS: bool = true;
    const HEADER_LISTS: bool = false;
    /// The emulator looks for lapsed visibility once a second.
    const QUIET: Duration = Duration::from_secs(3);

    async fn fresh() -> Option<Self> {
        let endpoint = service("SQS_ENDPOINT")?;
        let client = sqs_client(&endpoint);
        let name = unique("contract");
        let mut create = client
            .create_queue()
            .queue_name(if FIFO { format!("{name}.fifo") } else { name })
            .attributes(QueueAttributeName::VisibilityTimeout, "2");
        if FIFO {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let queue_url = create.send().await.unwrap().queue_url.unwrap();
        Some(Self {
            client,
            endpoint,
            queue_url,
        })
    }

    async fn produce(&self, messages: Vec<Message>) {
        let text = |value: &str| {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(value);
            value.build().unwrap()
        };
        for message in messages {
            let body = encode_body(message.payload.as_deref().unwrap_or_default());
            let mut send = self
                .client
                .send_message()
                .queue_url(&self.queue_url)
                .message_body(&*body.text)
                .set_message_group_id(FIFO.then(|| "group".into()))
                .set_message_deduplication_id(FIFO.then(|| unique("d")));
            if let Some(encoding) = body.encoding {
                send = send.message_attributes(ENCODING_ATTRIBUTE, text(encoding));
            }
            for (name, value) in message.headers.iter() {
                let value = value.map(|value| &**value).unwrap_or_default();
                let attribute = match std::str::from_utf8(value) {
                    Ok(value) => text(value),
                    Err(_) => MessageAttributeValue::builder()
                        .data_type("Binary")
                        .binary_value(Blob::new(value))
                        .build()
                        .unwrap(),
                };
                send = send.message_attributes(name, attribute);
            }
            send.send().await.unwrap();
        }
    }

    async fn source(&self) -> Sqs {
        let config = SqsConfig::default()
            .visibility(Duration::from_secs(2))
            .wait_time(Duration::from_secs(1));
        Sqs::new(&self.queue_url)
            .endpoint(&self.endpoint)
            .config(config)
    }
}

mod kafka {
    oneffect_core::source_contract!(super::OnRealKafka, (flavor = "multi_thread"));
}

mod kafka_mock {
    oneffect_core::source_contract!(super::OnMockKafka, (flavor = "multi_thread"));
}

mod sqs_standard {
    oneffect_core::source_contract!(super::OnSqs<false>, (flavor = "multi_thread"));
}

mod sqs_fifo {
    oneffect_core::source_contract!(super::OnSqs<true>, (flavor = "multi_thread"));
}
