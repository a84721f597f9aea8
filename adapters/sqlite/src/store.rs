//! The store.

use std::any::TypeId;
use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    Begin, Blame, ConsumerId, DaysFrom, DeadLetters, DuplicateAges, EventKey, Finding, Maintained,
    ProcessId, Started, Store, StoreError, Window,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqliteConnection, SqlitePool};
use tokio::time::{Instant, sleep};

use crate::blame::{blame, is_busy};
use crate::config::SqliteConfig;
use crate::staged::{SqliteRow, StagedRow};
use crate::transaction::Transaction;
use crate::unit::SqliteUnit;

/// A SQLite database that holds the inbox beside the user's own tables. Clones share its one
/// connection.
#[derive(Clone, Debug)]
pub struct Sqlite {
    pool: SqlitePool,
    tables: Arc<[TypeId]>,
}

impl Sqlite {
    /// Opens a file with the usual options. Takes a path, whose file is created if need be, or a URL
    /// (`sqlite:ledger.db?mode=rwc`).
    ///
    /// # Errors
    /// As [`Sqlite::open_with`].
    pub async fn open(path_or_url: &str) -> Result<Self, StoreError> {
        Self::open_with(path_or_url, SqliteConfig::default()).await
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when it cannot be opened, and for a database in memory, which
    /// would forget every event that the broker was told is settled.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it has opened.
    pub async fn open_with(path_or_url: &str, config: SqliteConfig) -> Result<Self, StoreError> {
        config.validate()?;
        if path_or_url.is_empty()
            || path_or_url.contains(":memory:")
            || path_or_url.contains("mode=memory")
        {
            return Err(StoreError::misconfigured(
                "a database in memory forgets what the broker was told is settled: give a file",
            ));
        }
        let options = if path_or_url.starts_with("sqlite:") {
            SqliteConnectOptions::from_str(path_or_url).map_err(|e| cannot_open(path_or_url, e))?
        } else {
            SqliteConnectOptions::new()
                .filename(path_or_url)
                .create_if_missing(true)
        };
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(config.busy_timeout);
        let pool_options = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(config.acquire_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false);
        // Processes that open a new file at once are in each other's way while they turn WAL on,
        // where SQLite does not wait by itself.
        let deadline = Instant::now() + config.busy_timeout;
        loop {
            match pool_options.clone().connect_with(options.clone()).await {
                Ok(pool) => {
                    return Ok(Self {
                        pool,
                        tables: Arc::new([]),
                    });
                }
                Err(error) if is_busy(&error) && Instant::now() < deadline => {
                    sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(cannot_open(path_or_url, error)),
            }
        }
    }

    /// Registers a table of staged rows. Registered tables are written in the order in which they
    /// were registered: parents before the children that refer to them. Tables that depend on no
    /// other staged one need not be registered.
    #[must_use]
    pub fn stages<R: StagedRow>(mut self) -> Self {
        let known = (self.tables.iter().copied()).filter(|kind| *kind != TypeId::of::<R>());
        self.tables = known.chain([TypeId::of::<R>()]).collect();
        self
    }

    /// Begins a transaction, and with it waits to be the only writer.
    pub(crate) async fn begin_plain(&self) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.pool)
            .await
            .map_err(StoreError::rolled_back)
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }
}

#[async_trait]
impl Store for Sqlite {
    type Connection = SqliteConnection;
    type Row = SqliteRow;
    type Unit = SqliteUnit;

    async fn open(&self, consumer: &str, days: DaysFrom) -> Result<ConsumerId, StoreError> {
        self.open_consumer(consumer, days).await
    }

    /// `claim_wait` means nothing here: whoever has begun is the only writer.
    async fn begin(&self, begin: Begin) -> Result<SqliteUnit, StoreError> {
        let transaction = self.begin_plain().await?;
        Ok(SqliteUnit {
            transaction,
            consumer: begin.consumer,
            late: begin.late,
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

    async fn maintain(&self) -> Result<Maintained, StoreError> {
        let maintained = self.maintain_days().await?;
        self.sweep_retries().await?;
        Ok(maintained)
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

    async fn window(&self) -> Result<Window, StoreError> {
        self.window_days().await.map(Window::Days)
    }

    async fn examine(&self) -> Vec<Finding> {
        self.examine_all().await
    }

    fn max_units(&self) -> Option<usize> {
        Some(1)
    }
}

fn cannot_open(path_or_url: &str, error: sqlx::Error) -> StoreError {
    StoreError::Misconfigured {
        message: format!("the database {path_or_url} cannot be opened"),
        cause: Some(error.into()),
    }
}
