//! Kafka for oneffect, on librdkafka.
//!
//! [`Kafka`] is a [`Source`](oneffect_core::Source): it reads topics as a member of a consumer group,
//! hands out their records, and commits no further than what is settled.
//!
//! ```no_run
//! use std::time::Duration;
//! use oneffect_kafka::Kafka;
//!
//! let source = Kafka::new("localhost:9092", "ledger", ["transfers"])
//!     .drain(Duration::from_secs(5))
//!     .set("security.protocol", "sasl_ssl");
//! # let _ = source;
//! ```
//!
//! # What it does that a bare client does not
//! - It polls from a thread of its own, whatever handlers do, so the consumer never outlives
//!   `max.poll.interval.ms`; at the limit in flight it pauses partitions and keeps them.
//! - It commits the [watermark](oneffect_core::Watermark): the offset below which everything that
//!   was delivered is settled, also when events settle out of order or offsets are missing.
//! - A revocation waits for running units of work, commits, and only then gives partitions away;
//!   what is settled later is refused. Partitions that are kept are not disturbed.
//! - A topic that does not exist, a setting that breaks the guarantee and records that the client
//!   would skip as unreadable are errors.
//!
//! # What it does not do
//! Offsets are committed only up to the last delivered record + 1. Behind it may lie the marker of a
//! transaction, so a group that has handled everything may show a lag of one on such partitions.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `ssl` | TLS and SASL/SCRAM, on the system's OpenSSL. To have OpenSSL built along, enable `ssl-vendored` of `rdkafka` in your own crate |
//! | `zstd` | reading topics that are compressed with zstd |

mod arena;
mod commit;
mod config;
mod context;
mod examine;
mod fault;
mod horizon;
mod inquiry;
mod lag;
mod poll;
mod record;
mod source;
mod state;
mod topics;

pub use config::KafkaConfig;
pub use source::Kafka;

/// Everything this crate logs goes to this target, like all of oneffect.
const TARGET: &str = "oneffect";
