//! What the inbox holds, for people.

use oneffect_core::{
    ConsumerId, ConsumerReport, Day, InboxPart, InboxPartKind, InboxReport, StoreError, Window,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::days::limits;
use crate::store::Sqlite;
use crate::transaction::Transaction;

impl Sqlite {
    /// What the inbox holds and for how long. Only reads, one state of the database; rows are
    /// counted, which takes a while where there are many.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the file cannot be read now, and
    /// [`StoreError::Misconfigured`] when its tables cannot be used.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn inbox(&self) -> Result<InboxReport, StoreError> {
        let mut transaction = Transaction::begin_reading(self.pool())
            .await
            .map_err(StoreError::rolled_back)?;
        let report = read(&mut transaction).await.map_err(misplaced)?;
        transaction.rollback().await;
        Ok(report)
    }
}

async fn read(transaction: &mut Transaction) -> sqlx::Result<InboxReport> {
    let limits = limits(&mut *transaction).await?;
    let mut report = InboxReport::new(limits.today);
    report.window = Window::Days(limits.window_days);
    report.floor = Some(limits.floor);
    let consumers = sqlx::query(include_str!("queries/inbox_consumers.sql"))
        .fetch_all(&mut **transaction)
        .await?;
    report.consumers = consumers.iter().map(consumer).collect::<Result<_, _>>()?;
    let parts = sqlx::query(include_str!("queries/inbox_parts.sql"))
        .fetch_all(&mut **transaction)
        .await?;
    report.parts = parts.iter().map(part).collect::<Result<_, _>>()?;
    let bytes: i64 = sqlx::query_scalar(include_str!("queries/inbox_bytes.sql"))
        .fetch_one(&mut **transaction)
        .await?;
    report.bytes = bytes.try_into().unwrap_or_default();
    Ok(report)
}

fn consumer(row: &SqliteRow) -> sqlx::Result<ConsumerReport> {
    Ok(ConsumerReport {
        id: ConsumerId(row.try_get("id")?),
        name: row.try_get("name")?,
        days_from: row.try_get("days_from")?,
        failed: count(row, "failed")?,
        dead_letters: count(row, "dead_letters")?,
    })
}

fn part(row: &SqliteRow) -> sqlx::Result<InboxPart> {
    Ok(InboxPart {
        kind: InboxPartKind::Any,
        day: Day::from_number(row.try_get("day")?),
        rows: count(row, "rows")?,
        bytes: None,
    })
}

fn count(row: &SqliteRow, column: &str) -> sqlx::Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(count.try_into().unwrap_or_default())
}
