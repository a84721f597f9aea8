//! oneffect's own contenders: the defaults of everything, and one of these handlers.

use std::error::Error;
use std::os::unix::process::parent_id;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use oneffect_benches::contender::{Progress, Task};
use oneffect_benches::ledger;
use oneffect_benches::workload::Transfer;
use oneffect_core::{Consumer, Context, Handler, HandlerResult, StatsHandle, done};
use oneffect_kafka::Kafka;
use oneffect_postgres::Postgres;
use uuid::Uuid;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    task: Task,
    #[arg(long, value_enum, default_value_t = Kind::Plain)]
    handler: Kind,
    /// Units of work at once [default: oneffect's own].
    #[arg(long)]
    workers: Option<usize>,
}

// The place for contenders to come: `Batch` is one more kind here, a handler below, and an entry in
// `bench/contenders.rs`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A statement an event.
    Plain,
    /// Two rows an event, staged: a statement a batch.
    Staged,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let store = Postgres::connect(&options.task.cluster.database_url).await?;
    store.migrate().await?;
    sqlx::query(ledger::CREATE).execute(store.pool()).await?;
    match options.handler {
        Kind::Plain => run(options, store, Plain).await,
        Kind::Staged => run(options, store, Staged).await,
    }
}

async fn run(
    options: Options,
    store: Postgres,
    handler: impl Handler<Postgres>,
) -> Result<(), Box<dyn Error>> {
    let Task {
        cluster,
        topic,
        group,
        expect,
    } = options.task;
    let kafka = Kafka::new(cluster.brokers, group, [topic]);
    let mut consumer = Consumer::new("ledger", kafka, store, handler);
    if let Some(workers) = options.workers {
        consumer = consumer.workers(workers);
    }
    let stats = consumer.stats();
    consumer.run(all_settled(stats, expect)).await?;
    Ok(())
}

/// Looks at the numbers every millisecond, which is as exactly as a run can be timed by it.
async fn all_settled(stats: StatsHandle, expect: u64) {
    let progress = Progress::new(expect);
    let parent = parent_id();
    let mut settled = 0;
    // Without its bench nobody would end it: to the consumer, services that are gone are an outage.
    while parent == parent_id() {
        let now = stats.snapshot();
        if now.deliveries > 0 {
            progress.delivered();
        }
        if progress.settled(now.settled() - settled) {
            return;
        }
        settled = now.settled();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

struct Plain;

impl Handler<Postgres> for Plain {
    type Event = Transfer;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, transfer: Transfer) -> HandlerResult {
        sqlx::query(ledger::ENTER)
            .bind(transfer.event_id)
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .execute(cx.db().await?)
            .await?;
        done()
    }
}

/// Half of a transfer.
struct Entry {
    event_id: Uuid,
    account: String,
    amount_minor: i64,
    currency: String,
}

oneffect_postgres::staged_row!(Entry in "entry" { event_id, account, amount_minor, currency });

struct Staged;

impl Handler<Postgres> for Staged {
    type Event = Transfer;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, transfer: Transfer) -> HandlerResult {
        cx.stage(Entry {
            event_id: transfer.event_id,
            account: transfer.from_account,
            amount_minor: -transfer.amount_minor,
            currency: transfer.currency.clone(),
        });
        cx.stage(Entry {
            event_id: transfer.event_id,
            account: transfer.to_account,
            amount_minor: transfer.amount_minor,
            currency: transfer.currency,
        });
        done()
    }
}
