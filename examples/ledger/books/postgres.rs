//! The books in PostgreSQL.

use oneffect::{Postgres, PostgresConfig};
use sqlx::PgPool;

use super::{Books, Comparison, Pairs, Settled};
use crate::stream::Produced;

/// Only one process at a time makes the ledger's table.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7811054412018254)";

#[derive(Clone, Debug)]
pub(crate) struct PostgresBooks {
    store: Postgres,
}

impl PostgresBooks {
    /// Each worker holds one connection; the auditor takes one, and one is spare.
    pub(crate) async fn connect(
        url: &str,
        schema: Option<&str>,
        workers: usize,
    ) -> anyhow::Result<Self> {
        let mut config = PostgresConfig::default().max_connections(u32::try_from(workers)? + 2);
        config.schema = schema.map(str::to_owned);
        Ok(Self {
            store: Postgres::connect_with(url, config).await?,
        })
    }

    fn pool(&self) -> &PgPool {
        self.store.pool()
    }
}

impl Books for PostgresBooks {
    type Store = Postgres;

    async fn prepare(&self, natural_key: bool) -> anyhow::Result<()> {
        self.store.migrate().await?;
        let mut transaction = self.pool().begin().await?;
        sqlx::raw_sql(LOCK).execute(&mut *transaction).await?;
        sqlx::raw_sql(include_str!("../sql/postgres/schema.sql"))
            .execute(&mut *transaction)
            .await?;
        let key = if natural_key {
            include_str!("../sql/postgres/natural_key_on.sql")
        } else {
            include_str!("../sql/postgres/natural_key_off.sql")
        };
        sqlx::raw_sql(key).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn store(&self) -> anyhow::Result<Postgres> {
        Ok(self.store.clone())
    }

    async fn settled(&self, consumer: &str) -> anyhow::Result<Settled> {
        let settled =
            sqlx::query_as::<_, (i64, i64, i64)>(include_str!("../sql/postgres/settled.sql"))
                .bind(consumer)
                .fetch_optional(self.pool())
                .await?;
        Ok(settled.unwrap_or_default().try_into()?)
    }

    async fn pairs(&self) -> anyhow::Result<Pairs> {
        let pairs = sqlx::query_as::<_, (i64, i64, i64)>(include_str!("../sql/postgres/pairs.sql"));
        Ok(pairs.fetch_one(self.pool()).await?.into())
    }

    async fn compare(&self, consumer: &str, produced: &[Produced]) -> anyhow::Result<Comparison> {
        // The temporary table goes when the transaction is rolled back.
        let mut transaction = self.pool().begin().await?;
        sqlx::raw_sql(include_str!("../sql/postgres/produced.sql"))
            .execute(&mut *transaction)
            .await?;
        for some in produced.chunks(10_000) {
            sqlx::query(include_str!("../sql/postgres/add_produced.sql"))
                .bind(serde_json::to_string(some)?)
                .execute(&mut *transaction)
                .await?;
        }
        let compared = sqlx::query_as(include_str!("../sql/postgres/compare.sql"))
            .fetch_one(&mut *transaction)
            .await?;
        let refused = sqlx::query_scalar(include_str!("../sql/postgres/refused.sql"))
            .bind(consumer)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.rollback().await?;
        Ok((compared, refused).into())
    }
}
