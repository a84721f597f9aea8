//! Claiming: the insert is the claim, and nobody reads first.

use std::time::Duration;

use oneffect_core::{Claim, EventKey, Fingerprint16, Prior, StoreError, Verdict};
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
        claims: &[Claim],
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut verdicts = vec![None; claims.len()];
        let sorted = Keys::of(claims.iter().map(|claim| &claim.key));
        self.insert(claims, &sorted, &mut verdicts).await?;
        let lost: Vec<&EventKey> = claims
            .iter()
            .zip(&verdicts)
            .filter(|(_, verdict)| verdict.is_none())
            .map(|(claim, _)| &claim.key)
            .collect();
        if !lost.is_empty() {
            self.look_up(&Keys::of(lost), claims, &sorted, &mut verdicts)
                .await?;
        }
        verdicts
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| StoreError::rolled_back(Vanished))
    }

    async fn insert(
        &mut self,
        claims: &[Claim],
        keys: &Keys,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let rows = sqlx::query(include_str!("queries/claim.sql"))
            .bind(keys.ids())
            .bind(keys.tenants())
            .bind(self.consumer.0)
            .bind(&*self.after_claim)
            .bind(keys.fingerprints(claims))
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
        claims: &[Claim],
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
            let found = found(&row, claims, all).map_err(StoreError::rolled_back)?;
            if let Some((place, verdict)) = found {
                verdicts[place] = Some(verdict);
            }
        }
        Ok(())
    }
}

/// What a row that was there already says of the claim, and which claim that is.
fn found(row: &PgRow, claims: &[Claim], keys: &Keys) -> sqlx::Result<Option<(usize, Verdict)>> {
    let Some(place) = keys.place(row.try_get("event_id")?, row.try_get("tenant")?) else {
        return Ok(None);
    };
    let settled = settled_from(row.try_get("outcome")?, row.try_get("reply")?)?;
    let fingerprint: Option<&[u8]> = row.try_get("fingerprint")?;
    let stored = fingerprint.and_then(Fingerprint16::from_bytes);
    let age = Duration::try_from_secs_f64(row.try_get("age")?).unwrap_or_default();
    Ok(Some((
        place,
        claims[place].verdict_on(settled, stored, age),
    )))
}

pub(crate) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| code(error) == "55P03")
}
