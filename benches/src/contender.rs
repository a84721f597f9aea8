//! What every contender is told, and what it tells.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use rdkafka::ClientConfig;

/// Where the services are.
#[derive(Clone, Debug, Args)]
pub struct Cluster {
    /// Kafka's addresses.
    #[arg(long, env = "KAFKA_BROKERS")]
    pub brokers: String,
    /// `PostgreSQL`; for a contender, the database of the ledger and of its own tables.
    #[arg(long, env = "DATABASE_URL")]
    pub database_url: String,
}

impl Cluster {
    /// A Kafka client of that group: offsets are stored by hand, after the commit in the database,
    /// and what is stored is committed in the background. All else is librdkafka's default.
    pub fn kafka(&self, group: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.offset.store", "false");
        config
    }
}

/// The command line of every contender.
#[derive(Clone, Debug, Args)]
pub struct Task {
    /// Where the services are. The contender creates its tables, and the ledger's.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Where the transfers are.
    #[arg(long)]
    pub topic: String,
    /// The consumer group; a fresh one begins at the first transfer.
    #[arg(long)]
    pub group: String,
    /// How many deliveries there are; the contender exits when all are settled.
    #[arg(long)]
    pub expect: u64,
}

/// Counts deliveries, and tells `bench` when the clock starts and stops: a line each on stdout.
#[derive(Debug)]
pub struct Progress {
    expect: u64,
    settled: AtomicU64,
    begun: AtomicBool,
}

/// The line that starts the clock: the first delivery has come out of the Kafka client.
pub const FIRST: &str = "first";
/// The line that stops it: all effects are committed in the database.
pub const LAST: &str = "last";

impl Progress {
    /// For a task of so many deliveries.
    pub fn new(expect: u64) -> Self {
        Self {
            expect,
            settled: AtomicU64::new(0),
            begun: AtomicBool::new(false),
        }
    }

    /// A delivery has come.
    pub fn delivered(&self) {
        if !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed) {
            say(FIRST);
        }
    }

    /// The effects of so many more deliveries are committed, or were before. Answers whether that
    /// was the last.
    pub fn settled(&self, deliveries: u64) -> bool {
        let settled = deliveries + self.settled.fetch_add(deliveries, Ordering::Relaxed);
        if settled < self.expect {
            return false;
        }
        say(LAST);
        true
    }
}

fn say(line: &str) {
    // Without a reader there is nobody to tell.
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
