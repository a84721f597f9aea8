//! Kafka and SQS consumers whose effects happen exactly once.
//!
//! Brokers deliver at least once; oneffect makes the *effect* happen once. Every event carries a
//! stable id; the runtime claims it by inserting it in the same database transaction as the
//! handler's writes, a batch at a time, and acknowledges only after that transaction has verifiably
//! committed.
//!
//! # Guarantees
//! - What a handler writes through [`Context::db`] takes effect exactly once for each event id and
//!   consumer, whatever is delivered again, crashes, freezes or is taken away.
//! - No event is lost: each ends with its effect, as a stored rejection, or as a dead letter.
//! - Events of one partition (or FIFO message group) take effect in order, through failures.
//!
//! # What is not guaranteed
//! - That a handler *runs* once. What it does outside the database happens each time it runs.
//! - Anything about events whose producer does not repeat their id.
//! - What an asynchronous failover of the database forgets: it forgets effect and inbox row together.
//!
//! # Example
//! ```no_run
//! use oneffect::{Consumer, Context, Handler, HandlerResult, Kafka, Postgres, done, reject, shutdown_signal};
//!
//! #[derive(serde::Deserialize)]
//! struct Transfer {
//!     from_account: String,
//!     to_account: String,
//!     amount_minor: i64,
//! }
//!
//! struct Ledger;
//!
//! const ENTRIES: &str = "INSERT INTO ledger_entry (account, amount_minor) VALUES ($1, -$3), ($2, $3)";
//!
//! impl Handler<Postgres> for Ledger {
//!     type Event = Transfer;
//!
//!     async fn handle(&self, cx: &mut Context<'_, Postgres>, transfer: Transfer) -> HandlerResult {
//!         if transfer.amount_minor <= 0 {
//!             return reject("amount must be positive");
//!         }
//!         sqlx::query(ENTRIES)
//!             .bind(transfer.from_account)
//!             .bind(transfer.to_account)
//!             .bind(transfer.amount_minor)
//!             .execute(cx.db().await?) // the same transaction as the inbox row
//!             .await?;
//!         done()
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let kafka = Kafka::new("localhost:9092", "ledger", ["transfers"]);
//! let postgres = Postgres::connect("postgres://localhost/bank").await?;
//! postgres.migrate().await?; // the inbox and its companions; never runs by itself
//! Consumer::new("ledger", kafka, postgres, Ledger).run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `kafka` | yes | `Kafka`, on librdkafka (built along; needs a C compiler and make) |
//! | `kafka-ssl` | | TLS and SASL/SCRAM to Kafka, on the system's OpenSSL |
//! | `sqs` | yes | `Sqs`, on the AWS SDK |
//! | `postgres` | yes | `Postgres`, on sqlx |
//! | `postgres-tls` | | TLS to PostgreSQL, with rustls |
//! | `sqlite` | yes | `Sqlite`, on sqlx |
//! | `testing` | | `testing`: a source and a store in memory, faults by seed, the contract suites |
//!
//! Building without the defaults is quicker: `default-features = false`, and what you use.

pub use oneffect_core::*;

#[cfg(feature = "kafka")]
pub use oneffect_kafka::{Kafka, KafkaConfig};
#[cfg(feature = "postgres")]
pub use oneffect_postgres::{
    Isolation, PoolerReport, Pooling, Postgres, PostgresConfig, PostgresRow, Statements,
    staged_row as postgres_row,
};
#[cfg(feature = "sqlite")]
pub use oneffect_sqlite::{Sqlite, SqliteConfig, SqliteRow, staged_row as sqlite_row};
#[cfg(feature = "sqs")]
pub use oneffect_sqs::{BASE64, ENCODING_ATTRIBUTE, EncodedBody, Sqs, SqsConfig, encode_body};

/// The README's example compiles.
#[cfg(all(doctest, feature = "kafka", feature = "postgres"))]
#[doc = include_str!("../README.md")]
struct Readme;
