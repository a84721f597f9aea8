//! The stores pass the contract suite.

pub(crate) mod postgres;
mod sqlite;
