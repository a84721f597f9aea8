//! One run of one contender: a database and a group of its own, tables that are not empty, and a
//! look at what it has left.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use oneffect_benches::contender::Cluster;
use oneffect_benches::ledger::{self, Expected};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataTopic;
use rdkafka::{Offset, TopicPartitionList};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::child::{self, Usage};
use crate::contenders::{self, Contender};
use crate::topic::Topic;

/// No run takes longer than this.
const DEADLINE: Duration = Duration::from_mins(3);

/// The services, as the bench itself uses them.
#[derive(Debug)]
pub(crate) struct Bench {
    cluster: Cluster,
    postgres: PgPool,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) deliveries: u64,
    /// Deliveries a second.
    pub(crate) rate: f64,
    pub(crate) cpu_s_per_100k: f64,
    pub(crate) peak_mib: f64,
}

impl Run {
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    fn new(deliveries: u64, usage: Usage) -> Self {
        let count = deliveries as f64;
        Self {
            deliveries,
            rate: count / usage.wall.as_secs_f64(),
            cpu_s_per_100k: usage.cpu.as_secs_f64() / count * 100_000.0,
            peak_mib: usage.peak_bytes as f64 / f64::from(1 << 20),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0}/s, {:.2} CPU s per 100k, peak {:.0} MiB",
            self.rate, self.cpu_s_per_100k, self.peak_mib
        )
    }
}

impl Bench {
    pub(crate) async fn new(cluster: &Cluster) -> Result<Self, sqlx::Error> {
        Ok(Self {
            cluster: cluster.clone(),
            postgres: connect(&cluster.database_url).await?,
        })
    }

    pub(crate) fn postgres(&self) -> &PgPool {
        &self.postgres
    }

    /// Runs a contender on both topics, and times the second.
    pub(crate) async fn run(
        &self,
        contender: &Contender,
        round: usize,
        topics: [&Topic; 2],
        left: Duration,
    ) -> Result<Run, String> {
        let database = format!("bench_{}_{round}", contender.name.replace('-', "_"));
        let url = self.fresh_database(&database).await.map_err(said)?;
        let pool = connect(&url).await.map_err(said)?;
        let run = self
            .timed(contender, round, topics, &url, &pool, left)
            .await;
        pool.close().await;
        self.drop_database(&database).await.map_err(said)?;
        run
    }

    async fn timed(
        &self,
        contender: &Contender,
        round: usize,
        [warm_up, topic]: [&Topic; 2],
        url: &str,
        pool: &PgPool,
        left: Duration,
    ) -> Result<Run, String> {
        let program = contenders::program(contender.program)?;
        let group = |topic: &Topic| format!("{}-{}-{round}", topic.name, contender.name);
        let on = |topic: &Topic| {
            let options = [
                ["--brokers", &self.cluster.brokers],
                ["--database-url", url],
                ["--topic", &topic.name],
                ["--group", &group(topic)],
                ["--expect", &topic.deliveries.to_string()],
            ];
            let mut args: Vec<String> = options.concat().into_iter().map(Into::into).collect();
            args.extend(contender.args.iter().copied().map(Into::into));
            child::run(&program, &args, DEADLINE.min(left))
        };

        on(warm_up).map_err(|error| format!("warm-up: {error}"))?;
        // A plan made for an empty table is a trap; and a checkpoint in the middle of a run is not
        // that run's.
        for statement in ["ANALYZE", "CHECKPOINT"] {
            sqlx::query(statement).execute(pool).await.map_err(said)?;
        }
        let usage = on(topic)?;

        let both = Expected {
            events: warm_up.expected.events + topic.expected.events,
            volume: warm_up.expected.volume + topic.expected.volume,
        };
        ledger::check(pool, both).await?;
        self.check_offsets(topic, &group(topic)).map_err(said)??;
        Ok(Run::new(topic.deliveries, usage))
    }

    /// Everything must be settled at the broker as well: nothing of it may come again.
    fn check_offsets(
        &self,
        topic: &Topic,
        group: &str,
    ) -> Result<Result<(), String>, rdkafka::error::KafkaError> {
        let timeout = Duration::from_secs(30);
        let consumer: BaseConsumer = self.cluster.kafka(group).create()?;
        let metadata = consumer.fetch_metadata(Some(&topic.name), timeout)?;
        let mut partitions = TopicPartitionList::new();
        for partition in metadata.topics().iter().flat_map(MetadataTopic::partitions) {
            partitions.add_partition(&topic.name, partition.id());
        }
        for committed in consumer.committed_offsets(partitions, timeout)?.elements() {
            let partition = committed.partition();
            let (_, end) = consumer.fetch_watermarks(&topic.name, partition, timeout)?;
            if end > 0 && committed.offset() != Offset::Offset(end) {
                let offset = committed.offset();
                return Ok(Err(format!(
                    "partition {partition} is at {offset:?} of {end}"
                )));
            }
        }
        Ok(Ok(()))
    }

    async fn fresh_database(&self, name: &str) -> Result<String, sqlx::Error> {
        self.drop_database(name).await?;
        let create = format!("CREATE DATABASE {name}");
        sqlx::query(AssertSqlSafe(create))
            .execute(&self.postgres)
            .await?;
        let options = PgConnectOptions::from_str(&self.cluster.database_url)?;
        let (host, port) = (options.get_host(), options.get_port());
        Ok(format!(
            "postgres://{}@{host}:{port}/{name}",
            options.get_username()
        ))
    }

    async fn drop_database(&self, name: &str) -> Result<(), sqlx::Error> {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        sqlx::query(AssertSqlSafe(drop))
            .execute(&self.postgres)
            .await?;
        Ok(())
    }
}

async fn connect(url: &str) -> Result<PgPool, sqlx::Error> {
    let options = PgConnectOptions::from_str(url)?.options([("statement_timeout", "120s")]);
    PgPoolOptions::new()
        .max_connections(2)
        .connect_with(options)
        .await
}

fn said(error: impl fmt::Display) -> String {
    error.to_string()
}
