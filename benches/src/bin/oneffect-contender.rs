//! oneffect's own contenders: the defaults of everything, and one of these handlers.

use std::collections::HashSet;
use std::error::Error;
use std::os::unix::process::parent_id;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use oneffect_benches::contender::{Progress, Task};
use oneffect_benches::ledger;
use oneffect_benches::workload::Transfer;
use oneffect_core::{
    BatchContext, BatchHandler, BatchResult, Consumer, ConsumerConfig, Context, Failure, Fresh,
    Handler, HandlerResult, Lanes, StatsHandle, all_done, done,
};
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
    /// What is handled in order.
    #[arg(long, value_enum, default_value_t = Order::Partition)]
    lanes: Order,
    /// The share of the events whose handler fails the first time it sees them, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    fail: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Partition,
    Key,
    Unordered,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A statement an event.
    Plain,
    /// Two rows an event, staged: a statement a batch.
    Staged,
    /// Two rows an event, by a statement a batch that the handler writes itself.
    Batch,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let store = Postgres::connect(&options.task.cluster.database_url).await?;
    store.migrate().await?;
    sqlx::query(ledger::CREATE).execute(store.pool()).await?;
    let mut config = ConsumerConfig::default();
    config.workers = options.workers.unwrap_or(config.workers);
    config.lanes = match options.lanes {
        Order::Partition => Lanes::Partition,
        Order::Key => Lanes::Key,
        Order::Unordered => Lanes::Unordered,
    };
    let Task {
        cluster,
        topic,
        group,
        expect,
    } = options.task;
    let kafka = Kafka::new(cluster.brokers, group, [topic]);
    let failing = Failing::new(options.fail);
    match options.handler {
        Kind::Plain => {
            let consumer = Consumer::new("ledger", kafka, store, Plain(failing)).config(config);
            let stats = consumer.stats();
            consumer.run(all_settled(stats, expect)).await?;
        }
        Kind::Staged => {
            let consumer = Consumer::new("ledger", kafka, store, Staged(failing)).config(config);
            let stats = consumer.stats();
            consumer.run(all_settled(stats, expect)).await?;
        }
        Kind::Batch => {
            let consumer = Consumer::batches("ledger", kafka, store, Batch).config(config);
            let stats = consumer.stats();
            consumer.run(all_settled(stats, expect)).await?;
        }
    }
    Ok(())
}

/// Which events fail, once each.
struct Failing {
    share: f64,
    seen: Mutex<HashSet<Uuid>>,
}

impl Failing {
    fn new(share: f64) -> Self {
        Self {
            share,
            seen: Mutex::default(),
        }
    }

    #[allow(clippy::cast_precision_loss)] // a share need not be exact
    fn fail(&self, id: Uuid) -> Result<(), Failure> {
        let (_, random) = id.as_u64_pair();
        if (random << 2) as f64 / u64::MAX as f64 >= self.share {
            return Ok(());
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.insert(id) {
            return Err(Failure::new("not the first time"));
        }
        Ok(())
    }
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

struct Plain(Failing);

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
        self.0.fail(transfer.event_id)?;
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

struct Staged(Failing);

impl Handler<Postgres> for Staged {
    type Event = Transfer;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, transfer: Transfer) -> HandlerResult {
        self.0.fail(transfer.event_id)?;
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

/// The batch twin's statement.
struct Batch;

impl BatchHandler<Postgres> for Batch {
    type Event = Transfer;

    async fn handle(
        &self,
        cx: &mut BatchContext<'_, Postgres>,
        transfers: Vec<Fresh<'_, Transfer>>,
    ) -> BatchResult {
        let rows = 2 * transfers.len();
        let mut ids = Vec::with_capacity(rows);
        let mut accounts = Vec::with_capacity(rows);
        let mut amounts = Vec::with_capacity(rows);
        let mut currencies = Vec::with_capacity(rows);
        for transfer in &transfers {
            ids.extend([transfer.event_id; 2]);
            accounts.extend([&*transfer.from_account, &*transfer.to_account]);
            amounts.extend([-transfer.amount_minor, transfer.amount_minor]);
            currencies.extend([&*transfer.currency; 2]);
        }
        sqlx::query(
            "INSERT INTO entry (event_id, account, amount_minor, currency)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[])",
        )
        .bind(ids)
        .bind(accounts)
        .bind(amounts)
        .bind(currencies)
        .execute(cx.db().await?)
        .await?;
        all_done()
    }
}
