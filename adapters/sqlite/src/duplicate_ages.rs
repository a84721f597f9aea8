//! The ages of duplicates, kept for whoever has to choose a window.

use std::time::Duration;

use oneffect_core::{ConsumerId, DuplicateAges, StoreError};
use sqlx::Row;

use crate::blame::misplaced;
use crate::store::Sqlite;

impl Sqlite {
    pub(crate) async fn add_duplicate_ages(
        &self,
        consumer: ConsumerId,
        ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        if ages.is_empty() {
            return Ok(());
        }
        let buckets: Vec<String> = (ages.buckets())
            .map(|b| {
                format!(
                    "[{},{},{}]",
                    b.number,
                    storable(b.count),
                    storable(b.oldest)
                )
            })
            .collect();
        let mut transaction = self.begin_plain().await?;
        sqlx::query(include_str!("queries/note_duplicate_ages.sql"))
            .bind(consumer.0)
            .bind(format!("[{}]", buckets.join(",")))
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }

    pub(crate) async fn read_duplicate_ages(
        &self,
        consumer: ConsumerId,
    ) -> Result<DuplicateAges, StoreError> {
        let rows = sqlx::query(include_str!("queries/duplicate_ages.sql"))
            .bind(consumer.0)
            .fetch_all(self.pool())
            .await
            .map_err(misplaced)?;
        let mut ages = DuplicateAges::default();
        for row in rows {
            let number = |column| -> Result<u64, StoreError> {
                let number: i64 = row.try_get(column).map_err(StoreError::rolled_back)?;
                Ok(number.try_into().unwrap_or_default())
            };
            let oldest = Duration::from_secs(number("oldest_seconds")?);
            ages.record_many(oldest, number("n")?);
        }
        Ok(ages)
    }
}

/// SQLite counts to half of what we do.
fn storable(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
