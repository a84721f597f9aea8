//! What the inbox holds, for people.

use oneffect_core::{
    ConsumerId, ConsumerReport, Day, InboxPart, InboxPartKind, InboxReport, StoreError, Window,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::misplaced;
use crate::store::Postgres;
use crate::transaction::{Transaction, heard};

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
        let limits = include_str!("queries/inbox_limits.sql");
        let limits = rows_of(&mut transaction, limits).await?;
        let consumers = include_str!("queries/inbox_consumers.sql");
        let consumers = rows_of(&mut transaction, consumers).await?;
        let parts = include_str!("queries/inbox_parts.sql");
        let parts = rows_of(&mut transaction, parts).await?;
        transaction.rollback().await;
        report(&limits, &consumers, &parts).map_err(StoreError::rolled_back)
    }
}

async fn rows_of(
    transaction: &mut Transaction,
    sql: &'static str,
) -> Result<Vec<PgRow>, StoreError> {
    let rows = sqlx::query(sql).persistent(false);
    heard!(
        transaction,
        "the inbox's size",
        rows.fetch_all(&mut **transaction)
    )
    .map_err(misplaced)
}

fn report(limits: &[PgRow], consumers: &[PgRow], parts: &[PgRow]) -> sqlx::Result<InboxReport> {
    let limits = limits.first().ok_or(sqlx::Error::RowNotFound)?;
    let mut report = InboxReport::new(Day::from_number(limits.try_get("today")?));
    report.window = Window::Days(narrow(limits.try_get("window_days")?));
    report.floor = Some(Day::from_number(limits.try_get("floor")?));
    report.consumers = consumers.iter().map(consumer).collect::<Result<_, _>>()?;
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
