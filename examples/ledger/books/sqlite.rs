//! The books in SQLite.

use std::time::Duration;

use anyhow::Context as _;
use oneffect::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{Books, Comparison, Pairs, Settled};
use crate::stream::Produced;

#[derive(Clone, Debug)]
pub(crate) struct SqliteBooks {
    path: String,
}

impl SqliteBooks {
    /// Takes a path, or a URL that begins with `sqlite:`.
    pub(crate) fn new(path_or_url: &str) -> Self {
        let path = path_or_url.strip_prefix("sqlite:").unwrap_or(path_or_url);
        Self {
            path: path.strip_prefix("//").unwrap_or(path).to_owned(),
        }
    }

    /// A connection of the auditor's own; in WAL mode readers are in nobody's way.
    async fn connect(&self) -> anyhow::Result<SqliteConnection> {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .busy_timeout(Duration::from_secs(30))
            .connect()
            .await
            .with_context(|| format!("cannot open {}", self.path))
    }
}

impl Books for SqliteBooks {
    type Store = Sqlite;

    async fn prepare(&self, natural_key: bool) -> anyhow::Result<()> {
        self.store().await?.migrate().await?;
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::raw_sql(include_str!("../sql/sqlite/schema.sql"))
            .execute(&mut *transaction)
            .await?;
        let key = if natural_key {
            include_str!("../sql/sqlite/natural_key_on.sql")
        } else {
            include_str!("../sql/sqlite/natural_key_off.sql")
        };
        sqlx::raw_sql(key).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// With a connection of its own, as in a process of its own.
    async fn store(&self) -> anyhow::Result<Sqlite> {
        Ok(Sqlite::open(&self.path).await?)
    }

    async fn settled(&self, consumer: &str) -> anyhow::Result<Settled> {
        let mut connection = self.connect().await?;
        let settled =
            sqlx::query_as::<_, (i64, i64, i64)>(include_str!("../sql/sqlite/settled.sql"))
                .bind(consumer)
                .fetch_optional(&mut connection)
                .await?;
        Ok(settled.unwrap_or_default().try_into()?)
    }

    async fn pairs(&self) -> anyhow::Result<Pairs> {
        let mut connection = self.connect().await?;
        let pairs = sqlx::query_as::<_, (i64, i64, i64)>(include_str!("../sql/sqlite/pairs.sql"));
        Ok(pairs.fetch_one(&mut connection).await?.into())
    }

    async fn compare(&self, consumer: &str, produced: &[Produced]) -> anyhow::Result<Comparison> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql(include_str!("../sql/sqlite/produced.sql"))
            .execute(&mut connection)
            .await?;
        for some in produced.chunks(10_000) {
            sqlx::query(include_str!("../sql/sqlite/add_produced.sql"))
                .bind(serde_json::to_string(some)?)
                .execute(&mut connection)
                .await?;
        }
        let compared = sqlx::query_as(include_str!("../sql/sqlite/compare.sql"))
            .fetch_one(&mut connection)
            .await?;
        let refused = sqlx::query_scalar(include_str!("../sql/sqlite/refused.sql"))
            .bind(consumer)
            .fetch_one(&mut connection)
            .await?;
        Ok((compared, refused).into())
    }
}
