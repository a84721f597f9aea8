//! How much of their pace other keys keep while fifty processes have one key in common.
//!
//! Needs PostgreSQL in `DATABASE_URL`, makes a schema of its own there and drops it again:
//!
//! ```text
//! eval "$(scripts/services env postgres)"
//! cargo run --release -p oneffect-benches --bin storm
//! ```
//!
//! Fifty consumers share a pool of ten connections. Every one has deliveries of its own events, and,
//! in every other round, as many of the storm's, whose handler holds its key until the others are
//! through. The rate is that of the others.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use oneffect_core::testing::{MemoryQueue, Message};
use oneffect_core::{Consumer, Context, Handler, HandlerResult, done};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const PROCESSES: u32 = 50;
const OTHERS: u32 = 1000;
const ROUNDS: usize = 5;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DATABASE_URL").map_err(
        |_| "DATABASE_URL is not set: eval \"$(scripts/services env postgres)\", or name a server",
    )?;
    let schema = format!("storm_{}", std::process::id());
    let config = PostgresConfig::default().schema(&*schema);
    let owner = Postgres::connect_with(&url, config.clone()).await?;
    owner.migrate().await?;
    sqlx::raw_sql("CREATE TABLE effect (event_id text NOT NULL)")
        .execute(owner.pool())
        .await?;
    let result = rounds(&owner, config).await;
    let drop = sqlx::AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
    sqlx::raw_sql(drop).execute(owner.pool()).await?;
    result
}

async fn rounds(owner: &Postgres, config: PostgresConfig) -> Result<(), Error> {
    let options = (*owner.pool().connect_options()).clone();
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect_with(options)
        .await?;
    let mut ratios = Vec::new();
    // The first round finds empty tables, and does not count.
    for round in 0..=ROUNDS {
        let mut rates = [0.0; 2];
        for (place, storm) in [false, true].into_iter().enumerate() {
            let name = format!("round-{round}-{storm}");
            rates[place] = run(&name, &pool, config.clone(), storm).await?;
        }
        if round == 0 {
            sqlx::raw_sql("ANALYZE").execute(&pool).await?;
            continue;
        }
        let [calm, storm] = rates;
        println!(
            "round {round}: {calm:.0} a second without the storm, {storm:.0} beside it: {:.2}",
            storm / calm
        );
        ratios.push(storm / calm);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "other keys keep {:.2} of their pace (median; {:.2} to {:.2})",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1]
    );
    Ok(())
}

/// One round: the rate of the other keys.
async fn run(name: &str, pool: &PgPool, config: PostgresConfig, storm: bool) -> Result<f64, Error> {
    let handler = Patient::default();
    let stop = CancellationToken::new();
    let mut processes = JoinSet::new();
    let begun = Instant::now();
    for process in 0..PROCESSES {
        let queue = MemoryQueue::standard("q");
        for n in 0..OTHERS {
            if storm {
                queue.send(message("storm"));
            }
            queue.send(message(&format!("{name}-{process}-{n}")));
        }
        let postgres = Postgres::from_pool_with(pool.clone(), config.clone())?;
        let consumer = Consumer::new(name, queue.source(), postgres, handler.clone());
        let stop = stop.clone();
        processes.spawn(async move { consumer.run(stop.cancelled_owned()).await });
    }
    handler.wait_for_others().await;
    let rate = f64::from(PROCESSES * OTHERS) / begun.elapsed().as_secs_f64();
    stop.cancel();
    while let Some(ended) = processes.join_next().await {
        ended??;
    }
    let (twice, all): (i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE n > 1), count(*)
         FROM (SELECT count(*) AS n FROM effect WHERE event_id LIKE $1 || '%' GROUP BY event_id) AS e",
    )
    .bind(name)
    .fetch_one(pool)
    .await?;
    if (twice, all) == (0, i64::from(PROCESSES * OTHERS)) {
        Ok(rate)
    } else {
        Err(format!("{all} events took effect, {twice} of them more than once").into())
    }
}

fn message(id: &str) -> Message {
    Message::new(format!("{{\"event_id\":\"{id}\"}}"))
}

#[derive(serde::Deserialize)]
struct Event {
    event_id: String,
}

#[derive(Clone, Default)]
struct Patient {
    others: Arc<AtomicU32>,
    all_others: Arc<Notify>,
}

impl Patient {
    async fn wait_for_others(&self) {
        loop {
            let all = self.all_others.notified();
            if self.others.load(Ordering::SeqCst) >= PROCESSES * OTHERS {
                return;
            }
            all.await;
        }
    }
}

impl Handler<Postgres> for Patient {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, event: Event) -> HandlerResult {
        if event.event_id == "storm" {
            self.wait_for_others().await;
            return done();
        }
        sqlx::query("INSERT INTO effect (event_id) VALUES ($1)")
            .bind(&event.event_id)
            .execute(cx.db().await?)
            .await?;
        if self.others.fetch_add(1, Ordering::SeqCst) + 1 >= PROCESSES * OTHERS {
            self.all_others.notify_waiters();
        }
        done()
    }
}
