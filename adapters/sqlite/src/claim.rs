//! Claiming: the insert is the claim, and nobody reads first.

use std::time::Duration;

use oneffect_core::{Claim, Day, EventKey, Fingerprint16, Late, Prior, StoreError, Verdict};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::days::{Limits, limits};
use crate::keys::Keys;
use crate::record::settled_from;
use crate::unit::SqliteUnit;

/// A key could be neither claimed nor found.
#[derive(Debug, thiserror::Error)]
#[error("an event key was settled when it was to be claimed, and gone when it was looked up")]
pub(crate) struct Vanished;

/// What is to be inserted of a batch: the claims whose day is neither forgotten nor a lie.
struct Wanted<'c> {
    claims: Vec<&'c Claim>,
    /// Where each was in the batch.
    places: Vec<usize>,
    /// What each row gets beside its key.
    rows: Vec<(Option<Fingerprint16>, Day)>,
    keys: Keys,
}

impl<'c> Wanted<'c> {
    /// Answers for the others at once.
    fn of(
        batch: &'c [Claim],
        late: Late,
        limits: Limits,
        verdicts: &mut [Option<Verdict>],
    ) -> Self {
        let (mut claims, mut places, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (place, claim) in batch.iter().enumerate() {
            match claim.day_within(late, limits.floor, limits.today) {
                Err(untimely) => verdicts[place] = Some(untimely),
                Ok(day) => {
                    claims.push(claim);
                    places.push(place);
                    // Keys are unique whatever their day, which only says when they are forgotten.
                    rows.push((claim.fingerprint, day.unwrap_or(limits.today)));
                }
            }
        }
        Self {
            keys: Keys::of(claims.iter().map(|claim| &claim.key)),
            claims,
            places,
            rows,
        }
    }
}

impl SqliteUnit {
    pub(crate) async fn claim_keys(
        &mut self,
        claims: &[Claim],
    ) -> Result<Vec<Verdict>, StoreError> {
        let limits = match limits(&mut self.transaction).await {
            Ok(limits) => limits,
            Err(error) => return Err(misplaced(self.failed(error))),
        };
        let mut verdicts = vec![None; claims.len()];
        let wanted = Wanted::of(claims, self.late, limits, &mut verdicts);
        self.insert(&wanted, &mut verdicts).await?;
        let lost: Vec<&EventKey> = claims
            .iter()
            .zip(&verdicts)
            .filter(|(_, verdict)| verdict.is_none())
            .map(|(claim, _)| &claim.key)
            .collect();
        if !lost.is_empty() {
            self.look_up(&Keys::of(lost), &wanted, &mut verdicts)
                .await?;
        }
        verdicts
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| StoreError::rolled_back(Vanished))
    }

    async fn insert(
        &mut self,
        wanted: &Wanted<'_>,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let rows = sqlx::query(include_str!("queries/claim.sql"))
            .bind(wanted.keys.to_json_rows(&wanted.rows))
            .bind(self.consumer.0)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| misplaced(self.failed(error)))?;
        for row in rows {
            let (at, prior) = fresh(&row, &wanted.keys).map_err(StoreError::rolled_back)?;
            if let Some(at) = at {
                verdicts[wanted.places[at]] = Some(Verdict::Fresh(prior));
            }
        }
        Ok(())
    }

    async fn look_up(
        &mut self,
        lost: &Keys,
        wanted: &Wanted<'_>,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let rows = sqlx::query(include_str!("queries/settled.sql"))
            .bind(lost.to_json())
            .bind(self.consumer.0)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| misplaced(self.failed(error)))?;
        for row in rows {
            let found = found(&row, wanted).map_err(StoreError::rolled_back)?;
            if let Some((at, verdict)) = found {
                verdicts[wanted.places[at]] = Some(verdict);
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
fn found(row: &SqliteRow, wanted: &Wanted<'_>) -> sqlx::Result<Option<(usize, Verdict)>> {
    let (id, tenant) = (row.try_get("event_id")?, row.try_get("tenant")?);
    let Some(at) = wanted.keys.place(id, tenant) else {
        return Ok(None);
    };
    let settled = settled_from(row.try_get("outcome")?, row.try_get("reply")?)?;
    let fingerprint: Option<&[u8]> = row.try_get("fingerprint")?;
    let stored = fingerprint.and_then(Fingerprint16::from_bytes);
    let age = Duration::try_from_secs_f64(row.try_get("age")?).unwrap_or_default();
    let verdict = wanted.claims[at].verdict_on(settled, stored, age);
    Ok(Some((at, verdict)))
}
