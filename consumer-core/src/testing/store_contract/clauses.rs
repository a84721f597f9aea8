//! The clauses, one function each; [`store_contract!`](crate::store_contract) makes tests of them.

#![allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    reason = "panicking is how a clause says that it is broken"
)]

mod days;
mod duplicate_ages;
mod fingerprints;
mod letters;
mod redrive;
mod rivals;
mod started;
mod units;

pub use days::*;
pub use duplicate_ages::*;
pub use fingerprints::*;
pub use letters::*;
pub use redrive::*;
pub use rivals::*;
pub use started::*;
pub use units::*;

/// The database and its store, or the end of the test when the database is not there.
macro_rules! bench {
    ($fixture:ty) => {
        match $crate::testing::store_contract::support::Bench::<$fixture>::fresh().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

use bench;
