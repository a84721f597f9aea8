//! Dropping what is below the floor, without holding up those who write.

use std::time::Duration;

use oneffect_core::{Maintained, StoreError};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::timeout;

use crate::blame::{code, misplaced};
use crate::store::Postgres;
use crate::transaction::heard;

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
            if self.forget(&forgotten).await? {
                maintained.dropped += 1;
            } else {
                maintained.postponed = true;
            }
        }
        Ok(())
    }

    async fn forgotten(&self) -> Result<Vec<Forgotten>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let rows = heard!(
            transaction,
            "what is forgotten",
            sqlx::query(include_str!("queries/forgotten_partitions.sql"))
                .persistent(false)
                .fetch_all(&mut *transaction)
        )
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

    /// Answers whether it is gone. What of this is interrupted is taken up where it was left by the next
    /// round.
    async fn forget(&self, forgotten: &Forgotten) -> Result<bool, StoreError> {
        let Forgotten { name, parent, .. } = forgotten;
        let is_off = if forgotten.detaching {
            // Somebody was killed, or waits yet.
            let finalize = format!("ALTER TABLE {parent} DETACH PARTITION {name} FINALIZE");
            self.change(finalize).await?
        } else if forgotten.attached {
            let detach = format!("ALTER TABLE {parent} DETACH PARTITION {name} CONCURRENTLY");
            self.detach(detach).await?
        } else {
            true
        };
        Ok(is_off && self.change(format!("DROP TABLE IF EXISTS {name}")).await?)
    }

    /// Detaches, which waits for all older transactions that have used the inbox, and holds no lock
    /// meanwhile. Answers whether that happened in time; if not, the server goes on without us.
    ///
    /// It must stand outside a transaction, so no deadline can be set for it that would not outlast it on
    /// the connection. So the connection is not the pool's: a consumer must not miss it, and it is closed
    /// whatever happens.
    async fn detach(&self, sql: String) -> Result<bool, StoreError> {
        let connection = self.connections().acquire().await;
        let mut connection = connection.map_err(StoreError::rolled_back)?.detach();
        let detach = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection);
        let Ok(detached) = timeout(PATIENCE, detach).await else {
            return Ok(false);
        };
        let _closed = timeout(PATIENCE, connection.close()).await;
        done(detached)
    }

    /// A short transaction around one statement. Nobody uses what it is about, so it waits for no unit.
    async fn change(&self, sql: String) -> Result<bool, StoreError> {
        let mut transaction = self.begin_waiting(Duration::from_secs(1)).await?;
        let changed = heard!(
            transaction,
            "a step of maintenance",
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction)
        );
        if !done(changed)? {
            transaction.rollback().await;
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// Whether it is done, or left to a rival.
fn done<T>(result: sqlx::Result<T>) -> Result<bool, StoreError> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if is_rivals_doing(&error) => Ok(false),
        Err(error) => Err(misplaced(error)),
    }
}

/// Whether a rival is at it, or has done it already.
fn is_rivals_doing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().map(code).unwrap_or_default();
    // Not in the prerequisite state: another detaches. In use. Not there any more. A lock that is held.
    matches!(&*code, "55000" | "55006" | "42P01" | "55P03" | "40P01")
}
