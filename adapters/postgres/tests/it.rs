//! The store's part of the integration tests.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "in a test a panic is the report"
)]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

#[path = "../../../tests/it/postgres_store.rs"]
mod postgres_store;
#[path = "../../../tests/it/support.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod support;

#[path = "../../../tests/it/store_contract"]
mod store_contract {
    pub(crate) mod postgres;
}
