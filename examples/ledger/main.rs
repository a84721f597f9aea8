//! A double-entry ledger that is fed a hostile stream, and balances.
//!
//! `cargo run --example ledger` needs nothing but a C compiler and make; `--help` says what else it
//! can do. What a user of oneffect writes is in `handler.rs` and `entry.rs`; everything else sends events, crashes
//! consumers, and checks the books from outside.

#![allow(
    clippy::print_stdout,
    reason = "the report is what this program is for"
)]

mod books;
mod broker;
mod crew;
mod demo;
mod entry;
mod handler;
mod options;
mod report;
mod run;
mod stream;
mod transfer;

use std::process::ExitCode;

use oneffect::{RunError, StoreError};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::books::Books;
use crate::books::postgres::PostgresBooks;
use crate::books::sqlite::SqliteBooks;
use crate::broker::Broker;
use crate::broker::kafka::KafkaTopic;
use crate::broker::sqs::SqsQueue;
use crate::crew::Recipe;
use crate::demo::{MockKafka, TemporaryFolder};
use crate::options::{BrokerChoice, DatabaseChoice, Options, Task};
use crate::report::Report;
use crate::run::Plan;

#[tokio::main]
async fn main() -> ExitCode {
    let (options, is_real) = Options::read();
    start_logging(is_real);
    match run(&options, is_real).await {
        Ok(report) => {
            println!("{}", report.table());
            if options.json {
                println!("{}", report.json());
            }
            ExitCode::from(u8::from(!report.is_good()))
        }
        Err(error) => {
            eprintln!("ledger: {error:#}");
            exit_code(&error)
        }
    }
}

/// As `RUST_LOG` says, on standard error.
fn start_logging(is_real: bool) {
    // A demonstration asks for trouble, and what the consumers say of it would bury the rest.
    let usual = if is_real {
        LevelFilter::WARN
    } else {
        LevelFilter::OFF
    };
    let asked: Option<Targets> = std::env::var("RUST_LOG")
        .ok()
        .and_then(|text| text.parse().ok());
    let targets = asked.unwrap_or_else(|| Targets::new().with_default(usual));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
}

/// The consumer's own where it was the consumer; else 1, for what may work another time, or 2.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<RunError>() {
        return error.exit_code();
    }
    let is_set_up = matches!(
        error.downcast_ref::<StoreError>(),
        Some(StoreError::Misconfigured { .. })
    );
    if is_set_up || error.is::<options::Unusable>() {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}

async fn run(options: &Options, is_real: bool) -> anyhow::Result<Report> {
    let (topic, group) = (&*options.topic, &*options.group);
    match options.broker(is_real)? {
        BrokerChoice::Mock => {
            let kafka = MockKafka::start()?;
            let topic = kafka.topic("transfers", "ledger", options.partitions)?;
            with_broker(options, is_real, topic).await
        }
        BrokerChoice::Kafka(brokers) => {
            let topic = KafkaTopic::new(&brokers, topic, group)?.partitions(options.partitions);
            with_broker(options, is_real, topic).await
        }
        BrokerChoice::Sqs {
            queue_url,
            endpoint,
        } => {
            let queue = SqsQueue::new(&queue_url, endpoint.as_deref()).await;
            with_broker(options, is_real, queue).await
        }
    }
}

async fn with_broker<Br: Broker>(
    options: &Options,
    is_real: bool,
    broker: Br,
) -> anyhow::Result<Report> {
    match options.database(is_real)? {
        DatabaseChoice::None => run::produce(&broker, options.mix()).await,
        DatabaseChoice::Temporary => {
            let mut folder = TemporaryFolder::create()?;
            let books = SqliteBooks::new(&folder.database());
            let report = with_books(options, is_real, broker, books).await?;
            if !report.is_good() {
                eprintln!(
                    "ledger: the database is left in {}",
                    folder.keep().display()
                );
            }
            Ok(report)
        }
        DatabaseChoice::Sqlite(url) => {
            with_books(options, is_real, broker, SqliteBooks::new(&url)).await
        }
        DatabaseChoice::Postgres(url) => {
            let workers = options.workers * options.consumers(is_real);
            let books = PostgresBooks::connect(&url, options.schema.as_deref(), workers).await?;
            with_books(options, is_real, broker, books).await
        }
    }
}

async fn with_books<Br: Broker, B: Books>(
    options: &Options,
    is_real: bool,
    broker: Br,
    books: B,
) -> anyhow::Result<Report> {
    let plan = Plan {
        task: options.task(),
        mix: options.mix(),
        natural_key: options.has_natural_key(),
        crashes: options.crashes(is_real),
        one_by_one: !is_real,
        consumers: options.consumers(is_real),
    };
    debug_assert!(plan.task != Task::Produce, "producing needs no books");
    let recipe = Recipe {
        broker,
        books,
        handler: options.handler(is_real),
        name: options.consumer.clone(),
        workers: options.workers,
        lanes: options.lanes,
        batch: options.batch,
    };
    run::consume(&plan, recipe).await
}
