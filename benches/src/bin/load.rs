//! The load generator: creates a topic and fills it with transfers. Prints what a ledger must hold
//! in the end, as one line of JSON.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use oneffect_benches::workload::{Random, Workload, payload};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};
use serde_json::json;
use uuid::Uuid;

/// Creates a topic and fills it with transfers.
#[derive(Debug, Parser)]
struct Options {
    /// Kafka's addresses.
    #[arg(long, env = "KAFKA_BROKERS")]
    brokers: String,
    /// The topic; it must not exist yet.
    #[arg(long)]
    topic: String,
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// How many deliveries, duplicates included.
    #[arg(long, default_value_t = 100_000)]
    messages: u64,
    /// The share of deliveries that repeat an earlier event, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    duplicates: f64,
    /// What decides a delivery's partition.
    #[arg(long, value_enum, default_value_t = Key::Account)]
    key: Key,
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..))]
    accounts: u64,
    /// Everything but the time of the events follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// When the last event may have happened, in milliseconds since 1970 [default: now].
    #[arg(long)]
    now_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    /// The record key is the account that pays: its transfers stay in order, and so do an event and
    /// its duplicates.
    Account,
    /// No record key, and any partition: a duplicate may overtake.
    Random,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    create_topic(&options).await?;

    // The events lie in the past, so that no consumer need wonder about its clock.
    let now_ms = options.now_ms.unwrap_or_else(now_ms);
    let workload = Workload {
        seed: options.seed,
        first_ms: now_ms.saturating_sub(options.messages),
        accounts: options.accounts,
        duplicates: options.duplicates,
    };
    let producer: BaseProducer<Acknowledged> = ClientConfig::new()
        .set("bootstrap.servers", &options.brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .set("batch.size", "262144")
        .create_with_context(Acknowledged::default())?;

    let mut amounts = BTreeMap::new();
    let mut partitions = Random::new(options.seed, u64::MAX - 1);
    let deliveries = usize::try_from(options.messages)?;
    for number in workload.deliveries().take(deliveries) {
        let transfer = workload.event(number);
        amounts.insert(number, transfer.amount_minor);
        let id = transfer.event_id.to_string();
        let payload = payload(&transfer);
        let header = Header {
            key: "event-id",
            value: Some(&id),
        };
        let mut record = BaseRecord::to(&options.topic)
            .payload(&payload)
            .headers(OwnedHeaders::new().insert(header));
        match options.key {
            Key::Account => record = record.key(&transfer.from_account),
            Key::Random => {
                let any = partitions.below(options.partitions.unsigned_abs().into());
                record = record.partition(i32::try_from(any)?);
            }
        }
        send(&producer, record)?;
    }
    producer.flush(Duration::from_mins(1))?;

    let Acknowledged { ok, failed } = &**producer.context();
    let [ok, failed] = [ok, failed].map(|count| count.load(Ordering::Relaxed));
    if ok != options.messages {
        return Err(format!(
            "of {} messages {ok} arrived, {failed} failed",
            options.messages
        )
        .into());
    }
    let summary = json!({
        "deliveries": options.messages,
        "events": amounts.len(),
        "volume": amounts.values().sum::<i64>(),
    });
    writeln!(io::stdout(), "{summary}")?;
    Ok(())
}

/// The id generator's clock is the one that consumers compare these ids with.
fn now_ms() -> u64 {
    Uuid::now_v7().get_timestamp().map_or(0, |at| {
        let (seconds, nanos) = at.to_unix();
        seconds * 1000 + u64::from(nanos / 1_000_000)
    })
}

async fn create_topic(options: &Options) -> Result<(), Box<dyn Error>> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", &options.brokers)
        .create()?;
    let topic = NewTopic::new(
        &options.topic,
        options.partitions,
        TopicReplication::Fixed(1),
    );
    for created in admin.create_topics(&[topic], &AdminOptions::new()).await? {
        created.map_err(|(topic, code)| format!("topic {topic}: {code}"))?;
    }
    Ok(())
}

/// Hands the record to the client, and makes room when its queue is full.
fn send(
    producer: &BaseProducer<Acknowledged>,
    mut record: BaseRecord<'_, String, Vec<u8>>,
) -> Result<(), KafkaError> {
    loop {
        match producer.send(record) {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(100));
                record = back;
            }
            sent => return sent.map_err(|(error, _)| error),
        }
    }
}

/// Counts the broker's answers.
#[derive(Default)]
struct Acknowledged {
    ok: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() {
            &self.ok
        } else {
            &self.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
