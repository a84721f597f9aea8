//! The ages of duplicates, kept for whoever has to choose a window.

use std::time::Duration;

use oneffect_core::{ConsumerId, DuplicateAges, StoreError};
use sqlx::Row;

use crate::blame::misplaced;
use crate::store::Postgres;
use crate::transaction::heard;

impl Postgres {
    pub(crate) async fn add_duplicate_ages(
        &self,
        consumer: ConsumerId,
        ages: &DuplicateAges,
    ) -> Result<(), StoreError> {
        if ages.is_empty() {
            return Ok(());
        }
        let buckets: Vec<i32> = ages.buckets().map(|b| i32::from(b.number)).collect();
        let counts: Vec<i64> = ages.buckets().map(|b| storable(b.count)).collect();
        let oldest: Vec<i64> = ages.buckets().map(|b| storable(b.oldest)).collect();
        let mut transaction = self.begin_plain().await?;
        heard!(
            transaction,
            "the ages of duplicates",
            sqlx::query(include_str!("queries/note_duplicate_ages.sql"))
                .bind(consumer.0)
                .bind(buckets)
                .bind(counts)
                .bind(oldest)
                .persistent(false)
                .execute(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await
    }

    pub(crate) async fn read_duplicate_ages(
        &self,
        consumer: ConsumerId,
    ) -> Result<DuplicateAges, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let rows = heard!(
            transaction,
            "the ages of duplicates",
            sqlx::query(include_str!("queries/duplicate_ages.sql"))
                .bind(consumer.0)
                .persistent(false)
                .fetch_all(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.rollback().await;
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

/// The server counts to half of what we do.
fn storable(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
