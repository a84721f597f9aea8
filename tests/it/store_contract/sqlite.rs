//! SQLite, a file for each test.

use std::error::Error;
use std::path::PathBuf;
use std::time::SystemTime;

use bytes::Bytes;
use oneffect_core::testing::store_contract::{Ending, Fixture, StoredLetter};
use oneffect_core::{EventId, EventKey, Headers, Tenant};
use oneffect_sqlite::Sqlite;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use crate::support::unique;

/// A migrated file of its own, with a table of effects, and a pool that is not the store's.
pub(crate) struct OnSqlite {
    pub(crate) path: PathBuf,
    pub(crate) store: Sqlite,
    pub(crate) pool: SqlitePool,
}

impl OnSqlite {
    pub(crate) async fn unmigrated() -> Self {
        let path = std::env::temp_dir()
            .join(unique("store"))
            .with_extension("db");
        let store = Sqlite::open(path.to_str().unwrap()).await.unwrap();
        let url = format!("sqlite:{}", path.display());
        let pool = SqlitePool::connect(&url).await.unwrap();
        Self { path, store, pool }
    }

    pub(crate) async fn migrated() -> Self {
        let this = Self::unmigrated().await;
        this.store.migrate().await.unwrap();
        let effect = "CREATE TABLE effect (seq INTEGER PRIMARY KEY, effect TEXT NOT NULL)";
        sqlx::raw_sql(effect).execute(&this.pool).await.unwrap();
        this
    }
}

impl Drop for OnSqlite {
    fn drop(&mut self) {
        for extension in ["db", "db-wal", "db-shm"] {
            let _ = std::fs::remove_file(self.path.with_extension(extension));
        }
    }
}

impl Fixture for OnSqlite {
    type Store = Sqlite;
    const CONCURRENT_UNITS: bool = false;
    const ABORTS_ON_ERROR: bool = false;

    async fn fresh() -> Option<Self> {
        Some(Self::migrated().await)
    }

    fn store(&self) -> Sqlite {
        self.store.clone()
    }

    async fn write_effect(connection: &mut SqliteConnection, effect: &str) {
        let insert = sqlx::query("INSERT INTO effect (effect) VALUES (?1)");
        insert.bind(effect).execute(connection).await.unwrap();
    }

    async fn effects(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("SELECT effect FROM effect ORDER BY seq");
        rows.fetch_all(&self.pool).await.unwrap()
    }

    async fn fail_statement(connection: &mut SqliteConnection) -> Box<dyn Error + Send + Sync> {
        let failed = sqlx::raw_sql("INSERT INTO effect (effect) VALUES (NULL)");
        failed.execute(connection).await.unwrap_err().into()
    }

    async fn end_transaction(connection: &mut SqliteConnection, how: Ending) {
        let sql = match how {
            Ending::Commit => "COMMIT",
            Ending::Rollback => "ROLLBACK",
            Ending::CommitAndBegin => "COMMIT; BEGIN",
        };
        sqlx::raw_sql(sql).execute(connection).await.unwrap();
    }

    async fn dead_letters(&self) -> Vec<StoredLetter> {
        let sql = "SELECT *, published_at / 1000000 AS published FROM dead_letter";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(letter).collect()
    }

    /// SQLite has no sessions to look at; an open transaction would keep all writers out.
    async fn idle_in_transaction(&self) -> usize {
        let mut connection = self.pool.acquire().await.unwrap();
        let alone = sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK")
            .execute(&mut *connection)
            .await;
        usize::from(alone.is_err())
    }

    async fn set_clock(&self, now: SystemTime) {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let sql = format!(
            "BEGIN IMMEDIATE; DROP VIEW oneffect_now;
             CREATE VIEW oneffect_now AS SELECT {:.3} AS now; COMMIT",
            now.as_secs_f64()
        );
        let set = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        set.execute(&self.pool).await.unwrap();
    }

    async fn remembered(&self) -> usize {
        let count = sqlx::query_scalar("SELECT count(*) FROM inbox");
        let count: i64 = count.fetch_one(&self.pool).await.unwrap();
        count.try_into().unwrap()
    }
}

fn letter(row: &SqliteRow) -> StoredLetter {
    let bytes = |column: &str| row.get::<Option<Vec<u8>>, _>(column).map(Bytes::from);
    let event = bytes("event_id").map(|id| EventKey {
        id: EventId::from_bytes(&id).unwrap(),
        tenant: Tenant::new(String::from_utf8(bytes("tenant").unwrap().to_vec()).unwrap()).unwrap(),
    });
    StoredLetter {
        kind: row.get("kind"),
        event,
        source: row.get("source"),
        key: bytes("raw_key"),
        payload: bytes("payload"),
        headers: Headers::from_json(row.get("headers")).unwrap(),
        published_at: row
            .get::<Option<i64>, _>("published")
            .and_then(|at| at.try_into().ok()),
        attempts: row.get("attempts"),
        error: row.get("error"),
        deliveries: row.get("deliveries"),
    }
}

oneffect_core::store_contract!(OnSqlite);
oneffect_core::days_contract!(OnSqlite);
