//! The store.

use std::any::TypeId;
use std::error::Error;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    Begin, Blame, ConsumerId, DaysFrom, DuplicateAges, EventKey, Finding, Maintained, ProcessId,
    Started, Store, StoreError, Window,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

use crate::blame::{blame, is_outage, is_stale_plan};
use crate::config::{PostgresConfig, Statements};
use crate::connections::{Connections, NoConnection, diagnose, place};
use crate::filed::FiledKeys;
use crate::pooler::{PoolerReport, refuses_parameter};
use crate::staged::{PostgresRow, StagedRow};
use crate::transaction::Transaction;
use crate::unit::PostgresUnit;

/// A PostgreSQL database that holds the inbox beside the user's own tables. Clones share its pool.
#[derive(Clone, Debug)]
pub struct Postgres {
    connections: Arc<Connections>,
    config: Arc<PostgresConfig>,
    /// How connections reach the server; known once a consumer has been opened.
    pub(crate) pooling: Arc<OnceLock<PoolerReport>>,
    /// What `lock_timeout` is in this database without us; known once a consumer has been opened.
    pub(crate) lock_timeout: Arc<OnceLock<Arc<str>>>,
    tables: Arc<[TypeId]>,
}

impl Postgres {
    /// Connects with the usual options.
    ///
    /// # Errors
    /// As [`Postgres::connect_with`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(url, PostgresConfig::default()).await
    }

    /// Makes a pool of its own, and its first connection.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for an unusable URL or option, or when the server refuses us;
    /// [`StoreError::RolledBack`] when it cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it has opened.
    pub async fn connect_with(url: &str, config: PostgresConfig) -> Result<Self, StoreError> {
        config.validate()?;
        let mut options = PgConnectOptions::from_str(url).map_err(|error| {
            refused(
                "the database's URL cannot be read: postgres://user@host/database",
                error,
            )
        })?;
        if options.get_application_name().is_none() {
            options = options.application_name("oneffect");
        }
        // Where there may be a pooler, each transaction sets its own.
        if let Some(schema) = &config.schema
            && config.statements == Statements::Named
        {
            options = options.options([("search_path", format!("{schema},public"))]);
        }
        // sqlx would ask for 2, which means the same as the default since PostgreSQL 12, and which
        // poolers refuse.
        options = options.extra_float_digits(None);
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.acquire_timeout)
            // A unit that begins on a dead connection takes the next one: no need to ask before.
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await;
        match pool {
            Ok(pool) => Ok(Self::with_pool(pool, config)),
            Err(error) => Err(unconnected(error, &options, &config).await),
        }
    }

    /// Shares a pool with the rest of a program, with the usual options for units of work.
    pub fn from_pool(pool: PgPool) -> Self {
        Self::with_pool(pool, PostgresConfig::default())
    }

    /// Shares a pool with the rest of a program. The options of the pool are the pool's own:
    /// `max_connections` and `acquire_timeout` of the config are not used, and its connections must
    /// have the `schema` in their `search_path`.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for an unusable option.
    pub fn from_pool_with(pool: PgPool, config: PostgresConfig) -> Result<Self, StoreError> {
        config.validate()?;
        Ok(Self::with_pool(pool, config))
    }

    fn with_pool(pool: PgPool, config: PostgresConfig) -> Self {
        Self {
            connections: Arc::new(Connections::new(pool, &config)),
            config: Arc::new(config),
            pooling: Arc::default(),
            lock_timeout: Arc::default(),
            tables: Arc::new([]),
        }
    }

    /// Registers a table of staged rows. Registered tables are written in the order in which they
    /// were registered: parents before the children that refer to them. Tables that depend on no
    /// other staged one need not be registered.
    #[must_use]
    pub fn stages<R: StagedRow>(mut self) -> Self {
        let known = self
            .tables
            .iter()
            .copied()
            .filter(|kind| *kind != TypeId::of::<R>());
        self.tables = known.chain([TypeId::of::<R>()]).collect();
        self
    }

    /// The pool, for reads of one's own. What is written through it is not part of any unit of work.
    pub fn pool(&self) -> &PgPool {
        self.connections.pool()
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.config
    }

    pub(crate) fn schema(&self) -> Option<&str> {
        self.config.schema.as_deref()
    }

    pub(crate) fn named(&self) -> bool {
        self.config.statements == Statements::Named
    }

    /// Begins a transaction that is no unit of work. Such ones are short, and wait for nobody who
    /// holds a key.
    pub(crate) async fn begin_plain(&self) -> Result<Transaction, StoreError> {
        self.begin_waiting(Duration::from_secs(10)).await
    }

    /// As [`Postgres::begin_plain`], with another deadline for locks.
    pub(crate) async fn begin_waiting(&self, wait: Duration) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.connections, &self.plain(wait), wait).await
    }

    fn plain(&self, wait: Duration) -> String {
        let config = PostgresConfig::clone(&self.config);
        config
            .isolation(crate::Isolation::ReadCommitted)
            .begin_short(wait)
    }

    /// A transaction that reads one state of the database, also of a standby, and dates as ISO has
    /// them. Roll it back when done.
    pub(crate) async fn begin_reading(&self) -> Result<Transaction, StoreError> {
        let wait = Duration::from_secs(10);
        let config = PostgresConfig::clone(&self.config);
        let begin = config
            .isolation(crate::Isolation::RepeatableRead)
            .begin_short(wait);
        let begin = format!("{begin}; SET TRANSACTION READ ONLY; SET LOCAL datestyle = 'ISO'");
        Transaction::begin(&self.connections, &begin, wait).await
    }
}

#[async_trait]
impl Store for Postgres {
    type Connection = PgConnection;
    type Row = PostgresRow;
    type Unit = PostgresUnit;

    async fn open(&self, consumer: &str, days: DaysFrom) -> Result<ConsumerId, StoreError> {
        self.open_consumer(consumer, days).await
    }

    async fn begin(&self, begin: Begin) -> Result<PostgresUnit, StoreError> {
        let sql = self.config.begin(begin.claim_wait);
        let wait = PostgresConfig::BARRIER_WAIT;
        let transaction = Transaction::begin(&self.connections, &sql, wait).await?;
        Ok(PostgresUnit {
            transaction,
            consumer: begin.consumer,
            begin,
            begin_sql: sql,
            begin_partitions: self.plain(wait),
            used: false,
            filed: FiledKeys::default(),
            transaction_id: None,
            after_claim: self
                .lock_timeout
                .get()
                .map_or_else(|| "0".into(), Arc::clone),
            named: self.named(),
            tables: Arc::clone(&self.tables),
        })
    }

    async fn charge(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError> {
        self.charge_attempt(consumer, key, error, wait).await
    }

    fn blame(&self, error: &(dyn Error + 'static)) -> Option<Blame> {
        // Other connections may have prepared the same statement.
        if error.downcast_ref().is_some_and(is_stale_plan) {
            self.connections.renew();
        }
        blame(error)
    }

    async fn note_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        self.insert_started(consumer, process, keys).await
    }

    async fn find_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Started>, StoreError> {
        self.read_started(consumer, key).await
    }

    async fn put_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        started: Started,
    ) -> Result<(), StoreError> {
        self.write_started(consumer, key, started).await
    }

    async fn forget_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        self.delete_started(consumer, process, keys).await
    }

    async fn note_duplicate_ages(
        &self,
        consumer: ConsumerId,
        ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        self.add_duplicate_ages(consumer, ages).await
    }

    async fn duplicate_ages(&self, consumer: ConsumerId) -> Result<DuplicateAges, StoreError> {
        self.read_duplicate_ages(consumer).await
    }

    async fn maintain(&self) -> Result<Maintained, StoreError> {
        self.maintain_days().await
    }

    async fn window(&self) -> Result<Window, StoreError> {
        self.window_days().await.map(Window::Days)
    }

    async fn examine(&self) -> Vec<Finding> {
        self.examine_all().await
    }

    /// A unit that had to wait for a connection would look like an outage.
    fn max_units(&self) -> Option<usize> {
        usize::try_from(self.pool().options().get_max_connections()).ok()
    }
}

/// What a person needs to know when there is no first connection.
async fn unconnected(
    error: sqlx::Error,
    options: &PgConnectOptions,
    config: &PostgresConfig,
) -> StoreError {
    let place = place(options);
    if refuses_parameter(&error) {
        return refused(
            format!(
                "what stands there refuses a parameter of the connection, as PgBouncer does ({place}): \
                 set `PostgresConfig::statements` to `Statements::Unnamed`, which is right behind a \
                 pooler, and take `options` out of the URL and PGOPTIONS out of the environment"
            ),
            error,
        );
    }
    if matches!(error, sqlx::Error::PoolTimedOut) {
        let waited = config.acquire_timeout;
        return StoreError::rolled_back(diagnose(options, config.max_connections, waited).await);
    }
    if is_outage(&error) {
        return StoreError::rolled_back(NoConnection::Unreachable {
            place,
            cause: error,
        });
    }
    refused(format!("PostgreSQL refuses us ({place})"), error)
}

fn refused(message: impl Into<String>, error: sqlx::Error) -> StoreError {
    StoreError::Misconfigured {
        message: message.into(),
        cause: Some(error.into()),
    }
}
