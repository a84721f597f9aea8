//! Looking an event up, for people.

use std::collections::BTreeMap;

use oneffect_core::{
    Day, DeadLetters as _, EventId, EventKey, EventRecord, FailedRecord, Filed, Fingerprint16,
    LetterFilter, LetterSummary, SettledRecord, StoreError, Tenant, time_of_micros,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::record::settled_from;
use crate::store::Sqlite;
use crate::transaction::Transaction;

/// By consumer and tenant.
type Records = BTreeMap<(String, Tenant), EventRecord>;

impl Sqlite {
    /// All that is known of an event: a record for each consumer and tenant that know the id, in the
    /// order of their names. Only reads.
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
        transaction.rollback().await;
        let mut letters = LetterFilter::default();
        letters.event_id = Some(id.clone());
        for letter in self.list_letters(&letters).await? {
            add_letter(letter, &mut records);
        }
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
    let recorded_at = time_of_micros(row.try_get("recorded_at")?);
    let fingerprint: Option<&[u8]> = row.try_get("fingerprint")?;
    let day = Day::from_number(row.try_get("day")?);
    let settled = SettledRecord {
        filed: if id.day() == Some(day) || row.try_get("is_producers")? {
            Filed::OwnDay(day)
        } else {
            Filed::OpenPeriod(day)
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
        attempts: row
            .try_get::<i32, _>("attempts")?
            .try_into()
            .unwrap_or_default(),
        next_attempt_at: time_of_micros(row.try_get("next_attempt_at")?),
        last_error: row.try_get("last_error")?,
    };
    record(row, id, records)?.failed = Some(failed);
    Ok(())
}

fn add_letter(letter: LetterSummary, records: &mut Records) {
    if let Some(event) = &letter.event {
        let consumer = letter.consumer.to_string();
        let new = EventRecord::new(consumer.clone(), event.clone());
        let record = records.entry((consumer, event.tenant.clone()));
        record.or_insert(new).dead_letters.push(letter);
    }
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
