//! How a command ends.

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Code {
    /// Done.
    Fine = 0,
    /// It did not work: the database or the broker is away, or refuses.
    Failed = 1,
    /// The command line cannot work as it is; also when a command that destroys something was not
    /// confirmed. Nothing was done.
    Usage = 2,
    /// A check has found problems.
    Problems = 3,
    /// There is no such event or dead letter.
    NotFound = 4,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// What was asked for cannot be done as it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(pub(crate) String);

/// What was asked for is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotFound(pub(crate) String);
