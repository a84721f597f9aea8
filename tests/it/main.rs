//! Everything that needs real services, in one binary.
//!
//! Each test has its own topic, queue and schema, and runs against what `KAFKA_BROKERS`,
//! `SQS_ENDPOINT`, `DATABASE_URL` and `POOLER_URL` name; `scripts/test` sets them. Without its service a test is
//! skipped, and with `CI` set it fails.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::struct_field_names,
    reason = "in a test a panic is the report, and fields are named as on the wire"
)]
#![allow(
    clippy::print_stdout,
    reason = "tests say what they skip, and print their seeds"
)]

mod child;
mod cli;
mod doctor;
mod end_to_end;
mod kafka_source;
mod postgres_store;
mod source_contract;
mod sqlite_store;
mod sqs_rules;
mod sqs_source;
mod sqs_stub;
mod store_contract;
mod support;
