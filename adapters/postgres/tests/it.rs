//! The store's part of the integration tests.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "in a test a panic is the report"
)]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

#[path = "../../../tests/it"]
mod it {
    mod postgres_store;
    pub(crate) mod store_contract {
        pub(crate) mod postgres;
    }
    #[allow(dead_code, reason = "shared with other tests")]
    pub(crate) mod support;
}

use it::{store_contract, support};
