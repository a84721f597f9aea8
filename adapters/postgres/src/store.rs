//! The store.

use std::any::TypeId;
use std::error::Error;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    Begin, Blame, ConsumerId, DaysFrom, DuplicateAges, EventKey, Finding, ProcessId, Started,
    Store, StoreError,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

use crate::blame::{blame, is_outage};
use crate::config::{PostgresConfig, Statements};
use crate::staged::{PostgresRow, StagedRow};
use crate::transaction::Transaction;
use crate::unit::PostgresUnit;

/// A PostgreSQL database that holds the inbox beside the user's own tables. Clones share its pool.
#[derive(Clone, Debug)]
pub struct Postgres {
    pool: PgPool,
    config: Arc<PostgresConfig>,
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
        if let Some(schema) = &config.schema {
            options = options.options([("search_path", format!("{schema},public"))]);
        }
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.acquire_timeout)
            // A unit that begins on a dead connection takes the next one: no need to ask before.
            .test_before_acquire(false)
            .connect_with(options)
            .await
            .map_err(|error| {
                if is_outage(&error) {
                    StoreError::rolled_back(error)
                } else {
                    refused("the database refuses us", error)
                }
            })?;
        Ok(Self::with_pool(pool, config))
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
            pool,
            config: Arc::new(config),
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
        &self.pool
    }

    pub(crate) fn schema(&self) -> Option<&str> {
        self.config.schema.as_deref()
    }

    pub(crate) fn named(&self) -> bool {
        self.config.statements == Statements::Named
    }

    /// What begins a transaction that is no unit of work. Such ones are short, and wait for nobody
    /// who holds a key.
    pub(crate) fn begin_plain(&self) -> String {
        let config = PostgresConfig::clone(&self.config);
        config
            .isolation(crate::Isolation::ReadCommitted)
            .begin(Duration::from_secs(10))
    }
}

#[async_trait]
impl Store for Postgres {
    type Connection = PgConnection;
    type Row = PostgresRow;
    type Unit = PostgresUnit;

    async fn open(&self, consumer: &str, _days: DaysFrom) -> Result<ConsumerId, StoreError> {
        self.open_consumer(consumer).await
    }

    async fn begin(&self, begin: Begin) -> Result<PostgresUnit, StoreError> {
        let sql = self.config.begin(begin.claim_wait);
        let transaction = Transaction::begin(&self.pool, &sql)
            .await
            .map_err(StoreError::rolled_back)?;
        Ok(PostgresUnit {
            transaction,
            consumer: begin.consumer,
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

    async fn examine(&self) -> Vec<Finding> {
        self.examine_all().await
    }

    /// A unit that had to wait for a connection would look like an outage.
    fn max_units(&self) -> Option<usize> {
        usize::try_from(self.pool.options().get_max_connections()).ok()
    }
}

fn refused(message: &str, error: sqlx::Error) -> StoreError {
    StoreError::Misconfigured {
        message: message.into(),
        cause: Some(error.into()),
    }
}
