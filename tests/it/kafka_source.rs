//! The Kafka source, against a real broker.

// Clippy knows tests by their attribute, not the functions that help them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "kafka_source/broker.rs"]
pub(crate) mod broker;
#[path = "kafka_source/group.rs"]
mod group;
#[path = "kafka_source/life.rs"]
mod life;
#[path = "kafka_source/log.rs"]
mod log;
#[path = "kafka_source/member.rs"]
mod member;
