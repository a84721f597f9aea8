//! What goes wrong in a database in memory.

use crate::store::{Blame, StoreError};

/// Why a statement failed; each stands for a kind of error of a real database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A row is there already.
    #[error("table {table} already has the row {row}")]
    UniqueViolation {
        /// The table.
        table: String,
        /// The row.
        row: String,
    },
    /// A value that the database does not take.
    #[error("a bad value: {0}")]
    BadValue(String),
    /// An earlier statement of the transaction has failed (25P02). When its error was swallowed,
    /// the event that did so is still the one to charge.
    #[error("the transaction is aborted until it is rolled back")]
    Aborted,
    /// Two transactions wait for one another; this one gives way (40P01).
    #[error("two transactions wait for one another")]
    Deadlock,
    /// There is no such savepoint (3B001).
    #[error("there is no savepoint")]
    NoSavepoint,
    /// The database is away, or was since the transaction began.
    #[error("the connection to the database is lost")]
    Unavailable,
}

impl MemoryError {
    pub(super) fn blame(&self) -> Blame {
        match self {
            Self::UniqueViolation { .. }
            | Self::BadValue(_)
            | Self::NoSavepoint
            | Self::Aborted => Blame::Event,
            Self::Deadlock => Blame::Contention,
            Self::Unavailable => Blame::Outage,
        }
    }
}

/// Outside of a commit every failure is certain to have left nothing.
impl From<MemoryError> for StoreError {
    fn from(error: MemoryError) -> Self {
        Self::rolled_back(error)
    }
}
