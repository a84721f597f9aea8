//! Whether a pooler stands before the server that hands its connections out by transaction.
//!
//! Behind one, a client's next transaction may run in another session of the server. sqlx calls the
//! statements of every connection alike (`sqlx_s_1`, ..), so a statement that is kept by name then
//! meets one of another client, and PgBouncer before 1.21 runs that one without a word.

use std::collections::BTreeSet;
use std::fmt;

use oneffect_core::StoreError;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::timeout;

use crate::blame::{code, is_outage};
use crate::config::Statements;
use crate::connections::{NoConnection, Silent, place};
use crate::store::Postgres;

/// How connections reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// Each connection is a session of its own: there is no pooler, or one that hands sessions out for
    /// as long as a client is connected (PgBouncer's `pool_mode = session`).
    Session,
    /// Each transaction may run in another session (PgBouncer's `pool_mode = transaction`).
    Transaction,
    /// Each statement may run in another session, so there are no transactions (PgBouncer's
    /// `pool_mode = statement`): nothing can work there.
    Statement,
}

/// What [`Postgres::pooler`] has found; its text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolerReport {
    /// How connections reach the server.
    pub pooling: Pooling,
    /// How the store sends its statements, as it was told.
    pub statements: Statements,
}

impl PoolerReport {
    /// Whether the store works right there. Where it does not, consumers refuse to start.
    pub fn is_right(&self) -> bool {
        match self.pooling {
            Pooling::Session => true,
            Pooling::Transaction => self.statements == Statements::Unnamed,
            Pooling::Statement => false,
        }
    }

    /// What to do where it does not.
    pub fn advice(&self) -> &'static str {
        match self.pooling {
            Pooling::Session => "nothing",
            Pooling::Transaction => {
                "set PostgresConfig::statements to Statements::Unnamed, and give each sqlx query in \
                 handlers `.persistent(false)`; or connect to the server itself, or to a pooler in \
                 session mode"
            }
            Pooling::Statement => {
                "connect to the server itself, or to a pooler in session mode, or to one in \
                 transaction mode with PostgresConfig::statements set to Statements::Unnamed"
            }
        }
    }
}

/// What was found, whether that is right, and what it costs.
impl fmt::Display for PoolerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.pooling, self.statements) {
            (Pooling::Session, Statements::Named) => {
                "connections are sessions of their own, and statements are prepared once on each and \
                 kept: right, and the fastest"
            }
            (Pooling::Session, Statements::Unnamed) => {
                "connections are sessions of their own, and statements are prepared each time \
                 (Statements::Unnamed): right, but each takes a second round trip that only a pooler \
                 in transaction mode makes necessary; Statements::Named does without"
            }
            (Pooling::Transaction, Statements::Unnamed) => {
                "a pooler hands out connections by transaction, and statements are prepared each time \
                 (Statements::Unnamed): right; each takes a second round trip, which a direct \
                 connection or a pooler in session mode would do without"
            }
            (Pooling::Transaction, Statements::Named) => {
                "a pooler hands out connections by transaction (PgBouncer's pool_mode = transaction), \
                 and statements are kept by name: another client's statement could run in place of \
                 ours, without an error"
            }
            (Pooling::Statement, _) => {
                "a pooler hands out connections by statement (PgBouncer's pool_mode = statement), so \
                 there are no transactions, and an effect cannot commit together with its event's key"
            }
        })
    }
}

/// In which session this is. Process ids alone may be alike on two servers behind one address.
const SESSION: &str = "SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time()";

/// Which of two connections asks next. A pooler hands out the session that came back last, or the one
/// that has been idle for longest, or makes another. Each shows itself, where no one else
/// interferes: by the second question, the third, or the fourth. The rest is for a pooler that is
/// busy, where what comes next is a matter of chance.
const TURNS: [usize; 14] = [0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1];

impl Postgres {
    /// Finds out whether there is a pooler that hands out connections by transaction, and whether the
    /// store's options are right for that. Each consumer asks before it starts; this is for
    /// those who want to know. Makes two connections beside the pool's for a moment.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the server cannot be reached, [`StoreError::Misconfigured`]
    /// when it refuses us.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it has opened.
    pub async fn pooler(&self) -> Result<PoolerReport, StoreError> {
        let patience = self.pool().options().get_acquire_timeout();
        let waited = patience.saturating_add(self.connections().prompt);
        let pooling = timeout(waited, self.find_pooling()).await.map_err(|_| {
            let call = "the search for a pooler";
            StoreError::rolled_back(Silent { call, waited })
        })??;
        Ok(PoolerReport {
            pooling,
            statements: self.config().statements,
        })
    }

    /// Refuses to start where another client's statements might run. Asks once for all clones.
    pub(crate) async fn check_pooler(&self) -> Result<(), StoreError> {
        let report = match self.pooling.get() {
            Some(report) => *report,
            None => self.pooler().await?,
        };
        if !report.is_right() {
            return Err(StoreError::misconfigured(format!(
                "{report}: {}",
                report.advice()
            )));
        }
        // A rival has found the same.
        let _ = self.pooling.set(report);
        Ok(())
    }

    async fn find_pooling(&self) -> Result<Pooling, StoreError> {
        let mut connections = [self.connect_beside().await?, self.connect_beside().await?];
        let pooling = find(&mut connections)
            .await
            .map_err(StoreError::rolled_back)?;
        for connection in connections {
            let _closed = connection.close().await;
        }
        Ok(pooling)
    }

    async fn connect_beside(&self) -> Result<PgConnection, StoreError> {
        let options = self.pool().connect_options();
        options.connect().await.map_err(|cause| {
            let place = place(&options);
            if is_outage(&cause) {
                StoreError::rolled_back(NoConnection::Unreachable { place, cause })
            } else {
                StoreError::Misconfigured {
                    message: format!("PostgreSQL refuses us ({place})"),
                    cause: Some(cause.into()),
                }
            }
        })
    }
}

/// All as simple queries: nothing else is right before the answer is known.
async fn find(connections: &mut [PgConnection; 2]) -> sqlx::Result<Pooling> {
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for turn in TURNS {
        let session: String = sqlx::Row::try_get(
            &sqlx::Executor::fetch_one(&mut connections[turn], sqlx::raw_sql(SESSION)).await?,
            0,
        )?;
        seen[turn].insert(session);
        if is_shared(&seen) {
            break;
        }
    }
    match sqlx::raw_sql("BEGIN").execute(&mut connections[0]).await {
        Ok(_) => {
            sqlx::raw_sql("ROLLBACK")
                .execute(&mut connections[0])
                .await?;
        }
        Err(error) if forbids_transactions(&error) => return Ok(Pooling::Statement),
        Err(error) => return Err(error),
    }
    if is_shared(&seen) {
        Ok(Pooling::Transaction)
    } else {
        Ok(Pooling::Session)
    }
}

/// Whether one connection was in two sessions, or two were in one.
fn is_shared(seen: &[BTreeSet<String>; 2]) -> bool {
    seen.iter().any(|sessions| sessions.len() > 1) || !seen[0].is_disjoint(&seen[1])
}

/// PgBouncer reports most of its own troubles with one code, so only the words tell.
fn forbids_transactions(error: &sqlx::Error) -> bool {
    says(error, "transaction blocks not allowed")
}

/// Whether the connection was refused for a parameter that poolers do not know how to keep.
pub(crate) fn refuses_parameter(error: &sqlx::Error) -> bool {
    says(error, "unsupported startup parameter")
}

fn says(error: &sqlx::Error, words: &str) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| code(error) == "08P01" && error.message().contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(of: [&[&str]; 2]) -> [BTreeSet<String>; 2] {
        of.map(|seen| seen.iter().map(|&session| session.to_owned()).collect())
    }

    #[test]
    fn a_session_in_two_hands_and_a_hand_in_two_sessions_are_a_poolers() {
        assert!(!is_shared(&sessions([&["1"], &["2"]])));
        assert!(is_shared(&sessions([&["1"], &["1"]])));
        assert!(is_shared(&sessions([&["1", "3"], &["2"]])));
    }

    /// Any number of sessions that are handed out in any of the two orders.
    #[test]
    fn the_turns_unmask_every_orderly_pooler() {
        for n in 1..50 {
            for last_first in [true, false] {
                let mut idle: Vec<usize> = (0..n).collect();
                let mut seen = [BTreeSet::new(), BTreeSet::new()];
                for turn in TURNS {
                    let session = if last_first {
                        idle.pop().unwrap()
                    } else {
                        idle.remove(0)
                    };
                    seen[turn].insert(session.to_string());
                    idle.push(session);
                }
                assert!(is_shared(&seen), "{n} {last_first}");
            }
        }
    }

    #[test]
    fn only_what_is_right_starts() {
        let right = |pooling, statements| {
            let report = PoolerReport {
                pooling,
                statements,
            };
            report.is_right()
        };
        for statements in [Statements::Named, Statements::Unnamed] {
            assert!(right(Pooling::Session, statements));
            assert!(!right(Pooling::Statement, statements));
        }
        assert!(right(Pooling::Transaction, Statements::Unnamed));
        assert!(!right(Pooling::Transaction, Statements::Named));
    }
}
