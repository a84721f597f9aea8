//! PostgreSQL, a schema for each test.

use std::error::Error;
use std::time::SystemTime;

use bytes::Bytes;
use oneffect_core::testing::store_contract::{Ending, Fixture, StoredLetter};
use oneffect_core::{EventId, EventKey, Headers, Tenant};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{PgConnection, PgPool, Row};

use crate::support::{optional_service, service, unique};

/// The server that all tests of PostgreSQL run on.
pub(crate) type OnPostgres = OnServer<0>;
/// PostgreSQL 18, where there is one: what has to do with partitions runs on both.
pub(crate) type OnPostgres18 = OnServer<18>;

/// A migrated schema of its own, with a table of effects, and a pool that is not the store's.
pub(crate) struct OnServer<const SERVER: u8> {
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) store: Postgres,
    pub(crate) pool: PgPool,
}

impl<const SERVER: u8> OnServer<SERVER> {
    pub(crate) async fn fresh_with(config: PostgresConfig) -> Option<Self> {
        Some(Self::unmigrated(config).await?.migrated().await)
    }

    pub(crate) async fn unmigrated(config: PostgresConfig) -> Option<Self> {
        let url = if SERVER == 18 {
            optional_service("DATABASE_URL_18")?
        } else {
            service("DATABASE_URL")?
        };
        let schema = unique("store");
        let options: PgConnectOptions = url.parse().unwrap();
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(options.options([("search_path", &schema)]))
            .await
            .unwrap();
        let store = Self::store_at(&url, &schema, config).await;
        Some(Self {
            url,
            schema,
            store,
            pool,
        })
    }

    pub(crate) async fn migrated(self) -> Self {
        self.store.migrate().await.unwrap();
        let effect = "CREATE TABLE effect (seq bigserial, effect bytea NOT NULL)";
        sqlx::raw_sql(effect).execute(&self.pool).await.unwrap();
        self
    }

    /// Another store on the same schema, as another process would have it.
    pub(crate) async fn store_at(url: &str, schema: &str, config: PostgresConfig) -> Postgres {
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}application_name={schema}");
        Postgres::connect_with(&url, config.schema(schema))
            .await
            .unwrap()
    }

    /// The store's sessions in such a state.
    pub(crate) async fn sessions(&self, state: &str) -> i64 {
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state LIKE $2";
        let count = sqlx::query_scalar(sql).bind(&self.schema).bind(state);
        count.fetch_one(&self.pool).await.unwrap()
    }
}

impl<const SERVER: u8> Fixture for OnServer<SERVER> {
    type Store = Postgres;
    const CONCURRENT_UNITS: bool = true;
    const ABORTS_ON_ERROR: bool = true;

    async fn fresh() -> Option<Self> {
        Self::fresh_with(PostgresConfig::default()).await
    }

    fn store(&self) -> Postgres {
        self.store.clone()
    }

    async fn write_effect(connection: &mut PgConnection, effect: &str) {
        let insert = sqlx::query("INSERT INTO effect (effect) VALUES ($1)");
        // Not kept, so that the same suite runs behind a pooler.
        let insert = insert.bind(effect.as_bytes()).persistent(false);
        insert.execute(connection).await.unwrap();
    }

    async fn effects(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("SELECT effect FROM effect ORDER BY seq");
        let rows: Vec<Vec<u8>> = rows.fetch_all(&self.pool).await.unwrap();
        rows.into_iter()
            .map(|row| String::from_utf8(row).unwrap())
            .collect()
    }

    async fn fail_statement(connection: &mut PgConnection) -> Box<dyn Error + Send + Sync> {
        let failed = sqlx::raw_sql("SELECT 1 / 0").execute(connection).await;
        failed.unwrap_err().into()
    }

    async fn end_transaction(connection: &mut PgConnection, how: Ending) {
        let sql = match how {
            Ending::Commit => "COMMIT",
            Ending::Rollback => "ROLLBACK",
            Ending::CommitAndBegin => "COMMIT; BEGIN",
        };
        sqlx::raw_sql(sql).execute(connection).await.unwrap();
    }

    async fn dead_letters(&self) -> Vec<StoredLetter> {
        let sql = "SELECT *, headers::text AS header_text, extract(epoch FROM published_at)::bigint AS published
                   FROM dead_letter";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(letter).collect()
    }

    async fn idle_in_transaction(&self) -> usize {
        self.sessions("idle in transaction%")
            .await
            .try_into()
            .unwrap()
    }

    async fn set_clock(&self, now: SystemTime) {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let sql = format!(
            "CREATE OR REPLACE FUNCTION oneffect_now() RETURNS timestamptz
                 LANGUAGE sql STABLE PARALLEL SAFE RETURN to_timestamp({:.3})",
            now.as_secs_f64()
        );
        let set = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        set.execute(&self.pool).await.unwrap();
    }

    async fn remembered(&self) -> usize {
        let sql = "SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM inbox_open)";
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap();
        count.try_into().unwrap()
    }
}

fn letter(row: &PgRow) -> StoredLetter {
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
        headers: Headers::from_json(row.get("header_text")).unwrap(),
        published_at: row
            .get::<Option<i64>, _>("published")
            .and_then(|at| at.try_into().ok()),
        attempts: row.get::<i32, _>("attempts").try_into().unwrap(),
        error: row.get("error"),
        deliveries: row.get::<i32, _>("deliveries").try_into().unwrap(),
    }
}

mod read_committed {
    oneffect_core::store_contract!(super::OnPostgres);
    oneffect_core::days_contract!(super::OnPostgres);
}

mod on_18 {
    oneffect_core::store_contract!(super::OnPostgres18);
    oneffect_core::days_contract!(super::OnPostgres18);
}
