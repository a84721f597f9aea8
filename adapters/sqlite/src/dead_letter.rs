//! Events set aside.

use oneffect_core::{Claim, DeadLetter, Letter, LetterId, LetterRow, Reopen, StoreError};

use crate::keys::columns;
use crate::letters::letter_row;
use crate::record::{DEAD, REJECTED};
use crate::unit::SqliteUnit;

/// Somebody has deleted a letter that a unit had taken.
#[derive(Debug, thiserror::Error)]
#[error("a dead letter is gone that was to be redriven")]
pub(crate) struct LetterGone;

impl SqliteUnit {
    /// One statement a letter: there is no network between, and payloads need not be copied.
    pub(crate) async fn insert_letters(
        &mut self,
        letters: &[DeadLetter],
    ) -> Result<(), StoreError> {
        for letter in letters {
            let row = LetterRow::of(letter);
            sqlx::query(include_str!("queries/set_aside.sql"))
                .bind(self.consumer.0)
                .bind(row.source_key)
                .bind(row.kind)
                .bind(row.event_id)
                .bind(row.tenant)
                .bind(row.fingerprint)
                .bind(row.settled_fingerprint)
                .bind(row.source)
                .bind(row.log_partition)
                .bind(row.log_offset)
                .bind(row.message_id)
                .bind(row.deduplication_id)
                .bind(row.ordered)
                .bind(row.message_group)
                .bind(row.lane)
                .bind(row.raw_key.as_deref())
                .bind(row.payload.as_deref())
                .bind(row.headers)
                .bind(row.raw_key_length)
                .bind(row.payload_length)
                .bind(row.headers_dropped)
                .bind(row.published_at)
                .bind(row.attempts)
                .bind(row.error)
                .execute(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }

    /// Counts at most as many as there may be: the index alone is read.
    pub(crate) async fn count_room(&mut self, limit: u64) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM dead_letter WHERE consumer = ?1 LIMIT ?2)";
        let count: i64 = sqlx::query_scalar(sql)
            .bind(self.consumer.0)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(limit.saturating_sub(count.unsigned_abs()))
    }

    pub(crate) async fn find_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        let sql =
            "SELECT EXISTS (SELECT 1 FROM dead_letter WHERE source_key = ?1 AND consumer = ?2)";
        sqlx::query_scalar(sql)
            .bind(source_key.as_slice())
            .bind(self.consumer.0)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))
    }

    /// There is no other unit, so there is nothing to lock.
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
            .fetch_optional(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        let row = row.map(|row| letter_row(&row)).transpose();
        let row = row.map_err(StoreError::rolled_back)?;
        row.map(LetterRow::into_letter).transpose()
    }

    pub(crate) async fn delete_taken(&mut self, id: LetterId) -> Result<(), StoreError> {
        let deleted = sqlx::query("DELETE FROM dead_letter WHERE id = ?1")
            .bind(id.0)
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
        sqlx::query(include_str!("queries/reopen.sql"))
            .bind(id)
            .bind(tenant)
            .bind(self.consumer.0)
            .bind(outcome)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }
}
