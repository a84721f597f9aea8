//! How long claims are held up while a day of the inbox is dropped, by maintenance and by a plain DROP.
//!
//! Needs PostgreSQL in `DATABASE_URL`, makes a schema of its own there and drops it again:
//!
//! ```text
//! eval "$(scripts/services env postgres)"
//! cargo run --release -p oneffect-benches --bin drop-a-day
//! ```
//!
//! Four writers claim and commit 100 new events at a time, in a loop. Another transaction has read the
//! inbox, and stays open for three seconds. One second after it began, a day with 200,000 rows is
//! dropped. The figure is the longest time that any writer's unit took, from its begin to its commit;
//! beside it that of the same seconds in which nothing is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oneffect_core::{
    Begin, Claim, ConsumerId, Day, DaysFrom, EventId, EventKey, Store, Unit, Verdict,
};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

const WRITERS: usize = 4;
const BATCH: usize = 100;
const ROWS: i32 = 200_000;
const ROUNDS: i32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(3);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What happens in the middle of a run.
#[derive(Clone, Copy, Debug)]
enum Drop {
    Nothing,
    Maintenance,
    Plain,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DATABASE_URL").map_err(
        |_| "DATABASE_URL is not set: eval \"$(scripts/services env postgres)\", or name a server",
    )?;
    let schema = format!("drop_a_day_{}", std::process::id());
    let config = PostgresConfig::default()
        .schema(&*schema)
        .max_connections(20)
        .window_days(30);
    let store = Postgres::connect_with(&url, config).await?;
    store.migrate().await?;
    let result = rounds(&store).await;
    let drop = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
    sqlx::raw_sql(drop).execute(store.pool()).await?;
    result
}

#[allow(clippy::print_stdout, reason = "a program that prints its figures")]
async fn rounds(store: &Postgres) -> Result<(), Error> {
    let consumer = store.open("writers", DaysFrom::Id).await?;
    for round in 1..=ROUNDS {
        for what in [Drop::Nothing, Drop::Maintenance, Drop::Plain] {
            let (longest, units) = run(store, consumer, what).await?;
            println!(
                "round {round}, {what:?}: no unit took longer than {} ms ({units} units)",
                longest.as_millis()
            );
        }
    }
    Ok(())
}

async fn run(
    store: &Postgres,
    consumer: ConsumerId,
    what: Drop,
) -> Result<(Duration, usize), Error> {
    let old = fill_oldest_day(store, consumer).await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (store, over) = (store.clone(), Arc::clone(&over));
        writers.spawn(async move { write(&store, consumer, &over).await });
    }
    let mut reader = store.pool().begin().await?;
    sqlx::raw_sql("SELECT count(*) FROM inbox WHERE event_id = ''")
        .execute(&mut *reader)
        .await?;
    let began = Instant::now();
    sleep(Duration::from_secs(1)).await;
    let mut dropping = JoinSet::new();
    let other = store.clone();
    dropping.spawn(async move {
        match what {
            Drop::Nothing => Ok(()),
            Drop::Maintenance => {
                let days = other.window_days().await?;
                other.set_window_days(days - 1).await?;
                let dropped = other.maintain().await?.dropped;
                assert_eq!(dropped, 1);
                Ok(())
            }
            Drop::Plain => {
                let sql = AssertSqlSafe(format!("DROP TABLE {old}"));
                let dropped = sqlx::raw_sql(sql).execute(other.pool()).await;
                dropped.map(drop).map_err(Error::from)
            }
        }
    });
    sleep(OPEN_FOR.saturating_sub(began.elapsed())).await;
    reader.rollback().await?;
    while let Some(dropped) = dropping.join_next().await {
        dropped??;
    }
    sleep(Duration::from_secs(1)).await;
    over.store(true, Ordering::Relaxed);
    let (mut longest, mut units) = (Duration::ZERO, 0);
    while let Some(written) = writers.join_next().await {
        let (slowest, n) = written??;
        longest = longest.max(slowest);
        units += n;
    }
    Ok((longest, units))
}

async fn write(
    store: &Postgres,
    consumer: ConsumerId,
    over: &AtomicBool,
) -> Result<(Duration, usize), Error> {
    let (mut longest, mut units) = (Duration::ZERO, 0);
    while !over.load(Ordering::Relaxed) {
        let claims: Vec<Claim> = (0..BATCH)
            .map(|_| {
                let id = EventId::new(Uuid::now_v7().to_string())?;
                Ok(Claim::new(EventKey::new(id)))
            })
            .collect::<Result<_, Error>>()?;
        let started = Instant::now();
        let mut options = Begin::new(consumer);
        // Nobody gives up before the stall is over.
        options.claim_wait = Duration::from_secs(30);
        let mut unit = store.begin(options).await?;
        let verdicts = unit.claim(&claims).await?;
        if !verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Fresh(_)))
        {
            return Err("an event that is new was not fresh".into());
        }
        unit.commit().await?;
        longest = longest.max(started.elapsed());
        units += 1;
    }
    Ok((longest, units))
}

/// Fills the partition of the first day that is remembered; its name.
async fn fill_oldest_day(store: &Postgres, consumer: ConsumerId) -> Result<String, Error> {
    let (name, day): (String, i32) = sqlx::query_as(
        "SELECT to_char(floor, '\"inbox_\"YYYYMMDD'), floor - date '1970-01-01' FROM inbox_floor",
    )
    .fetch_one(store.pool())
    .await?;
    // The claim creates it.
    let first = Claim::new(EventKey::new(EventId::new("first")?));
    let mut unit = store.begin(Begin::new(consumer)).await?;
    unit.claim(&[first.of_day(Some(Day::from_number(day)))])
        .await?;
    unit.commit().await?;
    sqlx::query(
        "INSERT INTO inbox (consumer, event_id, tenant, day)
         SELECT $1, '\\x01'::bytea || uuid_send(gen_random_uuid()), '', date '1970-01-01' + $2
         FROM generate_series(1, $3)",
    )
    .bind(consumer.0)
    .bind(day)
    .bind(ROWS)
    .execute(store.pool())
    .await?;
    Ok(name)
}
