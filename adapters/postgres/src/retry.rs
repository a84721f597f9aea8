//! Failed attempts of events that are not settled yet.

use std::time::Duration;

use oneffect_core::{ConsumerId, DeadLetter, EventKey, StoreError};

use crate::blame::misplaced;
use crate::keys::{Keys, columns};
use crate::store::Postgres;
use crate::transaction::heard;
use crate::unit::PostgresUnit;

/// Longer waits are as good as for ever, and would overflow the server's timestamps.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

impl Postgres {
    pub(crate) async fn charge_attempt(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        error: &str,
        wait: Duration,
    ) -> Result<u32, StoreError> {
        let (id, tenant) = columns(key);
        let mut transaction = self.begin_plain().await?;
        let attempts: i32 = heard!(
            transaction,
            "an attempt",
            sqlx::query_scalar(include_str!("queries/charge.sql"))
                .bind(id)
                .bind(tenant)
                .bind(consumer.0)
                .bind(storable(error))
                .bind(wait.min(LONGEST_WAIT).as_secs_f64())
                .persistent(self.named())
                .fetch_one(&mut *transaction)
        )
        .map_err(misplaced)?;
        // An answer that is lost here costs an attempt too many at worst.
        transaction.commit().await?;
        Ok(attempts.try_into().unwrap_or_default())
    }
}

impl PostgresUnit {
    pub(crate) async fn delete_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        let keys = Keys::of(keys);
        sqlx::query(include_str!("queries/forget_attempts.sql"))
            .bind(keys.all().ids())
            .bind(keys.all().pairs())
            .bind(self.consumer.0)
            .persistent(self.named)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }
}

/// Text that the database takes: bounded, and without NUL, which would poison every later try.
pub(crate) fn storable(text: &str) -> String {
    let end = text.floor_char_boundary(DeadLetter::MAX_ERROR_LEN);
    text[..end].replace('\0', "\u{2400}")
}
