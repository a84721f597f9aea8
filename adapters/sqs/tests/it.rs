//! Runs the project's tests of this adapter alone.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of this is test code, helpers included; what is skipped is printed"
)]

#[path = "../../../tests/it/sqs_rules.rs"]
mod sqs_rules;
#[path = "../../../tests/it/sqs_source.rs"]
mod sqs_source;
#[path = "../../../tests/it/sqs_stub.rs"]
mod sqs_stub;
