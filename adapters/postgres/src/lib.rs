//! oneffect's store on PostgreSQL 15 or later, through [`sqlx`].
//!
//! The inbox lives beside the user's own tables, and a handler is lent the very transaction that
//! holds its event's key: effect and key commit together or not at all.
//!
//! ```no_run
//! # async fn example() -> Result<(), oneffect_core::StoreError> {
//! use oneffect_postgres::Postgres;
//!
//! let store = Postgres::connect("postgres://app@localhost/ledger").await?;
//! store.migrate().await?; // once, by whoever may create tables
//! # Ok(())
//! # }
//! ```
//!
//! # What it asks of the database
//! - The schema that [`Postgres::migrate`] makes; it never runs by itself.
//! - `synchronous_commit` not `off`, and a database in UTF-8.
//! - A direct connection or a pooler in session mode; or [`Statements::Unnamed`], which is right
//!   behind a pooler that hands out connections by transaction too, such as PgBouncer. A consumer
//!   finds out what stands there before it starts, and refuses where it would go wrong.
//!
//! # What it does when the database is heard no more
//! No call waits for ever: see [`PostgresConfig::answer_timeout`].
//!
//! # Features
//! | feature | |
//! |---|---|
//! | `tls` | encrypted connections by rustls, trusting the roots that browsers trust |
//! | `tls-native-roots` | the same, trusting the system's roots |

mod blame;
mod claim;
mod commit;
mod config;
mod connections;
mod days;
mod dead_letter;
mod duplicate_ages;
mod examine;
mod filed;
mod forget;
mod inbox;
mod inspect;
mod keys;
mod letters;
mod migrate;
mod open;
mod partitions;
mod pooler;
mod record;
mod retry;
mod size;
mod staged;
mod store;
mod times;
mod transaction;
mod unit;

pub use config::{Isolation, PostgresConfig, Statements};
pub use migrate::SCHEMA_VERSION;
pub use pooler::{PoolerReport, Pooling};
pub use staged::{Insert, PostgresRow, StagedRow};
pub use store::Postgres;
pub use unit::PostgresUnit;
