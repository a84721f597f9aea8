//! Stops, in good order and otherwise.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryQueue, MemoryStore};
use oneffect_core::{Consumer, RunError};

use super::bench::*;

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_runs_and_gives_back_what_has_not_begun() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..100 {
            log.produce(0, event(&format!("e{n}"), &["slow"]));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until("some have run", || log.committed(0) >= 3).await;
        let stats = consumer.stop().await.unwrap();
        let done = effects(&store).len();
        assert!(done < 100);
        assert_eq!(
            log.committed(0),
            i64::try_from(done).unwrap(),
            "what committed is acknowledged"
        );
        assert!(stats.released > 0);

        let next = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        let stats = next.stop().await.unwrap();
        assert_eq!(
            stats.duplicates, 0,
            "a stop in good order costs no duplicate"
        );
        assert_once(&store, (0..100).map(|n| format!("e{n}")));
    })
    .await;
}

/// Field case 041.
#[tokio::test(start_paused = true)]
async fn a_stop_that_takes_too_long_aborts_and_says_so() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("x", &["hang", "go"]));
        let handler = Scripted::default();
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .drain(Duration::from_secs(8))
                .handler_timeout(Duration::from_hours(2)),
        );
        until("it hangs", || handler.times("x") == 1).await;
        let begun = tokio::time::Instant::now();
        let error = consumer.stop().await.unwrap_err();
        assert!(
            matches!(error, RunError::DrainDeadline { aborted: 1 }),
            "{error:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!((store.open_units(), effects(&store).len()), (0, 0));

        let next = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        next.stop().await.unwrap();
        assert_once(&store, ["x"]);
    })
    .await;
}

/// Field case 043: what was committed before the stop is deleted before the exit.
#[tokio::test(start_paused = true)]
async fn a_queue_is_settled_before_it_is_let_go() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..200 {
            queue.send(event(&format!("e{n}"), &["slow"]));
        }
        let mut duplicates = 0;
        for _ in 0..10 {
            let consumer = start(Consumer::new(
                "test",
                queue.source(),
                store.clone(),
                handler.clone(),
            ));
            tokio::time::sleep(Duration::from_secs(5)).await;
            duplicates += consumer.stop().await.unwrap().duplicates;
            assert_eq!(queue.in_flight(), 0, "what was not begun is given back");
        }
        assert_eq!(duplicates, 0);
        let consumer = start(Consumer::new(
            "test",
            queue.source(),
            store.clone(),
            handler.clone(),
        ));
        until("the queue is empty", || queue.remaining() == 0).await;
        consumer.stop().await.unwrap();
        assert_once(&store, (0..200).map(|n| format!("e{n}")));
        assert_eq!(handler.entered().len(), 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_dropped_leaves_no_open_transaction() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("x", &["hang", "go"]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until("it hangs", || handler.times("x") == 1).await;
        assert_eq!(store.open_units(), 1);
        consumer.crash().await;
        until("the unit is gone", || store.open_units() == 0).await;
    })
    .await;
}
