//! The pool, and what it does not do by itself: say why there is no connection, stop waiting for a
//! server that has gone silent, and let go of connections that are of no more use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgPool};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::PostgresConfig;

/// How long finding out why there is no connection may take, on top of having waited for one.
const DIAGNOSIS: Duration = Duration::from_secs(2);

/// Why there is no connection. sqlx says no more than that the pool timed out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConnection {
    #[error("PostgreSQL cannot be reached ({place}): check that address, and that the server runs")]
    Unreachable {
        place: String,
        #[source]
        cause: sqlx::Error,
    },
    #[error(
        "PostgreSQL does not answer ({place}): check that address, and whether a firewall drops \
         what is sent there"
    )]
    NoAnswer { place: String },
    #[error(
        "all of the pool's {connections} connections to PostgreSQL were in use for {waited:?} ({place})"
    )]
    AllInUse {
        place: String,
        connections: u32,
        waited: Duration,
    },
}

/// A server that was sent something and is heard no more: it has stopped, or the connection is half
/// open, as after a failover or behind a firewall that has forgotten it. TCP alone may wait for hours.
#[derive(Debug, thiserror::Error)]
#[error(
    "PostgreSQL has not answered {call} for {waited:?}: the connection is taken for dead, and closed"
)]
pub(crate) struct Silent {
    pub(crate) call: &'static str,
    pub(crate) waited: Duration,
}

/// The pool of a store and of all its clones.
#[derive(Debug)]
pub(crate) struct Connections {
    pool: PgPool,
    /// How long to wait for an answer that takes the server no time.
    pub(crate) prompt: Duration,
    /// How long to wait for an answer at all: longer than the server works on any one statement.
    pub(crate) limit: Duration,
    /// Connections from before the last [`Connections::renew`] do not go back to the pool.
    generation: Arc<AtomicU64>,
    returning: Mutex<JoinSet<()>>,
}

impl Connections {
    pub(crate) fn new(pool: PgPool, config: &PostgresConfig) -> Self {
        let prompt = config.answer_timeout;
        Self {
            pool,
            prompt,
            limit: prompt.saturating_add(config.statement_timeout),
            generation: Arc::default(),
            returning: Mutex::default(),
        }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The next connection, in no known state.
    pub(crate) async fn acquire(
        &self,
    ) -> Result<PoolConnection<sqlx::Postgres>, Box<dyn std::error::Error + Send + Sync>> {
        match self.pool.acquire().await {
            Ok(connection) => Ok(connection),
            Err(sqlx::Error::PoolTimedOut) => {
                let options = self.pool.connect_options();
                let pool = self.pool.options();
                let waited = pool.get_acquire_timeout();
                Err(diagnose(&options, pool.get_max_connections(), waited)
                    .await
                    .into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Lets go of all connections: of the idle ones at once, of the others when they come back. What
    /// has made one of them useless (a failover, a changed table) has met the others too, and each
    /// would cost a unit of work to find out.
    pub(crate) fn renew(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        close_idle(&self.pool);
    }

    /// Gives a connection back to the pool, which first waits until all that was sent on it is
    /// answered. sqlx would wait for ever, with the connection's place in the pool taken.
    pub(crate) fn give_back(&self, connection: &mut PoolConnection<sqlx::Postgres>) {
        let returned = timeout(self.prompt, connection.return_to_pool());
        let (before, generation) = (self.generation(), Arc::clone(&self.generation));
        let pool = self.pool.clone();
        let mut returning = self
            .returning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while returning.try_join_next().is_some() {}
        returning.spawn(async move {
            // One that is cut off here is closed, and its place is free again.
            let _cut_off = returned.await;
            if generation.load(Ordering::Relaxed) != before {
                // It was under way when the others were let go of.
                close_idle(&pool);
            }
        });
    }
}

fn close_idle(pool: &PgPool) {
    while let Some(mut idle) = pool.try_acquire() {
        idle.close_on_drop();
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // They have a deadline of their own, and end what the server would log as a broken transaction.
        self.returning
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .detach_all();
    }
}

/// Finds out why a pool had no connection to give, by making one beside it.
pub(crate) async fn diagnose(
    options: &PgConnectOptions,
    connections: u32,
    waited: Duration,
) -> NoConnection {
    let place = place(options);
    match timeout(DIAGNOSIS, options.connect()).await {
        Err(_elapsed) => NoConnection::NoAnswer { place },
        Ok(Err(cause)) => NoConnection::Unreachable { place, cause },
        Ok(Ok(connection)) => {
            let _closed = timeout(DIAGNOSIS, connection.close()).await;
            NoConnection::AllInUse {
                place,
                connections,
                waited,
            }
        }
    }
}

/// Where the options lead, without the password.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    let user = options.get_username();
    // What the server assumes when none is given.
    let database = options.get_database().unwrap_or(user);
    let (host, port) = (options.get_host(), options.get_port());
    match options.get_socket() {
        Some(socket) => format!(
            "database {database:?}, user {user:?}, socket {} port {port}",
            socket.display()
        ),
        None => format!("database {database:?}, user {user:?}, host {host:?} port {port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_all_but_the_password() {
        let url = "postgres://app:secret@db.internal:6432/ledger";
        let place = place(&url.parse().unwrap());
        assert_eq!(
            place,
            r#"database "ledger", user "app", host "db.internal" port 6432"#
        );
    }
}
