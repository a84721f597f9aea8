//! Units that get in one another's way, at every isolation level.

use oneffect::testing::{MemoryQueue, Message};
use oneffect::{Consumer, Context, Handler, HandlerResult, Isolation, Postgres, done};

use super::Running;
use super::databases::{Database, OnPostgres};
use super::handler::{Event, Probe};
use crate::support::until;

/// Every event changes the same row, and reads what it is based on first.
struct Counter;

impl Handler<Postgres> for Counter {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, event: Event) -> HandlerResult {
        let db = cx.db().await?;
        let now: i64 = sqlx::query_scalar("SELECT n FROM counter")
            .fetch_one(&mut *db)
            .await?;
        sqlx::query("UPDATE counter SET n = n + 1")
            .execute(&mut *db)
            .await?;
        sqlx::query("INSERT INTO effect (event_id) VALUES ($1)")
            .bind(event.event_id)
            .execute(&mut *db)
            .await?;
        assert!(now >= 0);
        done()
    }
}

/// Field case 106, and the 40001 of the stricter levels: nobody is charged, and all take effect once.
async fn contention_is_nobodys_fault(isolation: Isolation) {
    let Some(database) = OnPostgres::fresh().await else {
        return;
    };
    let database = database.isolated(isolation);
    sqlx::raw_sql("CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0)")
        .execute(&database.pool)
        .await
        .unwrap();
    let queue = MemoryQueue::standard("q");
    for n in 0..100 {
        for _ in 0..2 {
            queue.send(Message::new(
                serde_json::to_vec(&Event::new(format!("e{n}"))).unwrap(),
            ));
        }
    }
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let consumer =
            Consumer::new("counter", queue.source(), database.store(), Counter).workers(3);
        consumers.push(Running::run(consumer, Probe::default()));
    }
    until("the queue is empty", async || queue.remaining() == 0).await;
    for consumer in consumers {
        let stats = consumer.stop().await;
        assert_eq!(
            (stats.attempts_charged, stats.dead_lettered),
            (0, 0),
            "{stats:?}"
        );
    }
    let effects = database.effects().await;
    assert_eq!((effects.len(), effects.values().max()), (100, Some(&1)));
    let counted: i64 = sqlx::query_scalar("SELECT n FROM counter")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!(counted, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_is_nobodys_fault_at_read_committed() {
    contention_is_nobodys_fault(Isolation::ReadCommitted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_is_nobodys_fault_at_repeatable_read() {
    contention_is_nobodys_fault(Isolation::RepeatableRead).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_is_nobodys_fault_at_serializable() {
    contention_is_nobodys_fault(Isolation::Serializable).await;
}
