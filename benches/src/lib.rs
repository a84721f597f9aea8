//! What the bench's programs share: the workload, the ledger, and how a contender is run.
//!
//! A contender is a program that consumes a topic and writes a ledger. `bench` starts it as a child
//! process, so that its CPU time and memory are its own, and so that one in another language could
//! stand beside the others. See `benches/README.md`.

pub mod contender;
pub mod ledger;
pub mod workload;
