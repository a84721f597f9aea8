//! The naive twin: a transaction a message, as most consumers are written. The inbox row, the two
//! ledger rows and nothing else; 32 messages in flight; offsets stored in order, after the commit.

use std::error::Error;

use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use oneffect_benches::contender::{Progress, Task};
use oneffect_benches::ledger;
use oneffect_benches::workload::Transfer;
use rdkafka::Message;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::BorrowedMessage;
use sqlx::postgres::{PgPool, PgPoolOptions};

const IN_FLIGHT: usize = 32;

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
        .map(|message| handle(&pool, message))
        .buffered(IN_FLIGHT); // answers in the order of the messages
    while let Some(message) = handled.try_next().await? {
        consumer.store_offset_from_message(&message)?;
        if progress.settled(1) {
            break;
        }
    }
    consumer.commit_consumer_state(CommitMode::Sync)?;
    Ok(())
}

async fn handle<'m>(
    pool: &PgPool,
    message: Result<BorrowedMessage<'m>, rdkafka::error::KafkaError>,
) -> Result<BorrowedMessage<'m>, Box<dyn Error>> {
    let message = message?;
    let transfer: Transfer = serde_json::from_slice(message.payload().unwrap_or_default())?;

    let mut tx = pool.begin().await?;
    let claimed = sqlx::query("INSERT INTO inbox (event_id) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(transfer.event_id)
        .execute(&mut *tx)
        .await?;
    if claimed.rows_affected() == 1 {
        sqlx::query(ledger::ENTER)
            .bind(transfer.event_id)
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(message)
}
