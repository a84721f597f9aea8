//! Sources that take single events back: queues, with and without order.

use std::time::Duration;

use oneffect_core::testing::{MemoryQueue, MemoryStore, Message};
use oneffect_core::{Consumer, RetrySchedule};

use super::bench::*;

fn grouped(group: &'static str, message: Message) -> Message {
    message.group(group.as_bytes())
}

/// Field case 063.
#[tokio::test(start_paused = true)]
async fn the_events_of_a_group_take_effect_in_order_through_failures() {
    for waits in [Duration::from_millis(250), Duration::from_secs(100)] {
        locally(async move {
            let (queue, store, handler) = (
                MemoryQueue::fifo("q"),
                MemoryStore::new(),
                Scripted::default(),
            );
            let fails = ["fail_late", "fail_late", "fail_late", "go"];
            for (id, script) in [
                ("m1", &[][..]),
                ("m2", &fails[..]),
                ("m3", &[]),
                ("m4", &[]),
                ("m5", &[]),
            ] {
                queue.send(grouped("g", event(id, script)));
                queue.send(grouped("other", event(&format!("o-{id}"), &[])));
            }
            let consumer = start(
                Consumer::new("test", queue.source(), store.clone(), handler.clone())
                    .retry(RetrySchedule::default().base(waits)),
            );
            until("the queue is empty", || queue.remaining() == 0).await;
            consumer.stop().await.unwrap();
            for prefix in ["", "o-"] {
                let group: Vec<_> = (store.rows("effect").into_iter())
                    .filter(|id| id.starts_with("o-") != prefix.is_empty())
                    .collect();
                assert_eq!(group, [1, 2, 3, 4, 5].map(|n| format!("{prefix}m{n}")));
            }
        })
        .await;
    }
}

/// Field case 170: a failed event of an unordered queue keeps no slot. (When they are so many that
/// the circuit opens, see there.)
#[tokio::test(start_paused = true)]
async fn failed_events_of_a_standard_queue_wait_at_the_broker() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..3 {
            queue.send(event(&format!("bad{n}"), &["fail_late"]));
        }
        let consumer = start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        until("all have failed", || {
            consumer.stats.snapshot().attempts_charged == 3
        })
        .await;
        until("all are given back", || {
            consumer.stats.snapshot().in_flight == 0
        })
        .await;
        for n in 0..100 {
            queue.send(event(&format!("good{n}"), &[]));
        }
        let begun = tokio::time::Instant::now();
        until("the good ones are through", || effects(&store).len() == 100).await;
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "before the others come back"
        );
        let stats = consumer.stop().await.unwrap();
        assert_eq!((queue.remaining(), stats.attempts_charged), (3, 3));
    })
    .await;
}

/// Repeats of an event that was released share its fate: they come back with it, not before.
#[tokio::test(start_paused = true)]
async fn a_follower_of_a_released_event_is_released_with_it() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        for _ in 0..5 {
            queue.send(event("x", &["fail_late", "go"]));
        }
        let consumer = start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        until("the queue is empty", || queue.remaining() == 0).await;
        let stats = consumer.stop().await.unwrap();
        assert_once(&store, ["x"]);
        assert_eq!(
            (handler.times("x"), stats.applied, stats.duplicates),
            (2, 1, 4)
        );
    })
    .await;
}

/// Field case 125: two processes, one event, the first rolls back.
#[tokio::test(start_paused = true)]
async fn an_event_in_two_processes_takes_effect_when_the_first_rolls_back() {
    locally(async {
        let store = MemoryStore::new();
        let (a, b) = (MemoryQueue::standard("a"), MemoryQueue::standard("b"));
        let (first, second) = (Scripted::default(), Scripted::default());
        a.send(event("x", &["hang", "go"]));
        let one = start(
            Consumer::new("test", a.source(), store.clone(), first.clone())
                .handler_timeout(Duration::from_secs(3)),
        );
        until("the first runs", || first.times("x") == 1).await;
        b.send(event("x", &[]));
        let two = start(Consumer::new(
            "test",
            b.source(),
            store.clone(),
            second.clone(),
        ));
        until("both queues are empty", || {
            a.remaining() + b.remaining() == 0
        })
        .await;
        one.stop().await.unwrap();
        two.stop().await.unwrap();
        assert_once(&store, ["x"]);
        assert!(store.peak_units() <= 2);
    })
    .await;
}

/// A busy key is waited for without a connection, and its neighbours go on.
#[tokio::test(start_paused = true)]
async fn a_busy_key_costs_its_neighbours_nothing() {
    locally(async {
        let store = MemoryStore::new();
        let (a, b) = (MemoryQueue::standard("a"), MemoryQueue::standard("b"));
        let slow = Scripted::default();
        a.send(event("x", &["hang"]));
        let one = start(
            Consumer::new("test", a.source(), store.clone(), slow.clone())
                .handler_timeout(Duration::from_hours(1)),
        );
        until("the first runs", || slow.times("x") == 1).await;
        let two =
            start(Consumer::new("test", b.source(), store.clone(), Scripted::default()).workers(1));
        for n in 0..200 {
            b.send(event(&format!("warm{n}"), &[]));
        }
        until("batches have grown", || effects(&store).len() == 200).await;
        for n in 0..50 {
            b.send(event(&format!("e{n}"), &[]));
            if n == 25 {
                b.send(event("x", &[]));
            }
        }
        until("the neighbours are through", || {
            effects(&store).len() == 250
        })
        .await;
        until("the busy one waits without a unit", || {
            store.open_units() == 1
        })
        .await;
        assert_eq!(two.stats.snapshot().attempts_charged, 0);
        one.crash().await;
        until("the second has it", || effects(&store).len() == 251).await;
        two.stop().await.unwrap();
        assert_eq!(effects(&store)["x"], 1);
    })
    .await;
}
