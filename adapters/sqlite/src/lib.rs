//! oneffect's store on SQLite, through [`sqlx`].
//!
//! The inbox lives beside the user's own tables, and a handler is lent the very transaction that
//! holds its event's key: effect and key commit together or not at all.
//!
//! ```no_run
//! # async fn example() -> Result<(), oneffect_core::StoreError> {
//! use oneffect_sqlite::Sqlite;
//!
//! let store = Sqlite::open("ledger.db").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # One writer
//! SQLite takes one writer at a time. The store holds one connection and runs one unit of work at a
//! time, begun as a writer (`BEGIN IMMEDIATE`), so that none fails halfway for having only read so
//! far. Other processes may write too: a unit waits for them for
//! [`SqliteConfig::busy_timeout`], and then counts as nobody's failure.
//!
//! The file is kept in WAL mode, and every commit is synced to the disk.

mod blame;
mod claim;
mod commit;
mod config;
mod days;
mod dead_letter;
mod duplicate_ages;
mod examine;
mod inbox;
mod inspect;
mod keys;
mod letters;
mod migrate;
mod open;
mod record;
mod retry;
mod size;
mod staged;
mod started;
mod store;
mod transaction;
mod unit;

pub use config::SqliteConfig;
pub use migrate::SCHEMA_VERSION;
pub use staged::{Insert, SqliteRow, StagedRow};
pub use store::Sqlite;
pub use unit::SqliteUnit;
