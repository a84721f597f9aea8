//! The contract suites on the doubles.

mod memory;
