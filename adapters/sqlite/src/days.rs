//! The window, the floor, and what is below it.

use std::time::{Duration, SystemTime};

use oneffect_core::{Day, Maintained, StoreError};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use tokio::time::{Instant, sleep};

use crate::blame::misplaced;
use crate::store::Sqlite;

/// How many rows are deleted in one transaction: a writer waits for no more than that.
const STEP: u32 = 500;

/// How many steps a round makes at most. What is left waits for the next.
const STEPS: u32 = 200;

/// The least time between two steps that is anybody's.
const PAUSE: Duration = Duration::from_millis(10);

/// What decides whether an event's day is remembered, and believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) floor: Day,
    pub(crate) window_days: u32,
    pub(crate) today: Day,
}

pub(crate) async fn limits(connection: &mut SqliteConnection) -> sqlx::Result<Limits> {
    let row = sqlx::query(include_str!("queries/limits.sql"))
        .fetch_one(connection)
        .await?;
    Ok(Limits {
        floor: Day::from_number(row.try_get("floor")?),
        window_days: row.try_get("window_days")?,
        today: Day::from_number(row.try_get("today")?),
    })
}

fn read(row: &SqliteRow) -> sqlx::Result<Maintained> {
    let mut maintained = Maintained::default();
    maintained.floor = Some(Day::from_number(row.try_get("floor")?));
    maintained.window_days = Some(row.try_get("window_days")?);
    let now = Duration::try_from_secs_f64(row.try_get("now")?);
    maintained.now = now.ok().map(|now| SystemTime::UNIX_EPOCH + now);
    Ok(maintained)
}

impl Sqlite {
    /// How many days before today the inbox remembers. It belongs to the database, and is set for
    /// all of its consumers.
    ///
    /// # Errors
    /// When the database cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn window_days(&self) -> Result<u32, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let limits = limits(&mut transaction).await.map_err(misplaced)?;
        transaction.rollback().await;
        Ok(limits.window_days)
    }

    /// Sets how many days before today the inbox remembers; a new database has 8. Fewer forget what
    /// is older, with the next round of maintenance; more take as long to be there as they are.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for none, and for more than ten years.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the one or the other.
    pub async fn set_window_days(&self, days: u32) -> Result<(), StoreError> {
        if !(1..=3650).contains(&days) {
            return Err(StoreError::misconfigured(format!(
                "the window is to be {days} days, and can be 1 to 3650"
            )));
        }
        let mut transaction = self.begin_plain().await?;
        sqlx::query("UPDATE inbox_floor SET window_days = ?1")
            .bind(days)
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }

    /// The floor is committed first. Then rows go a few at a time, and between two steps any other
    /// writer gets its turn.
    pub(crate) async fn maintain_days(&self) -> Result<Maintained, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let row = sqlx::query(include_str!("queries/raise_floor.sql"))
            .fetch_one(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        let mut maintained = read(&row).map_err(StoreError::rolled_back)?;
        let floor = maintained.floor.map_or(i32::MIN, Day::number);
        for step in 0..STEPS {
            let begun = Instant::now();
            let deleted = self.forget_some(floor).await?;
            maintained.dropped += deleted;
            maintained.postponed = deleted == u64::from(STEP);
            if !maintained.postponed || step + 1 == STEPS {
                break;
            }
            // Other processes try now and then to become the writer, and would find it taken for
            // as long as this goes on without a pause.
            sleep(begun.elapsed().max(PAUSE)).await;
        }
        Ok(maintained)
    }

    async fn forget_some(&self, floor: i32) -> Result<u64, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let deleted = sqlx::query(include_str!("queries/forget_days.sql"))
            .bind(floor)
            .bind(STEP)
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        Ok(deleted.rows_affected())
    }
}
