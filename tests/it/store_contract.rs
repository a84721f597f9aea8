//! The stores pass the contract suite.

pub(crate) mod postgres;
pub(crate) mod sqlite;
