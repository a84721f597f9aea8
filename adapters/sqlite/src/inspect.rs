//! Looking an event up, for people.

use std::collections::BTreeMap;

use oneffect_core::{
    Day, DeadLetterRecord, EventId, EventKey, EventRecord, FailedRecord, Filed, Fingerprint16,
    SettledRecord, StoreError, Tenant,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::record::settled_from;
use crate::store::Sqlite;
use crate::times::time;
use crate::transaction::Transaction;

/// By consumer and tenant.
type Records = BTreeMap<(String, Tenant), EventRecord>;

impl Sqlite {
    /// All that is known of an event: a record for each consumer and tenant that know the id, in the
    /// order of their names. Only reads, and sees one state of the database.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`] when the database cannot be reached, and
    /// [`StoreError::Misconfigured`] when its tables cannot be used.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn inspect(&self, id: &EventId) -> Result<Vec<EventRecord>, StoreError> {
        let mut transaction = Transaction::begin_reading(self.pool())
            .await
            .map_err(StoreError::rolled_back)?;
        let mut records = Records::new();
        let settled = include_str!("queries/inspect_inbox.sql");
        for row in rows_of(&mut transaction, settled, id).await? {
            add_settled(&row, id, &mut records).map_err(StoreError::rolled_back)?;
        }
        let failed = include_str!("queries/inspect_retry.sql");
        for row in rows_of(&mut transaction, failed, id).await? {
            add_failed(&row, id, &mut records).map_err(StoreError::rolled_back)?;
        }
        let letters = include_str!("queries/inspect_dead_letters.sql");
        for row in rows_of(&mut transaction, letters, id).await? {
            add_letter(&row, id, &mut records).map_err(StoreError::rolled_back)?;
        }
        transaction.rollback().await;
        Ok(records.into_values().collect())
    }
}

async fn rows_of(
    transaction: &mut Transaction,
    sql: &'static str,
    id: &EventId,
) -> Result<Vec<SqliteRow>, StoreError> {
    sqlx::query(sql)
        .bind(id.to_bytes().to_vec())
        .fetch_all(&mut **transaction)
        .await
        .map_err(misplaced)
}

fn add_settled(row: &SqliteRow, id: &EventId, records: &mut Records) -> sqlx::Result<()> {
    let recorded_at = time(row.try_get("recorded_at")?);
    let fingerprint: Option<&[u8]> = row.try_get("fingerprint")?;
    let settled = SettledRecord {
        filed: match id.day() {
            Some(day) => Filed::OwnDay(day),
            None => Filed::OpenPeriod(Day::of(recorded_at)),
        },
        outcome: settled_from(row.try_get("outcome")?, row.try_get("reply")?)?,
        fingerprint: fingerprint.and_then(Fingerprint16::from_bytes),
        recorded_at,
    };
    record(row, id, records)?.settled.push(settled);
    Ok(())
}

fn add_failed(row: &SqliteRow, id: &EventId, records: &mut Records) -> sqlx::Result<()> {
    let failed = FailedRecord {
        attempts: count(row, "attempts")?,
        next_attempt_at: time(row.try_get("next_attempt_at")?),
        last_error: row.try_get("last_error")?,
    };
    record(row, id, records)?.failed = Some(failed);
    Ok(())
}

fn add_letter(row: &SqliteRow, id: &EventId, records: &mut Records) -> sqlx::Result<()> {
    let letter = DeadLetterRecord {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        position: row.try_get("position")?,
        first_at: time(row.try_get("first_at")?),
        last_at: time(row.try_get("last_at")?),
        deliveries: count(row, "deliveries")?,
        attempts: count(row, "attempts")?,
        error: row.try_get("error")?,
    };
    record(row, id, records)?.dead_letters.push(letter);
    Ok(())
}

fn count(row: &SqliteRow, column: &str) -> sqlx::Result<u32> {
    Ok(row
        .try_get::<i32, _>(column)?
        .try_into()
        .unwrap_or_default())
}

/// The record that a row belongs to.
fn record<'r>(
    row: &SqliteRow,
    id: &EventId,
    records: &'r mut Records,
) -> sqlx::Result<&'r mut EventRecord> {
    let consumer: String = row.try_get("name")?;
    let tenant = String::from_utf8_lossy(row.try_get("tenant")?).into_owned();
    let tenant = Tenant::new(tenant).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let key = EventKey {
        id: id.clone(),
        tenant: tenant.clone(),
    };
    let new = EventRecord::new(consumer.clone(), key);
    Ok(records.entry((consumer, tenant)).or_insert(new))
}
