//! The batch twin: the fast consumer that one would write by hand for this one case. Up to 500
//! messages a transaction, as many as wait; 4 transactions in flight; one statement claims, one
//! writes the ledger; offsets stored in order, after the commit.
//!
//! It has nothing for an event that fails: one bad payload or one broken constraint ends it.

use std::collections::HashSet;
use std::error::Error;

use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use oneffect_benches::contender::{Progress, Task};
use oneffect_benches::ledger;
use oneffect_benches::workload::Transfer;
use rdkafka::Message;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use sqlx::postgres::{PgPool, PgPoolOptions};
use uuid::Uuid;

const BATCH: usize = 500;
const IN_FLIGHT: usize = 4;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    task: Task,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Options { task } = Options::parse();
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(IN_FLIGHT)?)
        .connect(&task.cluster.database_url)
        .await?;
    sqlx::query(ledger::CREATE).execute(&pool).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS inbox (event_id uuid PRIMARY KEY)")
        .execute(&pool)
        .await?;
    let consumer: StreamConsumer = task.cluster.kafka(&task.group).create()?;
    consumer.subscribe(&[&task.topic])?;

    let progress = Progress::new(task.expect);
    let mut handled = consumer
        .stream()
        .inspect(|_| progress.delivered())
        .ready_chunks(BATCH) // what waits, and never a wait for more
        .map(|batch| handle(&pool, batch))
        .buffered(IN_FLIGHT); // answers in the order of the batches
    while let Some(batch) = handled.try_next().await? {
        for message in &batch {
            consumer.store_offset_from_message(message)?;
        }
        if progress.settled(u64::try_from(batch.len())?) {
            break;
        }
    }
    consumer.commit_consumer_state(CommitMode::Sync)?;
    Ok(())
}

async fn handle<'m>(
    pool: &PgPool,
    batch: Vec<Result<BorrowedMessage<'m>, KafkaError>>,
) -> Result<Vec<BorrowedMessage<'m>>, Box<dyn Error>> {
    let batch = batch.into_iter().collect::<Result<Vec<_>, _>>()?;
    let transfers = batch
        .iter()
        .map(|message| serde_json::from_slice(message.payload().unwrap_or_default()))
        .collect::<Result<Vec<Transfer>, _>>()?;
    // Sorted, so that two batches that share events wait for each other, and never both ways.
    let mut ids: Vec<Uuid> = transfers.iter().map(|transfer| transfer.event_id).collect();
    ids.sort_unstable();

    let mut tx = pool.begin().await?;
    let claimed: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO inbox (event_id) SELECT unnest($1::uuid[])
         ON CONFLICT DO NOTHING RETURNING event_id",
    )
    .bind(&ids)
    .fetch_all(&mut *tx)
    .await?;
    let mut fresh: HashSet<Uuid> = claimed.into_iter().collect();
    let mut entries = Entries::with_capacity(2 * fresh.len());
    for transfer in &transfers {
        // Of an event that is twice in this batch, the first delivery takes effect.
        if fresh.remove(&transfer.event_id) {
            entries.push(transfer, &transfer.from_account, -transfer.amount_minor);
            entries.push(transfer, &transfer.to_account, transfer.amount_minor);
        }
    }
    if !entries.event_id.is_empty() {
        sqlx::query(
            "INSERT INTO entry (event_id, account, amount_minor, currency)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[])",
        )
        .bind(&entries.event_id)
        .bind(&entries.account)
        .bind(&entries.amount_minor)
        .bind(&entries.currency)
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(batch)
}

/// Rows of the ledger, a column each.
struct Entries<'t> {
    event_id: Vec<Uuid>,
    account: Vec<&'t str>,
    amount_minor: Vec<i64>,
    currency: Vec<&'t str>,
}

impl<'t> Entries<'t> {
    fn with_capacity(rows: usize) -> Self {
        Self {
            event_id: Vec::with_capacity(rows),
            account: Vec::with_capacity(rows),
            amount_minor: Vec::with_capacity(rows),
            currency: Vec::with_capacity(rows),
        }
    }

    fn push(&mut self, transfer: &'t Transfer, account: &'t str, amount_minor: i64) {
        self.event_id.push(transfer.event_id);
        self.account.push(account);
        self.amount_minor.push(amount_minor);
        self.currency.push(&transfer.currency);
    }
}
