//! The window, the floor, the open period, and what is below: one round of maintenance.

use std::time::Duration;

use oneffect_core::{Day, DeadLetters as _, Maintained, StoreError};
use sqlx::Row;
use tokio::time::{sleep, timeout};

use crate::blame::misplaced;
use crate::claim::is_lock_timeout;
use crate::config::check_window;
use crate::partitions::create_missing;
use crate::store::Postgres;
use crate::transaction::{Alone, Transaction, heard};

/// How often a round tries to move the floor while units run. Each try holds new units back for 50 ms at
/// most, and a try succeeds when all that run end within that time.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(150);

/// How many days are compared in a round at most.
const AUDITS: u32 = 10;
/// How long comparing two days may take; the server allows less.
const AUDIT_TIME: Duration = Duration::from_secs(11 * 60);

impl Postgres {
    /// How many days before today the inbox remembers. It belongs to the schema, and is the same for all
    /// of its consumers.
    ///
    /// # Errors
    /// When the database cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn window_days(&self) -> Result<u32, StoreError> {
        Ok(self.read_due().await?.window_days)
    }

    /// Sets how many days before today the inbox remembers, for all consumers of the schema. With fewer,
    /// the next rounds of maintenance forget what is older; what more bring takes as long to be there as
    /// they are, since nothing that is forgotten comes back.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for none, and for more than ten years.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the one or the other.
    pub async fn set_window_days(&self, days: u32) -> Result<(), StoreError> {
        check_window(days)?;
        let mut transaction = self.begin_plain().await?;
        heard!(
            transaction,
            "the window",
            sqlx::query("UPDATE inbox_floor SET window_days = $1")
                .bind(i32::try_from(days).unwrap_or(i32::MAX))
                .persistent(false)
                .execute(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await
    }

    /// One round. Partitions come first, since claims would have to create what is missing; the floor is
    /// committed before anything is dropped; what may take long comes last.
    pub(crate) async fn maintain_days(&self) -> Result<Maintained, StoreError> {
        let mut maintained = Maintained::default();
        maintained.created = self.create_partitions().await?;
        maintained.postponed = !self.move_floor().await?;
        let due = self.read_due().await?;
        maintained.floor = Some(due.floor);
        maintained.window_days = Some(due.window_days);
        self.drop_forgotten(&mut maintained).await?;
        self.sweep_retries().await?;
        self.audit(&mut maintained).await?;
        Ok(maintained)
    }

    async fn create_partitions(&self) -> Result<u64, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let created = heard!(
            transaction,
            "new partitions",
            create_missing(&mut transaction, &[])
        )
        .map_err(misplaced)?;
        transaction.commit().await?;
        Ok(created)
    }

    /// Whether the floor and the open period are where they have to be.
    async fn move_floor(&self) -> Result<bool, StoreError> {
        for last in (0..TRIES).map(|n| n + 1 == TRIES) {
            let due = self.read_due().await?;
            if !due.must_move {
                return Ok(true);
            }
            let moved = Alone::run(self.connections(), self.move_floor_sql()).await?;
            match moved {
                Ok(()) => return Ok(true),
                Err(error) if is_lock_timeout(&error) => {
                    if last && due.days_overdue > 1 {
                        tracing::warn!(
                            days_overdue = due.days_overdue,
                            "the floor of the inbox cannot be raised: some unit of work always runs, and \
                             what should be forgotten is kept"
                        );
                    }
                }
                Err(error) => return Err(misplaced(error)),
            }
            if !last {
                sleep(BETWEEN_TRIES).await;
            }
        }
        Ok(false)
    }

    /// With the schema to find the tables in, where the session may be another client's.
    fn move_floor_sql(&self) -> String {
        let begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
        let (schema, rest) = (
            self.config().search_path(),
            include_str!("queries/move_floor.sql"),
        );
        format!("{begin}; {schema};\n{rest}")
    }

    async fn read_due(&self) -> Result<Due, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let row = heard!(
            transaction,
            "the floor",
            sqlx::query(include_str!("queries/due.sql"))
                .persistent(false)
                .fetch_one(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.rollback().await;
        let due = || -> sqlx::Result<Due> {
            let window_days: i32 = row.try_get("window_days")?;
            Ok(Due {
                floor: Day::from_number(row.try_get("floor")?),
                window_days: window_days.try_into().unwrap_or_default(),
                must_move: row.try_get("must_move")?,
                days_overdue: row.try_get("days_overdue")?,
            })
        };
        due().map_err(StoreError::rolled_back)
    }

    /// Looks for keys under two days, one pair of days after the other. What is found is told once.
    async fn audit(&self, maintained: &mut Maintained) -> Result<(), StoreError> {
        for _ in 0..AUDITS {
            let mut transaction = self.begin_plain().await?;
            // It reads two days whole.
            let audited = timeout(AUDIT_TIME, audit_next(&mut transaction)).await;
            let audited = transaction.heard("the audit", audited)?;
            let Some(found) = audited.map_err(misplaced)? else {
                transaction.rollback().await;
                return Ok(());
            };
            transaction.commit().await?;
            maintained.doubled += found;
        }
        maintained.postponed = true;
        Ok(())
    }
}

/// Compares the next day with the one after it. How many keys it is the first to find; `None` when it is
/// too early.
async fn audit_next(transaction: &mut Transaction) -> sqlx::Result<Option<u64>> {
    let day: Option<i32> = sqlx::query_scalar(include_str!("queries/next_audit.sql"))
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await?;
    let Some(day) = day else {
        return Ok(None);
    };
    sqlx::raw_sql("SET LOCAL statement_timeout = '10min'")
        .execute(&mut **transaction)
        .await?;
    let (found, examples): (i64, Option<Vec<String>>) =
        sqlx::query_as(include_str!("queries/audit.sql"))
            .bind(day)
            .persistent(false)
            .fetch_one(&mut **transaction)
            .await?;
    // Last, since whoever moves the floor waits for this row while it holds everybody back.
    let noted = sqlx::query(include_str!("queries/audited.sql"))
        .bind(day)
        .persistent(false)
        .execute(&mut **transaction)
        .await?;
    if found == 0 || noted.rows_affected() == 0 {
        return Ok(Some(0));
    }
    tracing::error!(
        keys = found,
        day = %Day::from_number(day),
        examples = ?examples.unwrap_or_default(),
        "event keys stand under two days: the producer does not repeat the time of an event, whose \
         effect may have happened twice; take `producer_repeats_time` back"
    );
    Ok(Some(found.unsigned_abs()))
}

struct Due {
    floor: Day,
    window_days: u32,
    must_move: bool,
    days_overdue: i32,
}
