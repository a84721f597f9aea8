//! The options of the store.

use std::time::Duration;

use oneffect_core::StoreError;

/// All options, with their defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The schema that the inbox is in: the first of the connections' `search_path`, followed by
    /// `public`, so that handlers reach it too. [`Postgres::migrate`](crate::Postgres::migrate)
    /// creates it. Default: none, and the `search_path` is the role's own. With
    /// [`Statements::Unnamed`] it holds in units of work only, and not for what is read through
    /// [`Postgres::pool`](crate::Postgres::pool).
    pub schema: Option<String>,
    /// Connections in the pool, of which each unit of work holds one. Default 8.
    pub max_connections: u32,
    /// How long to wait for a connection before the database counts as away. Default 10 s.
    pub acquire_timeout: Duration,
    /// The isolation level of units of work. Default [`Isolation::ReadCommitted`].
    pub isolation: Isolation,
    /// After how long of hearing nothing the *server* ends a unit's transaction, so that the keys of
    /// a frozen process are free again. Keep it above the handlers' timeout. Default 60 s.
    pub idle_in_transaction_timeout: Duration,
    /// After how long the server ends any one statement of a unit. Default 60 s.
    pub statement_timeout: Duration,
    /// How much longer than the server allows itself the store waits for an answer, before it takes
    /// the connection for dead: a connection that is half open (after a failover, behind a firewall
    /// that has forgotten it) tells nobody. So BEGIN is waited for this long (and for as long as it
    /// may wait for locks), and any other statement for `statement_timeout` and this. Then the
    /// connection is closed, and the unit runs again on another. Default 10 s.
    pub answer_timeout: Duration,
    /// How statements are sent. Default [`Statements::Named`].
    pub statements: Statements,
    /// How many days before today the inbox remembers, where [`Postgres::migrate`](crate::Postgres::migrate)
    /// makes a new one. Later [`Postgres::set_window_days`](crate::Postgres::set_window_days) changes it.
    /// It must exceed the longest way a duplicate can still take. Default 8: a topic's usual retention
    /// of seven days, and one to spare.
    pub window_days: u32,
}

/// An isolation level. The inbox is right at each of them; the stricter ones fail more often, and
/// then run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what has committed before it.
    ReadCommitted,
    /// All statements see what had committed before the first.
    RepeatableRead,
    /// As if units of work ran one after the other.
    Serializable,
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statements {
    /// Prepared once on each connection, and kept: the fastest.
    Named,
    /// Prepared each time and never kept: the only way that is right behind a pooler that hands out
    /// connections by transaction. PgBouncer may run *another client's* statement otherwise, without
    /// an error, so a consumer that has not set this refuses to start behind one.
    ///
    /// Handlers must do the same, each time: `sqlx::query(..).persistent(false)`. A unit in which one
    /// has not is rolled back, and the consumer stops and says so. What a handler writes through
    /// other connections, and [`Postgres::pool`](crate::Postgres::pool), is its own affair: there a
    /// statement must stand in a transaction as well.
    ///
    /// Each statement takes a second round trip, so a unit that claims and writes one staged table takes
    /// six instead of four: measured, 1.7 times as long for a single event, and 1.2 times for 500.
    Unnamed,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            schema: None,
            max_connections: 8,
            acquire_timeout: Duration::from_secs(10),
            isolation: Isolation::ReadCommitted,
            idle_in_transaction_timeout: Duration::from_mins(1),
            statement_timeout: Duration::from_mins(1),
            answer_timeout: Duration::from_secs(10),
            statements: Statements::Named,
            window_days: 8,
        }
    }
}

impl PostgresConfig {
    /// Sets [`PostgresConfig::schema`].
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Sets [`PostgresConfig::max_connections`].
    #[must_use]
    pub fn max_connections(mut self, max_connections: u32) -> Self {
        self.max_connections = max_connections;
        self
    }

    /// Sets [`PostgresConfig::acquire_timeout`].
    #[must_use]
    pub fn acquire_timeout(mut self, acquire_timeout: Duration) -> Self {
        self.acquire_timeout = acquire_timeout;
        self
    }

    /// Sets [`PostgresConfig::isolation`].
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets [`PostgresConfig::idle_in_transaction_timeout`].
    #[must_use]
    pub fn idle_in_transaction_timeout(mut self, timeout: Duration) -> Self {
        self.idle_in_transaction_timeout = timeout;
        self
    }

    /// Sets [`PostgresConfig::statement_timeout`].
    #[must_use]
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets [`PostgresConfig::answer_timeout`].
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Sets [`PostgresConfig::statements`].
    #[must_use]
    pub fn statements(mut self, statements: Statements) -> Self {
        self.statements = statements;
        self
    }

    /// Sets [`PostgresConfig::window_days`].
    #[must_use]
    pub fn window_days(mut self, window_days: u32) -> Self {
        self.window_days = window_days;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        if let Some(schema) = self.schema.as_deref() {
            check_schema(schema)?;
        }
        if self.max_connections == 0 {
            return Err(StoreError::misconfigured(
                "max_connections is 0, and must be at least 1",
            ));
        }
        // For the server 0 means "never": a frozen process would then hold its keys for ever.
        if self.idle_in_transaction_timeout.as_millis() == 0 {
            return Err(StoreError::misconfigured(
                "idle_in_transaction_timeout is 0: a frozen process would never let go of its keys",
            ));
        }
        if self.statement_timeout.as_millis() == 0 {
            return Err(StoreError::misconfigured(
                "statement_timeout is 0: a statement that never ends would never let go of its keys",
            ));
        }
        if self.answer_timeout.is_zero() {
            return Err(StoreError::misconfigured(
                "answer_timeout is 0: no server answers in no time; 10 s is the default",
            ));
        }
        check_window(self.window_days)
    }

    /// What begins a unit of work, all in one simple query.
    ///
    /// The lock keeps the floor and the open period where they are until the unit ends. It is taken by
    /// the name of a table and not by a SELECT, which would take its snapshot before it waits: at the
    /// stricter isolation levels the unit would then go on under the floor that was. It waits for one
    /// who moves them, which takes a moment, and not as little as for a key that is held.
    pub(crate) fn begin(&self, claim_wait: Duration) -> String {
        format!(
            "{}; LOCK TABLE inbox_floor IN ROW SHARE MODE; SET LOCAL lock_timeout = {};",
            self.begin_short(Self::BARRIER_WAIT),
            milliseconds(claim_wait),
        )
    }

    /// How long a unit waits for whoever moves the floor or the open period.
    pub(crate) const BARRIER_WAIT: Duration = Duration::from_secs(10);

    /// What begins a transaction that is no unit of work.
    pub(crate) fn begin_short(&self, lock_wait: Duration) -> String {
        let isolation = match self.isolation {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        };
        format!(
            "BEGIN ISOLATION LEVEL {isolation}; \
             SET LOCAL idle_in_transaction_session_timeout = {}; \
             SET LOCAL statement_timeout = {}; \
             SET LOCAL lock_timeout = {}; {}",
            milliseconds(self.idle_in_transaction_timeout),
            milliseconds(self.statement_timeout),
            milliseconds(lock_wait),
            self.search_path(),
        )
    }

    /// What follows in a transaction's first query to find the schema, where the session may be
    /// another client's: it ends with the transaction.
    pub(crate) fn search_path(&self) -> String {
        match (&self.schema, self.statements) {
            // A plain name: it has been validated.
            (Some(schema), Statements::Unnamed) => {
                format!("SET LOCAL search_path = {schema}, public")
            }
            _ => String::new(),
        }
    }
}

pub(crate) fn check_window(days: u32) -> Result<(), StoreError> {
    if (1..=3650).contains(&days) {
        return Ok(());
    }
    Err(StoreError::misconfigured(format!(
        "the window is to be {days} days, and can be 1 to 3650"
    )))
}

/// The server reads 0 as "no limit", and takes 24 days at most.
fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis())
        .unwrap_or(i32::MAX)
        .max(1)
}

pub(crate) fn check_schema(schema: &str) -> Result<(), StoreError> {
    if is_plain_name(schema) {
        return Ok(());
    }
    Err(StoreError::misconfigured(format!(
        "schema {schema:?}: use a name of lower-case letters, digits and underscores, at most 63, \
         that does not begin with a digit"
    )))
}

/// Names that need no quotes, so that nothing of a name can be read as SQL or as another option.
fn is_plain_name(name: &str) -> bool {
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_');
    (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && !name.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_must_be_a_plain_name() {
        for good in ["ledger", "ledger_2", "_x"] {
            assert!(PostgresConfig::default().schema(good).validate().is_ok());
        }
        for bad in ["", "2x", "Ledger", "a,b", "a b", "a\"", &"x".repeat(64)] {
            assert!(
                PostgresConfig::default().schema(bad).validate().is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn no_deadline_is_ever_sent_as_no_limit() {
        let begin = PostgresConfig::default().begin(Duration::from_micros(1));
        assert!(begin.contains("lock_timeout = 1;"), "{begin}");
        let begin = PostgresConfig::default().begin(Duration::MAX);
        assert!(begin.contains("lock_timeout = 2147483647;"), "{begin}");
    }
}
