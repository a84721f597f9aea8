//! Readiness, and what turns it red.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryStore};
use oneffect_core::{Cause, Consumer, Health};

use super::bench::*;

fn causes(health: &Health) -> Vec<Cause> {
    health.reasons().iter().map(|reason| reason.cause).collect()
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_ready_from_when_it_takes_part_until_it_stops() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("x", &["slow"]));
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default());
        let health = consumer.health();
        assert_eq!(causes(&health.snapshot()), [Cause::Starting]);

        let consumer = start(consumer);
        until("it is ready", || health.snapshot().is_ready()).await;
        let mut watch = health.watch();
        consumer.stop().await.unwrap();

        assert!(watch.has_changed().unwrap(), "who watches is told");
        assert_eq!(causes(&watch.borrow_and_update()), [Cause::Stopping]);
        assert_once(&store, ["x"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_whose_future_was_dropped_is_not_ready() {
    locally(async {
        let log = MemoryLog::new("t", 1);
        let consumer = Consumer::new(
            "test",
            log.source(),
            MemoryStore::new(),
            Scripted::default(),
        );
        let health = consumer.health();
        let consumer = start(consumer);
        until("it is ready", || health.snapshot().is_ready()).await;
        consumer.crash().await;
        assert_eq!(causes(&health.snapshot()), [Cause::Stopping]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_when_the_consumer_starts_is_said_to_be() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        store.set_down(true);
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default());
        let health = consumer.health();
        let consumer = start(consumer);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            causes(&health.snapshot()),
            [Cause::Starting, Cause::StoreAway]
        );
        store.set_down(false);
        until("it is ready", || health.snapshot().is_ready()).await;
        consumer.stop().await.unwrap();
    })
    .await;
}
