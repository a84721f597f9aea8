//! Whose fault an error is.

use std::error::Error;

use oneffect_core::{Blame, StoreError};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::claim::{NoPartition, Vanished};
use crate::connections::{NoConnection, Silent};
use crate::dead_letter::LetterGone;

/// `None` for errors that are not this store's.
pub(crate) fn blame(error: &(dyn Error + 'static)) -> Option<Blame> {
    if error.is::<Vanished>() || error.is::<NoPartition>() || error.is::<LetterGone>() {
        return Some(Blame::Contention);
    }
    if error.is::<Silent>() || error.is::<NoConnection>() {
        return Some(Blame::Outage);
    }
    error.downcast_ref().map(blame_sqlx)
}

fn blame_sqlx(error: &sqlx::Error) -> Blame {
    if is_stale_plan(error) {
        return Blame::Contention;
    }
    if let sqlx::Error::Database(error) = error {
        return blame_code(&code(&**error));
    }
    // A garbled or broken stream, or no connection at all.
    let is_outage = matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
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

fn blame_code(code: &str) -> Blame {
    match code {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => Blame::Contention,
        // A statement that ran into its own timeout says nothing of the server's health.
        "57014" => Blame::Event,
        // A read-only transaction, as on a server that has become a standby; a transaction that the
        // server ended because nothing was heard of us; a prepared statement that is not there, or
        // there already, since a pooler has handed us another session.
        "25006" | "25P03" | "25P04" | "26000" | "42P05" => Blame::Outage,
        _ => match class(code) {
            // Connection; resources; operator; system; internal.
            "08" | "53" | "57" | "58" | "XX" => Blame::Outage,
            _ => Blame::Event,
        },
    }
}

/// The first two characters say of what kind it is.
pub(crate) fn class(code: &str) -> &str {
    code.get(..2).unwrap_or_default()
}

pub(crate) fn code(error: &dyn DatabaseError) -> String {
    error.code().unwrap_or_default().into_owned()
}

/// The session is gone, whoever ended it.
pub(crate) fn is_disconnect(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Database(error) = error {
        return is_fatal(&**error);
    }
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_))
}

/// The server says that this was its last word on this connection. Poolers say so too when they
/// have lost the server.
pub(crate) fn is_fatal(error: &dyn DatabaseError) -> bool {
    error
        .try_downcast_ref::<PgDatabaseError>()
        .is_none_or(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// After such an error the connection is better not used again.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    blame_sqlx(error) == Blame::Outage
}

/// A statement was prepared on this connection before a table was changed that it reads, and fails
/// there until it is prepared anew, which sqlx does not do.
pub(crate) fn is_stale_plan(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        code(error) == "0A000"
            && error
                .try_downcast_ref::<PgDatabaseError>()
                .is_some_and(|error| error.routine() == Some("RevalidateCachedQuery"))
    })
}

/// The tables are not there or not ours, which no retry will mend.
pub(crate) fn misplaced(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().map(code).unwrap_or_default();
    match &*code {
        "42P01" | "42703" | "42883" | "42501" | "3F000" => StoreError::Misconfigured {
            message: "the inbox's tables cannot be used: check that `Postgres::migrate` has run, \
                      the role's rights and its search_path"
                .into(),
            cause: Some(error.into()),
        },
        _ => StoreError::rolled_back(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_blamed_for_contention_and_outages() {
        for code in ["40001", "40P01", "55P03"] {
            assert_eq!(blame_code(code), Blame::Contention, "{code}");
        }
        for code in [
            "08006", "53300", "57P01", "57P03", "58030", "XX000", "25006", "25P03", "26000",
            "42P05",
        ] {
            assert_eq!(blame_code(code), Blame::Outage, "{code}");
        }
        for code in ["23505", "22001", "42601", "57014", "25P02", "P0001", ""] {
            assert_eq!(blame_code(code), Blame::Event, "{code}");
        }
    }

    #[test]
    fn only_its_own_errors_are_the_stores() {
        assert_eq!(blame(&std::fmt::Error), None);
        assert_eq!(blame(&sqlx::Error::PoolTimedOut), Some(Blame::Outage));
        assert_eq!(blame(&sqlx::Error::RowNotFound), Some(Blame::Event));
        assert_eq!(blame(&Vanished), Some(Blame::Contention));
    }
}
