//! The commit, verified.

use futures::TryStreamExt;
use oneffect_core::StoreError;
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Either, Executor};
use tokio::time::timeout;

use crate::blame::{class, code, is_fatal};
use crate::transaction::Transaction;

/// A setting that nobody has: the server refuses to show it, by its name.
const ENDED: &str = "oneffect.a_handler_ended_the_transaction";

/// How far the server got, by its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Nothing,
    Check,
    Commit,
}

/// Commits the transaction in which `transaction_id` was assigned.
///
/// A transaction that an error has aborted answers COMMIT with ROLLBACK, and no error; and if a
/// handler has ended ours, COMMIT commits whatever is open by then. So a statement goes ahead, in
/// the same simple query, that fails in both cases, and then the server skips the COMMIT.
///
/// `AND CHAIN` leaves an empty transaction behind: sqlx believes in an open one and will roll it
/// back when the pool takes the connection, which the server would otherwise answer with a warning
/// for each unit of work.
pub(crate) async fn commit(
    mut transaction: Transaction,
    transaction_id: Option<&str>,
) -> Result<(), StoreError> {
    let limit = transaction.limit();
    let committed = timeout(limit, check_and_commit(&mut transaction, transaction_id)).await;
    match transaction.heard_of_commit(committed)? {
        Ok(()) => {
            transaction.end_chained();
            Ok(())
        }
        Err((answered, error)) => {
            let error = judge(answered, error);
            if answered == Answered::Nothing && matches!(error, StoreError::RolledBack(_)) {
                // The connection is well, and only waits for its ROLLBACK.
                transaction.rollback().await;
            }
            Err(error)
        }
    }
}

async fn check_and_commit(
    transaction: &mut Transaction,
    transaction_id: Option<&str>,
) -> Result<(), (Answered, sqlx::Error)> {
    let check = match transaction_id {
        // Digits, from the server.
        Some(id) => format!(
            "SELECT CASE WHEN pg_current_xact_id_if_assigned()::text = '{id}' \
             THEN '' ELSE current_setting('{ENDED}') END"
        ),
        // Nothing was claimed, so no handler has run.
        None => "SELECT ''".to_owned(),
    };
    let sql = AssertSqlSafe(format!("{check}; COMMIT AND CHAIN"));
    let mut answers = transaction.fetch_many(sqlx::raw_sql(sql));
    let mut answered = Answered::Nothing;
    while let Some(answer) = answers
        .try_next()
        .await
        .map_err(|error| (answered, error))?
    {
        if let Either::Left(_completed) = answer {
            answered = match answered {
                Answered::Nothing => Answered::Check,
                Answered::Check | Answered::Commit => Answered::Commit,
            };
        }
    }
    if answered == Answered::Commit {
        Ok(())
    } else {
        let error = sqlx::Error::Protocol("the server did not answer the commit".into());
        Err((answered, error))
    }
}

fn judge(answered: Answered, error: sqlx::Error) -> StoreError {
    let Some(database) = error.as_database_error() else {
        return StoreError::indeterminate(error);
    };
    if answered == Answered::Nothing && says_ended(database) {
        return StoreError::HandlerEndedTransaction;
    }
    let certain = !is_fatal(database) && is_verdict(&code(database));
    if certain && answered != Answered::Commit {
        // Either the check failed (or something that a handler had left running), and the COMMIT
        // was skipped; or the COMMIT itself did, as for a deferred constraint.
        StoreError::rolled_back(error)
    } else {
        StoreError::indeterminate(error)
    }
}

/// Whether an error is about the transaction. Errors of the connection, of resources, operators and
/// the system, also when a pooler reports them, leave open what became of the COMMIT.
fn is_verdict(code: &str) -> bool {
    // 40003: statement completion unknown.
    !matches!(class(code), "" | "08" | "53" | "57" | "58" | "F0" | "XX") && code != "40003"
}

fn says_ended(error: &dyn DatabaseError) -> bool {
    code(error) == "42704" && error.message().contains(ENDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_transaction_are_certain() {
        for code in [
            "23505", "23503", "40001", "40P01", "25P02", "P0001", "22012",
        ] {
            assert!(is_verdict(code), "{code}");
        }
        for code in [
            "", "08006", "40003", "53100", "57014", "57P01", "58030", "XX001",
        ] {
            assert!(!is_verdict(code), "{code}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_the_commit_open() {
        let error = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        let judged = judge(Answered::Nothing, error);
        assert!(matches!(judged, StoreError::Indeterminate(_)));
    }
}
