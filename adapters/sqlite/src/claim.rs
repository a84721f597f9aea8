//! Claiming: the insert is the claim, and nobody reads first.

use std::time::Duration;

use oneffect_core::{Claim, EventKey, Fingerprint16, Prior, StoreError, Verdict};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::keys::Keys;
use crate::record::settled_from;
use crate::unit::SqliteUnit;

/// A key could be neither claimed nor found.
#[derive(Debug, thiserror::Error)]
#[error("an event key was settled when it was to be claimed, and gone when it was looked up")]
pub(crate) struct Vanished;

impl SqliteUnit {
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
            .bind(keys.to_json_with_fingerprints(claims))
            .bind(self.consumer.0)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| misplaced(self.failed(error)))?;
        for row in rows {
            let (place, prior) = fresh(&row, keys).map_err(StoreError::rolled_back)?;
            if let Some(place) = place {
                verdicts[place] = Some(Verdict::Fresh(prior));
            }
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
            .bind(lost.to_json())
            .bind(self.consumer.0)
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

fn fresh(row: &SqliteRow, keys: &Keys) -> sqlx::Result<(Option<usize>, Prior)> {
    let place = keys.place(row.try_get("event_id")?, row.try_get("tenant")?);
    let prior = match row.try_get::<Option<u32>, _>("attempts")? {
        None => Prior::default(),
        Some(attempts) => Prior {
            attempts,
            wait: Duration::try_from_secs_f64(row.try_get("wait")?).unwrap_or_default(),
            last_error: Some(row.try_get::<String, _>("last_error")?.into()),
        },
    };
    Ok((place, prior))
}

/// What a row that was there already says of the claim, and which claim that is.
fn found(row: &SqliteRow, claims: &[Claim], keys: &Keys) -> sqlx::Result<Option<(usize, Verdict)>> {
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
