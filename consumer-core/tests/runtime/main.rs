//! The runtime on the in-memory source and store, on a paused clock.

mod bench;
mod chaos;
mod failures;
mod once;
mod queues;
mod rebalance;
mod stopping;
