//! What can be asked for on the command line, and what is meant by it.

mod help;

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use oneffect::Lanes;

use crate::handler::{Ledger, Style};
use crate::stream::Mix;

/// Options as they are given.
#[derive(Debug, Parser)]
#[command(name = "ledger", about = help::ABOUT, long_about = help::LONG_ABOUT, after_help = help::EXAMPLES)]
pub(crate) struct Options {
    /// Kafka's brokers, separated by commas
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "KAFKA_BROKERS",
        help_heading = "Broker"
    )]
    kafka: Option<String>,
    /// The topic; producing creates it where it is missing
    #[arg(
        long,
        env = "TOPIC",
        default_value = "transfers",
        help_heading = "Broker"
    )]
    pub(crate) topic: String,
    /// The consumer group
    #[arg(long, env = "GROUP", default_value = "ledger", help_heading = "Broker")]
    pub(crate) group: String,
    /// Partitions of a topic that is created
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..), help_heading = "Broker")]
    pub(crate) partitions: i32,
    /// An SQS queue, standard or FIFO, which must exist
    #[arg(long, value_name = "QUEUE_URL", help_heading = "Broker")]
    sqs: Option<String>,
    /// The endpoint of an emulator of SQS; without it the AWS configuration counts (`AWS_ENDPOINT_URL`)
    #[arg(
        long,
        value_name = "URL",
        env = "SQS_ENDPOINT",
        help_heading = "Broker"
    )]
    sqs_endpoint: Option<String>,

    /// `postgres://USER@HOST/DATABASE` or `sqlite:FILE`, which is created where it is missing
    #[arg(
        long,
        value_name = "URL",
        env = "DATABASE_URL",
        hide_env_values = true,
        help_heading = "Database"
    )]
    database: Option<String>,
    /// A schema of PostgreSQL for the inbox and the ledger, created where it is missing
    #[arg(long, help_heading = "Database")]
    pub(crate) schema: Option<String>,
    /// Whether the ledger has a UNIQUE constraint of its own; `off` leaves it to the inbox alone
    #[arg(
        long,
        value_name = "ON|OFF",
        default_value = "on",
        help_heading = "Database"
    )]
    natural_key: Switch,

    /// Only produce so many distinct events
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "consume",
        help_heading = "Task"
    )]
    produce: Option<u64>,
    /// Only consume, until a signal ends it, or as long as --until says
    #[arg(long, help_heading = "Task")]
    consume: bool,
    /// Stop once so many distinct events are settled in the database
    #[arg(long, value_name = "N", requires = "consume", help_heading = "Task")]
    until: Option<u64>,
    /// Distinct events to produce and consume, when it does both
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        help_heading = "Task"
    )]
    events: u64,
    /// How often a consumer is crashed in mid-batch [default: 4, of real brokers 0]
    #[arg(long, value_name = "N", help_heading = "Task")]
    crashes: Option<u32>,
    /// Consumers in this process [default: 3, of real brokers 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Task")]
    consumers: Option<usize>,
    /// The consumer's name: each name has every event's effect once
    #[arg(
        long,
        value_name = "NAME",
        default_value = "ledger",
        help_heading = "Task"
    )]
    pub(crate) consumer: String,
    /// Units of work that each consumer runs at once
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Task")]
    pub(crate) workers: usize,
    /// How the handler writes
    #[arg(long, value_enum, default_value_t, help_heading = "Task")]
    handler: Style,
    /// What is handled in order: all of a partition, all of a record key (a transfer's is the account
    /// that pays), or nothing
    #[arg(
        long,
        value_name = "LANES",
        default_value = "partition",
        value_parser = lanes,
        help_heading = "Task"
    )]
    pub(crate) lanes: Lanes,
    /// Events that a unit of work takes at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_one, help_heading = "Task")]
    pub(crate) batch: usize,
    /// Last print a line of JSON: `events`, `applied`, `rejected` and `dead_letters` are those settled
    /// in the database since the run began, by whomever; `deliveries` and `duplicates` are this
    /// process's
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Task")]
    pub(crate) json: bool,

    /// Share of the events that are sent twice
    #[arg(long, value_name = "RATE", default_value_t = 0.2, value_parser = rate, help_heading = "Stream")]
    duplicates: f64,
    /// Share of the events that cannot be read
    #[arg(long, value_name = "RATE", default_value_t = 0.002, value_parser = rate, help_heading = "Stream")]
    malformed: f64,
    /// Share of the events that the ledger must refuse
    #[arg(long, value_name = "RATE", default_value_t = 0.01, value_parser = rate, help_heading = "Stream")]
    rejected: f64,
    /// Where every random choice follows from, but for event ids
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Stream")]
    pub(crate) seed: u64,

    /// How long the handler dawdles while its transaction is open
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 0,
        help_heading = "For tests"
    )]
    handler_delay_ms: u64,
    /// Share of the events that fail at their first attempt [default: 0.0002, of real brokers 0]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "For tests")]
    fail_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Produce, consume, and compare.
    Both,
    Produce,
    /// Until so many events are settled.
    Consume {
        until: Option<u64>,
    },
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokerChoice {
    /// The mock within this process.
    Mock,
    Kafka(String),
    Sqs {
        queue_url: String,
        endpoint: Option<String>,
    },
}

/// Where they take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseChoice {
    /// SQLite in a temporary file.
    Temporary,
    Sqlite(String),
    Postgres(String),
    /// Only producing needs none.
    None,
}

/// Options that do not go together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(&'static str);

impl Options {
    /// Reads the command line; ends the process where it asks for help or makes no sense.
    pub(crate) fn read() -> (Self, bool) {
        let matches = Self::command().get_matches();
        let options = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let given = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let is_real = ["kafka", "sqs", "database", "produce", "consume"]
            .into_iter()
            .any(given);
        if given("kafka") && given("sqs") {
            let error = Self::command().error(
                clap::error::ErrorKind::ArgumentConflict,
                "--kafka and --sqs cannot both be given",
            );
            error.exit();
        }
        (options, is_real)
    }

    pub(crate) fn task(&self) -> Task {
        match (self.produce, self.consume) {
            (Some(_), _) => Task::Produce,
            (None, true) => Task::Consume { until: self.until },
            (None, false) => Task::Both,
        }
    }

    pub(crate) fn broker(&self, is_real: bool) -> Result<BrokerChoice, Unusable> {
        if !is_real {
            return Ok(BrokerChoice::Mock);
        }
        // A queue can only be named on the command line, so it goes before KAFKA_BROKERS.
        match (&self.sqs, &self.kafka) {
            (Some(queue_url), _) => Ok(BrokerChoice::Sqs {
                queue_url: queue_url.clone(),
                endpoint: self.sqs_endpoint.clone(),
            }),
            (None, Some(brokers)) => Ok(BrokerChoice::Kafka(brokers.clone())),
            (None, None) => Err(Unusable(
                "no broker: give --kafka HOST:PORT (or KAFKA_BROKERS) or --sqs QUEUE_URL",
            )),
        }
    }

    pub(crate) fn database(&self, is_real: bool) -> Result<DatabaseChoice, Unusable> {
        if !is_real {
            return Ok(DatabaseChoice::Temporary);
        }
        if self.task() == Task::Produce {
            return Ok(DatabaseChoice::None);
        }
        match &self.database {
            Some(url) if url.starts_with("postgres:") || url.starts_with("postgresql:") => {
                Ok(DatabaseChoice::Postgres(url.clone()))
            }
            Some(url) if url.starts_with("sqlite:") => Ok(DatabaseChoice::Sqlite(url.clone())),
            Some(_) => Err(Unusable(
                "--database takes postgres://USER@HOST/DATABASE or sqlite:FILE",
            )),
            None => Err(Unusable(
                "no database: give --database postgres://.. or sqlite:.. (or DATABASE_URL)",
            )),
        }
    }

    pub(crate) fn mix(&self) -> Mix {
        Mix {
            events: self.produce.unwrap_or(self.events),
            duplicates: self.duplicates,
            malformed: self.malformed,
            rejected: self.rejected,
            seed: self.seed,
        }
    }

    pub(crate) fn handler(&self, is_real: bool) -> Ledger {
        Ledger {
            style: self.handler,
            delay: Duration::from_millis(self.handler_delay_ms),
            fail_rate: self.fail_rate.unwrap_or(if is_real { 0.0 } else { 0.0002 }),
        }
    }

    pub(crate) fn has_natural_key(&self) -> bool {
        self.natural_key == Switch::On
    }

    pub(crate) fn crashes(&self, is_real: bool) -> u32 {
        self.crashes.unwrap_or(if is_real { 0 } else { 4 })
    }

    pub(crate) fn consumers(&self, is_real: bool) -> usize {
        self.consumers.unwrap_or(if is_real { 1 } else { 3 })
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("at least 1".to_owned()),
    }
}

fn lanes(text: &str) -> Result<Lanes, String> {
    match text {
        "partition" => Ok(Lanes::Partition),
        "key" => Ok(Lanes::Key),
        "unordered" => Ok(Lanes::Unordered),
        _ => Err("one of partition, key, unordered".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}
