//! The runtime on the in-memory source and store, on a paused clock.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::struct_field_names,
    reason = "in a test a panic is the report, and fields are named as on the wire"
)]

mod batches;
mod bench;
mod chaos;
mod circuit;
mod days;
mod dead_letters;
mod failures;
mod fingerprints;
mod health;
mod hostile;
mod lanes;
mod once;
mod queues;
mod rebalance;
mod redrive;
mod replies;
mod staging;
mod stopping;
mod tempest;
mod tenants;
mod windows;
