//! Failed attempts of events that are not settled yet.

use std::time::Duration;

use oneffect_core::{ConsumerId, DeadLetter, EventKey, StoreError};

use crate::blame::misplaced;
use crate::keys::{Keys, columns};
use crate::store::Sqlite;
use crate::unit::SqliteUnit;

/// Longer waits are as good as for ever.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

impl Sqlite {
    pub(crate) async fn charge_attempt(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError> {
        let (id, tenant) = columns(key);
        let mut transaction = self.begin_plain().await?;
        let attempts: u32 = sqlx::query_scalar(include_str!("queries/charge.sql"))
            .bind(id)
            .bind(tenant)
            .bind(consumer.0)
            .bind(storable(error))
            .bind(wait.min(LONGEST_WAIT).as_secs_f64())
            .fetch_one(&mut *transaction)
            .await
            .map_err(misplaced)?;
        // An answer that is lost here costs an attempt too many at worst.
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        Ok(attempts)
    }
}

impl SqliteUnit {
    pub(crate) async fn delete_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        sqlx::query(include_str!("queries/forget_attempts.sql"))
            .bind(Keys::of(keys).to_json())
            .bind(self.consumer.0)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }
}

/// Text that every tool reads to its end: bounded, and without NUL.
pub(crate) fn storable(text: &str) -> String {
    let end = text.floor_char_boundary(DeadLetter::MAX_ERROR_LEN);
    text[..end].replace('\0', "\u{2400}")
}
