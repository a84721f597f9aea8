//! Where a database's schema stands.

use std::time::SystemTime;

/// The versions of the schema: what a database has, and what this program works with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrations {
    /// The version that this program works with.
    pub known: i32,
    /// The migrations that were applied, oldest first.
    pub applied: Vec<Migrated>,
}

/// A migration that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version that it made.
    pub version: i32,
    /// When, by the database's clock.
    pub at: SystemTime,
}

impl Migrations {
    /// What was applied, to a program that works with the version `known`.
    pub fn new(known: i32, applied: Vec<Migrated>) -> Self {
        Self { known, applied }
    }

    /// The schema's version; 0 where there is none.
    pub fn version(&self) -> i32 {
        self.applied.last().map_or(0, |last| last.version)
    }

    /// Whether consumers of this program can work with the schema.
    pub fn is_current(&self) -> bool {
        self.version() == self.known
    }
}
