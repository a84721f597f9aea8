//! Claiming: the insert is the claim, and nobody reads first.

use std::ops::RangeInclusive;
use std::time::Duration;

use oneffect_core::{Claim, Day, Fingerprint16, Late, Prior, StoreError, Verdict};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::{code, misplaced};
use crate::filed::{Filed, FiledKeys, TABLES, Table, span};
use crate::keys::{Columns, Keys};
use crate::partitions::is_missing_partition;
use crate::record::settled_from;
use crate::unit::PostgresUnit;

/// How often a unit begins again because a partition was missing. Each time all that its claims need
/// are created, so a second time means that someone drops them.
const PARTITION_TRIES: u32 = 3;

/// A key could be neither claimed nor found: its row went away between two statements, by a
/// maintenance that forgets or by hand.
#[derive(Debug, thiserror::Error)]
#[error("an event key was settled when it was to be claimed, and gone when it was looked up")]
pub(crate) struct Vanished;

/// A partition was missing. It is there now, unless somebody drops it each time.
#[derive(Debug, thiserror::Error)]
#[error("a partition of the inbox was missing for a day that is remembered; it has been created")]
pub(crate) struct NoPartition;

/// Why a claim failed.
enum Failed {
    /// A partition has to be created, and the unit to begin again.
    NoPartition,
    Otherwise(StoreError),
}

/// What is known so far of a batch, by the places of its claims.
struct Batch<'c> {
    claims: &'c [Claim],
    keys: Keys,
    verdicts: Vec<Option<Verdict>>,
    filed: Vec<Option<Filed>>,
    /// Which are claimed in the open period.
    open: Vec<bool>,
}

impl<'c> Batch<'c> {
    fn new(claims: &'c [Claim]) -> Self {
        Self {
            claims,
            keys: Keys::of(claims.iter().map(|claim| &claim.key)),
            verdicts: vec![None; claims.len()],
            filed: vec![None; claims.len()],
            open: claims.iter().map(|claim| claim.day.is_none()).collect(),
        }
    }

    fn with_own_day(&self) -> Columns<'_> {
        self.keys.those(|place| !self.open[place])
    }

    fn without(&self) -> Columns<'_> {
        self.keys.those(|place| self.open[place])
    }

    /// Those that are neither claimed nor answered for.
    fn lost(&self, table: Table) -> Columns<'_> {
        let open = table == Table::Open;
        self.keys
            .those(|place| self.open[place] == open && self.verdicts[place].is_none())
    }

    /// Answers for the days that are not accepted, or opens them.
    fn judge_days(&mut self, late: Late, floor: Day, today: Day) {
        for (place, claim) in self.claims.iter().enumerate() {
            match claim.day_within(late, floor, today) {
                Err(untimely) => self.verdicts[place] = Some(untimely),
                Ok(day) => self.open[place] = day.is_none(),
            }
        }
    }
}

/// What a claiming statement says of the whole batch: the first and the last day, or period.
type Span = RangeInclusive<Day>;

impl PostgresUnit {
    pub(crate) async fn claim_keys(
        &mut self,
        claims: &[Claim],
    ) -> Result<Vec<Verdict>, StoreError> {
        for _ in 0..PARTITION_TRIES {
            match self.try_claim(claims).await {
                Ok(verdicts) => return Ok(verdicts),
                Err(Failed::Otherwise(error)) => return Err(error),
                Err(Failed::NoPartition) => {
                    let days: Vec<Day> = claims.iter().filter_map(|claim| claim.day).collect();
                    self.begin_again_with_partitions(&days).await?;
                    // If nothing else has happened in this unit, nobody sees that it is another.
                    if self.used {
                        return Err(StoreError::rolled_back(NoPartition));
                    }
                }
            }
        }
        Err(StoreError::rolled_back(NoPartition))
    }

    async fn try_claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, Failed> {
        let mut batch = Batch::new(claims);
        if batch.without().is_empty() || !batch.with_own_day().is_empty() {
            self.claim_days(&mut batch).await?;
        }
        let mut periods = None;
        if !batch.without().is_empty() {
            periods = Some(self.claim_open(&mut batch).await?);
        }
        for table in TABLES {
            self.look_up(table, &mut batch, periods.as_ref()).await?;
        }
        self.filed = FiledKeys::new(batch.keys, batch.filed);
        let verdicts: Option<Vec<Verdict>> = batch.verdicts.into_iter().collect();
        verdicts.ok_or_else(|| Failed::Otherwise(StoreError::rolled_back(Vanished)))
    }

    async fn claim_days(&mut self, batch: &mut Batch<'_>) -> Result<(), Failed> {
        let keys = batch.with_own_day();
        let day = |place: usize| batch.claims[place].day.map_or(0, Day::number);
        let query = sqlx::query(include_str!("queries/claim_days.sql"))
            .bind(keys.ids())
            .bind(keys.tenants())
            .bind(self.consumer.0)
            .bind(&*self.after_claim)
            .bind(keys.fingerprints(batch.claims))
            .bind(keys.map(day))
            .bind(!batch.without().is_empty())
            .bind(self.begin.late == Late::AsNew)
            .persistent(self.named);
        let rows = query.fetch_all(&mut *self.transaction).await;
        let rows = rows.map_err(|error| self.not_claimed(error))?;
        let filed = |place: usize| {
            batch.claims[place].day.map(|day| Filed {
                table: Table::Days,
                day,
            })
        };
        let fresh = self.fresh(&rows, &batch.keys).map_err(unreadable)?;
        let accepted = edges(&rows).map_err(unreadable)?;
        for (place, prior) in fresh {
            batch.filed[place] = filed(place);
            batch.verdicts[place] = Some(Verdict::Fresh(prior));
        }
        batch.judge_days(self.begin.late, *accepted.start(), accepted.end().plus(-1));
        Ok(())
    }

    /// The periods that are remembered; the last one is open.
    async fn claim_open(&mut self, batch: &mut Batch<'_>) -> Result<Span, Failed> {
        let keys = batch.without();
        let query = sqlx::query(include_str!("queries/claim_open.sql"))
            .bind(keys.ids())
            .bind(keys.tenants())
            .bind(self.consumer.0)
            .bind(&*self.after_claim)
            .bind(keys.fingerprints(batch.claims))
            .persistent(self.named);
        let rows = query.fetch_all(&mut *self.transaction).await;
        let rows = rows.map_err(|error| self.not_claimed(error))?;
        let fresh = self.fresh(&rows, &batch.keys).map_err(unreadable)?;
        let periods = edges(&rows).map_err(unreadable)?;
        let (table, day) = (Table::Open, *periods.end());
        for (place, prior) in fresh {
            batch.filed[place] = Some(Filed { table, day });
            batch.verdicts[place] = Some(Verdict::Fresh(prior));
        }
        Ok(periods)
    }

    fn not_claimed(&mut self, error: sqlx::Error) -> Failed {
        if is_missing_partition(&error) {
            return Failed::NoPartition;
        }
        Failed::Otherwise(if is_lock_timeout(&error) {
            StoreError::Busy
        } else {
            misplaced(self.failed(error))
        })
    }

    fn fresh(&mut self, rows: &[PgRow], keys: &Keys) -> sqlx::Result<Vec<(usize, Prior)>> {
        let mut fresh = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(id) = row.try_get::<Option<String>, _>("transaction_id")? {
                self.transaction_id = Some(id);
            }
            let Some(id) = row.try_get::<Option<&[u8]>, _>("event_id")? else {
                continue;
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
                fresh.push((place, prior));
            }
        }
        Ok(fresh)
    }

    async fn look_up(
        &mut self,
        table: Table,
        batch: &mut Batch<'_>,
        periods: Option<&Span>,
    ) -> Result<(), Failed> {
        let lost = batch.lost(table);
        let days = lost.map(|place| batch.claims[place].day);
        let days = match table {
            Table::Days => span(days.into_iter().flatten()),
            Table::Open => periods.cloned(),
        };
        let (false, Some(days)) = (lost.is_empty(), days) else {
            return Ok(());
        };
        let rows = sqlx::query(table.queries().settled.as_str())
            .bind(lost.ids())
            .bind(lost.pairs())
            .bind(self.consumer.0)
            .bind(days.start().number())
            .bind(days.end().number())
            .persistent(self.named)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| Failed::Otherwise(misplaced(self.failed(error))))?;
        for row in rows {
            note_settled(&row, table, batch).map_err(unreadable)?;
        }
        Ok(())
    }
}

/// What a row that was there already says of a claim.
fn note_settled(row: &PgRow, table: Table, batch: &mut Batch<'_>) -> sqlx::Result<()> {
    let (id, tenant) = (row.try_get("event_id")?, row.try_get("tenant")?);
    let day = Day::from_number(row.try_get("day")?);
    let Some(place) = batch.keys.place(id, tenant) else {
        return Ok(());
    };
    let claim = &batch.claims[place];
    // The same key under another day is none of this claim's.
    if table == Table::Days && claim.day != Some(day) {
        return Ok(());
    }
    let settled = settled_from(row.try_get("outcome")?, row.try_get("reply")?)?;
    let fingerprint: Option<&[u8]> = row.try_get("fingerprint")?;
    let stored = fingerprint.and_then(Fingerprint16::from_bytes);
    // Below zero when the winner began later.
    let age = Duration::try_from_secs_f64(row.try_get("age")?).unwrap_or_default();
    batch.verdicts[place] = Some(claim.verdict_on(settled, stored, age));
    batch.filed[place] = Some(Filed { table, day });
    Ok(())
}

/// The first and the last day, or period, that a claiming statement has read.
fn edges(rows: &[PgRow]) -> sqlx::Result<Span> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (floor, last) = (row.try_get("floor")?, row.try_get("last")?);
    Ok(Day::from_number(floor)..=Day::from_number(last))
}

fn unreadable(error: sqlx::Error) -> Failed {
    Failed::Otherwise(StoreError::rolled_back(error))
}

pub(crate) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| code(error) == "55P03")
}
