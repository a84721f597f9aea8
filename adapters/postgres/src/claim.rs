//! Claiming: the insert is the claim, and nobody reads first.

use std::time::Duration;

use oneffect_core::{EventKey, Prior, Settled, StoreError, Verdict};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::{code, misplaced};
use crate::keys::Keys;
use crate::record::settled_from;
use crate::unit::PostgresUnit;

/// A key could be neither claimed nor found: its row went away between two statements, by a
/// maintenance that forgets or by hand.
#[derive(Debug, thiserror::Error)]
#[error("an event key was settled when it was to be claimed, and gone when it was looked up")]
pub(crate) struct Vanished;

impl PostgresUnit {
    pub(crate) async fn claim_keys(
        &mut self,
        keys: &[EventKey],
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut verdicts = vec![None; keys.len()];
        let sorted = Keys::of(keys);
        self.insert(&sorted, &mut verdicts).await?;
        let lost: Vec<EventKey> = keys
            .iter()
            .zip(&verdicts)
            .filter(|(_, verdict)| verdict.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        if !lost.is_empty() {
            self.look_up(&Keys::of(&lost), &sorted, &mut verdicts)
                .await?;
        }
        verdicts
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| StoreError::rolled_back(Vanished))
    }

    async fn insert(
        &mut self,
        keys: &Keys,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let rows = sqlx::query(include_str!("queries/claim.sql"))
            .bind(keys.ids())
            .bind(keys.tenants())
            .bind(self.consumer.0)
            .bind(&*self.after_claim)
            .persistent(self.named)
            .fetch_all(&mut *self.transaction)
            .await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) if is_lock_timeout(&error) => return Err(StoreError::Busy),
            Err(error) => return Err(misplaced(self.failed(error))),
        };
        for row in rows {
            self.note_fresh(&row, keys, verdicts)
                .map_err(StoreError::rolled_back)?;
        }
        Ok(())
    }

    fn note_fresh(
        &mut self,
        row: &PgRow,
        keys: &Keys,
        verdicts: &mut [Option<Verdict>],
    ) -> sqlx::Result<()> {
        self.transaction_id = row.try_get("transaction_id")?;
        let Some(id) = row.try_get::<Option<&[u8]>, _>("event_id")? else {
            return Ok(());
        };
        let prior = match row.try_get::<Option<i32>, _>("attempts")? {
            None => Prior::default(),
            Some(attempts) => Prior {
                attempts: attempts.try_into().unwrap_or_default(),
                wait: Duration::try_from_secs_f64(row.try_get("wait")?).unwrap_or_default(),
                last_error: Some(row.try_get::<String, _>("last_error")?.into()),
            },
        };
        if let Some(place) = keys.place(id, row.try_get("tenant")?) {
            verdicts[place] = Some(Verdict::Fresh(prior));
        }
        Ok(())
    }

    async fn look_up(
        &mut self,
        lost: &Keys,
        all: &Keys,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let rows = sqlx::query(include_str!("queries/settled.sql"))
            .bind(lost.ids())
            .bind(lost.pairs())
            .bind(self.consumer.0)
            .persistent(self.named)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| misplaced(self.failed(error)))?;
        for row in rows {
            let (place, settled) = found(&row, all).map_err(StoreError::rolled_back)?;
            if let Some(place) = place {
                verdicts[place] = Some(Verdict::Duplicate(settled));
            }
        }
        Ok(())
    }
}

fn found(row: &PgRow, keys: &Keys) -> sqlx::Result<(Option<usize>, Settled)> {
    let place = keys.place(row.try_get("event_id")?, row.try_get("tenant")?);
    let settled = settled_from(row.try_get("outcome")?, row.try_get("reply")?)?;
    Ok((place, settled))
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| code(error) == "55P03")
}
