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
//! - A role that owns these tables, for the consumers or for whoever else runs maintenance: the
//!   inbox is partitioned by days, and its partitions are created ahead and dropped when they are
//!   forgotten. A consumer whose role may not is right as long as somebody else's does.
//!
//! # How long it remembers
//! For [`PostgresConfig::window_days`], which belongs to the schema. An event that has a day of its
//! own (the time inside a UUIDv7 or a ULID) is kept in `inbox` under that day; all others in
//! `inbox_open`, by the period in which they came. The view `inbox_readable` shows both. What is
//! forgotten is dropped as a whole, and holds nobody up who writes meanwhile; before that the floor
//! is raised in `inbox_floor`, below which no event is ever taken for a new one.
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
mod started;
mod store;
mod transaction;
mod unit;

pub use config::{Isolation, PostgresConfig, Statements};
pub use migrate::SCHEMA_VERSION;
pub use pooler::{PoolerReport, Pooling};
pub use staged::{Insert, PostgresRow, StagedRow};
pub use store::Postgres;
pub use unit::PostgresUnit;
