//! The databases of the end-to-end tests: an `effect` table without any constraint, beside the inbox.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use oneffect::{Isolation, Postgres, PostgresConfig, Sqlite, Store};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, SqlitePool};

use crate::support::{service, unique};

#[async_trait]
pub(crate) trait Database: Send + Sync + Sized + 'static {
    type Store: Store;

    /// A database of its own, migrated; `None` where there is no such service.
    async fn fresh() -> Option<Self>;
    fn store(&self) -> Self::Store;
    fn spec(&self) -> DatabaseSpec;
    /// E(id) for all ids.
    async fn effects(&self) -> BTreeMap<String, i64>;
    /// How many dead letters of each kind there are.
    async fn dead_letters(&self) -> BTreeMap<String, i64>;
    /// Rows of the inbox.
    async fn settled(&self) -> i64;
    /// Sessions that hold a transaction open and do nothing.
    async fn idle_in_transaction(&self) -> i64;
}

/// How a child process finds the same database.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum DatabaseSpec {
    Postgres(PostgresSpec),
    Sqlite(SqliteSpec),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PostgresSpec {
    url: String,
    schema: String,
    /// Milliseconds until the server ends an idle transaction.
    pub(crate) idle_deadline: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SqliteSpec {
    path: std::path::PathBuf,
}

pub(crate) struct OnPostgres {
    spec: PostgresSpec,
    pub(crate) pool: PgPool,
    store: Postgres,
}

impl OnPostgres {
    /// What its sessions are called in `pg_stat_activity`.
    pub(crate) fn session_name(&self) -> &str {
        &self.spec.schema
    }

    pub(crate) async fn join(spec: PostgresSpec) -> Self {
        let options: PgConnectOptions = spec.url.parse().unwrap();
        let options = options
            .options([("search_path", &spec.schema)])
            .application_name(&spec.schema);
        let pool = PgPoolOptions::new()
            .max_connections(6)
            .connect_with(options)
            .await
            .unwrap();
        let idle = Duration::from_millis(spec.idle_deadline);
        let config = PostgresConfig::default().idle_in_transaction_timeout(idle);
        Self {
            store: Postgres::from_pool_with(pool.clone(), config).unwrap(),
            pool,
            spec,
        }
    }

    /// The same database, with units isolated otherwise.
    pub(crate) fn isolated(mut self, isolation: Isolation) -> Self {
        let config = PostgresConfig::default().isolation(isolation);
        self.store = Postgres::from_pool_with(self.pool.clone(), config).unwrap();
        self
    }
}

#[async_trait]
impl Database for OnPostgres {
    type Store = Postgres;

    async fn fresh() -> Option<Self> {
        let url = service("DATABASE_URL")?;
        let schema = unique("e2e");
        let setup = PgPool::connect(&url).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
        sqlx::raw_sql(create).execute(&setup).await.unwrap();
        setup.close().await;
        let database = Self::join(PostgresSpec {
            url,
            schema,
            idle_deadline: 60_000,
        })
        .await;
        database.store.migrate().await.unwrap();
        let effect = "CREATE TABLE effect (event_id text NOT NULL, seq bigserial)";
        sqlx::raw_sql(effect).execute(&database.pool).await.unwrap();
        Some(database)
    }

    fn store(&self) -> Postgres {
        self.store.clone()
    }

    fn spec(&self) -> DatabaseSpec {
        DatabaseSpec::Postgres(self.spec.clone())
    }

    async fn effects(&self) -> BTreeMap<String, i64> {
        let rows = sqlx::query_as("SELECT event_id, count(*) FROM effect GROUP BY event_id");
        rows.fetch_all(&self.pool)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }

    async fn dead_letters(&self) -> BTreeMap<String, i64> {
        let rows = sqlx::query_as("SELECT kind, count(*) FROM dead_letter GROUP BY kind");
        rows.fetch_all(&self.pool)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }

    async fn settled(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM inbox_readable")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    async fn idle_in_transaction(&self) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity
                   WHERE state LIKE 'idle in transaction%' AND application_name = $1";
        sqlx::query_scalar(sql)
            .bind(&self.spec.schema)
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }
}

pub(crate) struct OnSqlite {
    spec: SqliteSpec,
    pool: SqlitePool,
    store: Sqlite,
    /// The one that made the file deletes it; a child does not.
    owner: bool,
}

impl OnSqlite {
    pub(crate) async fn join(spec: SqliteSpec) -> Self {
        let url = format!("sqlite:{}?mode=rwc", spec.path.display());
        Self {
            store: Sqlite::open(&url).await.unwrap(),
            pool: SqlitePool::connect(&url).await.unwrap(),
            spec,
            owner: false,
        }
    }
}

#[async_trait]
impl Database for OnSqlite {
    type Store = Sqlite;

    async fn fresh() -> Option<Self> {
        let path = std::env::temp_dir()
            .join(unique("e2e"))
            .with_extension("db");
        let mut database = Self::join(SqliteSpec { path }).await;
        database.owner = true;
        database.store.migrate().await.unwrap();
        let effect = "CREATE TABLE effect (seq INTEGER PRIMARY KEY, event_id TEXT NOT NULL)";
        sqlx::raw_sql(effect).execute(&database.pool).await.unwrap();
        Some(database)
    }

    fn store(&self) -> Sqlite {
        self.store.clone()
    }

    fn spec(&self) -> DatabaseSpec {
        DatabaseSpec::Sqlite(self.spec.clone())
    }

    async fn effects(&self) -> BTreeMap<String, i64> {
        let rows = sqlx::query_as("SELECT event_id, count(*) FROM effect GROUP BY event_id");
        rows.fetch_all(&self.pool)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }

    async fn dead_letters(&self) -> BTreeMap<String, i64> {
        let rows = sqlx::query_as("SELECT kind, count(*) FROM dead_letter GROUP BY kind");
        rows.fetch_all(&self.pool)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }

    async fn settled(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM inbox")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    async fn idle_in_transaction(&self) -> i64 {
        0 // SQLite has no sessions; an open transaction would block the next writer
    }
}

impl Drop for OnSqlite {
    fn drop(&mut self) {
        if !self.owner {
            return;
        }
        for extension in ["db", "db-wal", "db-shm"] {
            let _ = std::fs::remove_file(self.spec.path.with_extension(extension));
        }
    }
}
