//! Very many deliveries of one event at once, from as many processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneffect::testing::{MemoryQueue, Message};
use oneffect::{Consumer, Context, Handler, HandlerResult, Postgres, PostgresConfig, done};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;

use super::Running;
use super::databases::{Database, OnPostgres};
use super::handler::{Event, Probe};
use crate::support::until;

const PROCESSES: usize = 50;
const OTHERS: usize = 20;

/// Ends the storm's own event only when all others have taken effect: if the storm took all
/// connections, none of them ever would.
#[derive(Clone, Default)]
struct Patient {
    probe: Probe,
    others: Arc<AtomicUsize>,
    all_others: Arc<Notify>,
}

impl Handler<Postgres> for Patient {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, event: Event) -> HandlerResult {
        self.probe.count(&event.event_id);
        sqlx::query("INSERT INTO effect (event_id) VALUES ($1)")
            .bind(&event.event_id)
            .execute(cx.db().await?)
            .await?;
        if event.event_id == "storm" {
            let all = self.all_others.notified();
            if self.others.load(Ordering::SeqCst) < PROCESSES * OTHERS {
                all.await;
            }
        } else if self.others.fetch_add(1, Ordering::SeqCst) + 1 >= PROCESSES * OTHERS {
            self.all_others.notify_waiters();
        }
        done()
    }
}

fn message(id: &str) -> Message {
    Message::new(serde_json::to_vec(&Event::new(id)).unwrap())
}

/// Field cases 055 and 174, across processes: fifty of them that share a pool of ten, as they would
/// share a pooler's, and each has a hundred deliveries of one event among its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_on_one_key_from_fifty_processes_leaves_connections_for_other_keys() {
    let Some(database) = OnPostgres::fresh().await else {
        return;
    };
    let options = (*database.pool.connect_options()).clone();
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_mins(1))
        .connect_with(options)
        .await
        .unwrap();
    let handler = Patient::default();
    let mut processes = Vec::new();
    for process in 0..PROCESSES {
        let queue = MemoryQueue::standard("q");
        for n in 0..OTHERS {
            for _ in 0..5 {
                queue.send(message("storm"));
            }
            queue.send(message(&format!("e{process}-{n}")));
        }
        let store = Postgres::from_pool_with(pool.clone(), PostgresConfig::default()).unwrap();
        let consumer = Consumer::new("storm", queue.source(), store, handler.clone());
        processes.push((queue, Running::run(consumer, handler.probe.clone())));
    }

    for (queue, _) in &processes {
        until("the queue is empty", async || queue.remaining() == 0).await;
    }

    for (_, process) in processes {
        let stats = process.stop().await;
        assert_eq!((stats.attempts_charged, stats.dead_lettered), (0, 0));
    }
    let effects = database.effects().await;
    assert_eq!(effects.len(), PROCESSES * OTHERS + 1);
    assert_eq!(effects.values().max(), Some(&1));
    assert_eq!(handler.probe.times("storm"), 1);
}
