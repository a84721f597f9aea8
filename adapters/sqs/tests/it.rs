//! Runs the project's tests of this adapter alone.

#[path = "../../../tests/it/sqs_rules.rs"]
mod sqs_rules;
#[path = "../../../tests/it/sqs_stub.rs"]
mod sqs_stub;
