//! Dropping what is below the floor, without holding up those who write.

use std::time::Duration;

use oneffect_core::{Maintained, StoreError};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::timeout;

use crate::blame::misplaced;
use crate::days::is_rivals_doing;
use crate::store::Postgres;

/// How long a round waits for transactions that are older than the detaching.
const PATIENCE: Duration = Duration::from_secs(10);

/// A partition below the floor, or what is left of one. The names are the server's, and quoted.
struct Forgotten {
    name: String,
    parent: String,
    attached: bool,
    detaching: bool,
}

impl Postgres {
    pub(crate) async fn drop_forgotten(
        &self,
        maintained: &mut Maintained,
    ) -> Result<(), StoreError> {
        for forgotten in self.forgotten().await? {
            match self.forget(&forgotten).await {
                Ok(true) => maintained.dropped += 1,
                Ok(false) => maintained.postponed = true,
                Err(error) if is_rivals_doing(&error) => maintained.postponed = true,
                Err(error) => return Err(misplaced(error)),
            }
        }
        Ok(())
    }

    async fn forgotten(&self) -> Result<Vec<Forgotten>, StoreError> {
        let mut transaction = self.begin_step().await?;
        let rows = sqlx::query(include_str!("queries/forgotten_partitions.sql"))
            .persistent(false)
            .fetch_all(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction.rollback().await;
        let forgotten = rows.iter().map(|row| {
            Ok(Forgotten {
                name: row.try_get("name")?,
                parent: row.try_get("parent")?,
                attached: row.try_get("attached")?,
                detaching: row.try_get("detaching")?,
            })
        });
        let forgotten: sqlx::Result<_> = forgotten.collect();
        forgotten.map_err(StoreError::rolled_back)
    }

    /// Answers whether it is gone. Whatever of this is interrupted is taken up by the next round where it
    /// was left.
    async fn forget(&self, forgotten: &Forgotten) -> sqlx::Result<bool> {
        let Forgotten { name, parent, .. } = forgotten;
        if forgotten.detaching {
            // Somebody was killed, or waits yet.
            self.change(&format!(
                "ALTER TABLE {parent} DETACH PARTITION {name} FINALIZE"
            ))
            .await?;
        } else if forgotten.attached {
            let detach = format!("ALTER TABLE {parent} DETACH PARTITION {name} CONCURRENTLY");
            if !self.detach(&detach).await? {
                return Ok(false);
            }
        }
        self.change(&format!("DROP TABLE IF EXISTS {name}")).await?;
        Ok(true)
    }

    /// Detaches, which waits for all older transactions that have used the inbox, and holds no lock
    /// meanwhile. Answers whether that happened in time; if not, the server goes on without us.
    ///
    /// It must stand outside a transaction, so no deadline can be set for it that would not outlast it on
    /// the connection. So the connection is not the pool's: a consumer must not miss it, and it is closed
    /// whatever happens.
    async fn detach(&self, sql: &str) -> sqlx::Result<bool> {
        let mut connection = self.pool().acquire().await?.detach();
        let detached = {
            let detach = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection);
            timeout(PATIENCE, detach).await
        };
        match detached {
            Ok(detached) => {
                let closed = connection.close().await;
                detached.and(closed.map(|()| true))
            }
            Err(_elapsed) => Ok(false),
        }
    }

    /// A short transaction around one statement. Nobody uses what it is about, so it waits for no unit.
    async fn change(&self, sql: &str) -> sqlx::Result<()> {
        let begin = self.begin_with_lock_wait(Duration::from_secs(1));
        let mut transaction = crate::transaction::Transaction::begin(self.pool(), &begin).await?;
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }
}
