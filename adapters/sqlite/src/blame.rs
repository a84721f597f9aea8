//! Whose fault an error is.

use std::error::Error;

use oneffect_core::{Blame, StoreError};

use crate::claim::Vanished;
use crate::dead_letter::LetterGone;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const CONSTRAINT: i32 = 19;
const NOTADB: i32 = 26;

/// `None` for errors that are not this store's.
pub(crate) fn blame(error: &(dyn Error + 'static)) -> Option<Blame> {
    if error.is::<Vanished>() || error.is::<LetterGone>() {
        return Some(Blame::Contention);
    }
    error.downcast_ref().map(blame_sqlx)
}

fn blame_sqlx(error: &sqlx::Error) -> Blame {
    if let Some(code) = primary_code(error) {
        return blame_code(code);
    }
    let is_outage = matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed
    );
    if is_outage {
        Blame::Outage
    } else {
        Blame::Event
    }
}

fn blame_code(code: i32) -> Blame {
    match code {
        BUSY | LOCKED => Blame::Contention,
        NOMEM | READONLY | IOERR | CORRUPT | FULL | CANTOPEN | PROTOCOL | NOTADB => Blame::Outage,
        _ => Blame::Event,
    }
}

/// The first of its two bytes says of what kind it is.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Another connection writes.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(BUSY)
}

/// The database refused the commit and left the transaction open.
pub(crate) fn is_refused_commit(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(BUSY | CONSTRAINT))
}

/// The database says that the statement makes no sense, as it does of a savepoint that is gone.
pub(crate) fn is_plain_error(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(1)
}

/// After such an error the connection is better not used again.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    blame_sqlx(error) == Blame::Outage
}

/// The tables are not there or not as they should be, which no retry will mend.
pub(crate) fn misplaced(error: sqlx::Error) -> StoreError {
    if is_plain_error(&error) {
        return StoreError::Misconfigured {
            message: "the inbox's tables cannot be used: check that `Sqlite::migrate` has run"
                .into(),
            cause: Some(error.into()),
        };
    }
    StoreError::rolled_back(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_blamed_for_contention_and_outages() {
        assert_eq!(blame_code(BUSY), Blame::Contention);
        assert_eq!(blame_code(FULL), Blame::Outage);
        assert_eq!(blame_code(CONSTRAINT), Blame::Event);
    }

    #[test]
    fn only_its_own_errors_are_the_stores() {
        assert_eq!(blame(&std::fmt::Error), None);
        assert_eq!(blame(&sqlx::Error::PoolTimedOut), Some(Blame::Outage));
        assert_eq!(blame(&sqlx::Error::RowNotFound), Some(Blame::Event));
        assert_eq!(blame(&Vanished), Some(Blame::Contention));
    }
}
