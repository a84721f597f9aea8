//! Events set aside.

use std::collections::BTreeMap;

use oneffect_core::{Claim, Day, DeadLetter, Letter, LetterId, LetterRow, Reopen, StoreError};

use crate::claim::is_lock_timeout;
use crate::keys::columns;
use crate::letters::letter_row;
use crate::record::{DEAD, REJECTED};
use crate::unit::PostgresUnit;

/// Somebody has deleted a letter that a unit had taken.
#[derive(Debug, thiserror::Error)]
#[error("a dead letter is gone that was to be redriven")]
pub(crate) struct LetterGone;

impl PostgresUnit {
    pub(crate) async fn insert_letters(
        &mut self,
        letters: &[DeadLetter],
    ) -> Result<(), StoreError> {
        // One statement cannot touch a row twice, and a queue may hand out one unreadable message
        // twice in a batch.
        let mut distinct: BTreeMap<[u8; 32], LetterRow> = BTreeMap::new();
        for letter in letters {
            let row = distinct.entry(letter.source_key);
            row.or_insert_with(|| LetterRow::of(letter)).deliveries += 1;
        }
        let rows: Vec<LetterRow> = distinct.into_values().collect();
        let transaction_ids: Vec<String> =
            sqlx::query_scalar(include_str!("queries/set_aside.sql"))
                .bind(self.consumer.0)
                .bind(column(&rows, |row| &*row.source_key))
                .bind(column(&rows, |row| &*row.kind))
                .bind(column(&rows, |row| row.event_id.as_deref()))
                .bind(column(&rows, |row| row.tenant.as_deref()))
                .bind(column(&rows, |row| row.fingerprint.as_deref()))
                .bind(column(&rows, |row| row.settled_fingerprint.as_deref()))
                .bind(column(&rows, |row| &*row.source))
                .bind(column(&rows, |row| row.log_partition))
                .bind(column(&rows, |row| row.log_offset))
                .bind(column(&rows, |row| row.message_id.as_deref()))
                .bind(column(&rows, |row| row.deduplication_id.as_deref()))
                .bind(column(&rows, |row| row.ordered))
                .bind(column(&rows, |row| row.message_group.as_deref()))
                .bind(column(&rows, |row| row.lane.as_deref()))
                .bind(column(&rows, |row| row.raw_key.as_deref()))
                .bind(column(&rows, |row| row.payload.as_deref()))
                .bind(column(&rows, |row| &*row.headers))
                .bind(column(&rows, |row| row.raw_key_length))
                .bind(column(&rows, |row| row.payload_length))
                .bind(column(&rows, |row| row.headers_dropped))
                .bind(column(&rows, |row| row.published_at))
                .bind(column(&rows, |row| row.deliveries))
                .bind(column(&rows, |row| row.attempts))
                .bind(column(&rows, |row| &*row.error))
                .persistent(self.named)
                .fetch_all(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        if self.transaction_id.is_none() {
            self.transaction_id = transaction_ids.into_iter().next();
        }
        Ok(())
    }

    /// Counts at most as many as there may be: the index alone is read.
    pub(crate) async fn count_room(&mut self, limit: u64) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM \
                   (SELECT FROM dead_letter WHERE consumer = $1 LIMIT $2) AS letter";
        let count: i64 = sqlx::query_scalar(sql)
            .bind(self.consumer.0)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .persistent(self.named)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(limit.saturating_sub(count.unsigned_abs()))
    }

    pub(crate) async fn find_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT FROM dead_letter WHERE source_key = $1 AND consumer = $2)";
        sqlx::query_scalar(sql)
            .bind(source_key.as_slice())
            .bind(self.consumer.0)
            .persistent(self.named)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))
    }

    pub(crate) async fn take_due_letter(
        &mut self,
        id: LetterId,
    ) -> Result<Option<Letter>, StoreError> {
        let sql = concat!(
            include_str!("queries/letter.sql"),
            include_str!("queries/due_letter.sql")
        );
        let row = sqlx::query(sql)
            .bind(id.0)
            .bind(self.consumer.0)
            .persistent(self.named)
            .fetch_optional(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        let row = row.map(|row| letter_row(&row)).transpose();
        let row = row.map_err(StoreError::rolled_back)?;
        row.map(LetterRow::into_letter).transpose()
    }

    pub(crate) async fn delete_taken(&mut self, id: LetterId) -> Result<(), StoreError> {
        let deleted = sqlx::query("DELETE FROM dead_letter WHERE id = $1")
            .bind(id.0)
            .persistent(self.named)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        if deleted.rows_affected() == 0 {
            return Err(StoreError::rolled_back(LetterGone));
        }
        Ok(())
    }

    pub(crate) async fn take_back(
        &mut self,
        claim: &Claim,
        what: Reopen,
    ) -> Result<(), StoreError> {
        let (id, tenant) = columns(&claim.key);
        let outcome = match what {
            Reopen::Dead => DEAD,
            Reopen::Rejected => REJECTED,
        };
        let deleted = sqlx::query(include_str!("queries/reopen.sql"))
            .bind(id)
            .bind(tenant)
            .bind(self.consumer.0)
            .bind(outcome)
            .bind(claim.day.map(Day::number))
            .persistent(self.named)
            .execute(&mut *self.transaction)
            .await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) if is_lock_timeout(&error) => Err(StoreError::Busy),
            Err(error) => Err(StoreError::rolled_back(self.failed(error))),
        }
    }
}

fn column<'r, T>(rows: &'r [LetterRow], value: impl Fn(&'r LetterRow) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}
