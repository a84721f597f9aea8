//! What the inbox holds, for people.

use oneffect_core::{
    ConsumerId, ConsumerReport, Day, InboxPart, InboxPartKind, InboxReport, StoreError, Window,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::misplaced;
use crate::store::Postgres;
use crate::transaction::Transaction;

impl Postgres {
    /// What the inbox holds and for how long. Only reads, one state of the database; rows are not
    /// counted, but estimated as the server does.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the database cannot be reached, and
    /// [`StoreError::Misconfigured`] when its tables cannot be used.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn inbox(&self) -> Result<InboxReport, StoreError> {
        let mut transaction = self.begin_reading().await?;
        let report = read(&mut transaction).await.map_err(misplaced)?;
        transaction.rollback().await;
        Ok(report)
    }
}

async fn read(transaction: &mut Transaction) -> sqlx::Result<InboxReport> {
    let limits = sqlx::query(include_str!("queries/inbox_limits.sql"))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await?;
    let mut report = InboxReport::new(Day::from_number(limits.try_get("today")?));
    report.window = Window::Days(narrow(limits.try_get("window_days")?));
    report.floor = Some(Day::from_number(limits.try_get("floor")?));
    let consumers = sqlx::query(include_str!("queries/inbox_consumers.sql"))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await?;
    report.consumers = consumers.iter().map(consumer).collect::<Result<_, _>>()?;
    let parts = sqlx::query(include_str!("queries/inbox_parts.sql"))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await?;
    report.parts = parts.iter().map(part).collect::<Result<_, _>>()?;
    report.bytes = report.parts.iter().filter_map(|part| part.bytes).sum();
    Ok(report)
}

fn consumer(row: &PgRow) -> sqlx::Result<ConsumerReport> {
    Ok(ConsumerReport {
        id: ConsumerId(row.try_get("id")?),
        name: row.try_get("name")?,
        days_from: row.try_get("days_from")?,
        failed: count(row, "failed")?,
        dead_letters: count(row, "dead_letters")?,
    })
}

fn part(row: &PgRow) -> sqlx::Result<InboxPart> {
    let is_own_day: bool = row.try_get("is_own_day")?;
    Ok(InboxPart {
        kind: if is_own_day {
            InboxPartKind::OwnDay
        } else {
            InboxPartKind::OpenPeriod
        },
        day: Day::from_number(row.try_get("day")?),
        rows: count(row, "rows")?,
        bytes: Some(count(row, "bytes")?),
    })
}

fn count(row: &PgRow, column: &str) -> sqlx::Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(count.try_into().unwrap_or_default())
}

fn narrow(days: i32) -> u32 {
    days.try_into().unwrap_or_default()
}
