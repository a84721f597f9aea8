//! Duplicates, wherever they come from.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryStore, Message};
use oneffect_core::{Consumer, Settled};

use super::bench::*;

#[tokio::test(start_paused = true)]
async fn every_event_takes_effect_once_however_often_it_is_delivered() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..200 {
            // Each comes three times: twice in its own partition, once in the other.
            let id = format!("e{}", n % 100);
            log.produce(n % 2, event(&id, &[]));
            log.produce(1 - n % 2, event(&id, &[]));
        }

        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 2).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, (0..100).map(|n| format!("e{n}")));
        assert_eq!(
            (stats.deliveries, stats.applied, stats.duplicates),
            (400, 100, 300)
        );
        assert_eq!(handler.entered().len(), 100);
    })
    .await;
}

/// A storm on one key: field case 174, and the thousand.
#[tokio::test(start_paused = true)]
async fn a_thousand_deliveries_of_one_event_run_its_handler_once_and_hold_one_connection() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 8),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..1000 {
            log.produce(n % 8, event("storm", &["slow"]));
        }

        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 8).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, ["storm"]);
        assert_eq!(handler.times("storm"), 1);
        assert_eq!(store.peak_units(), 1);
        assert_eq!((stats.applied, stats.duplicates), (1, 999));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_repeat_runs_when_its_first_has_failed_for_good_in_another_partition() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("x", &["fail_late", "fail_late", "go"]));
        log.produce(1, event("x", &["fail_late", "fail_late", "go"]));

        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 2).await;
        consumer.stop().await.unwrap();

        assert_once(&store, ["x"]);
        assert_eq!(handler.times("x"), 3);
    })
    .await;
}

/// Field case 109: exactly the duplicate is skipped, wherever it stands in the batch.
#[tokio::test(start_paused = true)]
async fn a_duplicate_is_told_from_fresh_events_at_every_place_of_a_batch() {
    for place in 0..10 {
        in_every_lane(|| async move {
            let (log, store, handler) = (
                MemoryLog::new("t", 1),
                MemoryStore::new(),
                Scripted::default(),
            );
            log.produce(0, event("dup", &[]));
            let consumer = start(Consumer::new(
                "test",
                log.source(),
                store.clone(),
                handler.clone(),
            ));
            until_drained(&log, 1).await;

            for n in 0..10 {
                let id = if n == place {
                    "dup".into()
                } else {
                    format!("e{n}")
                };
                log.produce(0, event(&id, &[]));
            }
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();

            let fresh = (0..10).filter(|n| *n != place).map(|n| format!("e{n}"));
            assert_once(&store, fresh.chain(["dup".into()]));
            assert_eq!((stats.applied, stats.duplicates), (10, 1));
            assert_eq!(handler.times("dup"), 1);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_consumers_of_different_names_each_handle_every_event() {
    in_every_lane(|| async {
        let (a, b) = (MemoryLog::new("t", 1), MemoryLog::new("t", 1));
        let store = MemoryStore::new();
        for log in [&a, &b] {
            log.produce(0, event("x", &[]));
        }

        let one = start(Consumer::new(
            "one",
            a.source(),
            store.clone(),
            Scripted::default(),
        ));
        let two = start(Consumer::new(
            "two",
            b.source(),
            store.clone(),
            Scripted::default(),
        ));
        until_drained(&a, 1).await;
        until_drained(&b, 1).await;
        one.stop().await.unwrap();
        two.stop().await.unwrap();

        assert_eq!(effects(&store)["x"], 2);
    })
    .await;
}

/// Field cases 084, 085: a tombstone is delivered, and set aside when it cannot be read.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_set_aside_whole_and_the_next_event_is_handled() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(
            0,
            Message::tombstone()
                .key("k")
                .header("event-id", "tombstone"),
        );
        log.produce(0, Message::new("").header("event-id", "empty"));
        log.produce(0, Message::new("{\"x\": \"\0").header("a\0b", "c\0d"));
        log.produce(0, Message::new("{}"));
        log.produce(0, event("good", &[]));

        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, ["good"]);
        assert_eq!(stats.dead_lettered, 4);
        let letters = store.dead_letters();
        assert_eq!(letters.len(), 4);
        let tombstone = letters
            .iter()
            .find(|(l, _)| l.event == Some(key("tombstone")))
            .unwrap();
        assert_eq!(
            (&tombstone.0.payload, tombstone.0.key.as_deref()),
            (&None, Some(&b"k"[..]))
        );
        assert_settled(&store, "tombstone", Settled::Dead);
        assert_settled(&store, "empty", Settled::Dead);
        let unreadable = letters
            .iter()
            .find(|(l, _)| !l.headers.is_empty() && l.event.is_none())
            .unwrap();
        assert_eq!(unreadable.0.headers.iter().next().unwrap().0, "a\0b");
    })
    .await;
}

/// A dead letter without an id is one letter, however often its message is delivered.
#[tokio::test(start_paused = true)]
async fn a_redelivered_dead_letter_is_counted_and_not_doubled() {
    in_every_lane(|| async {
        let log = MemoryLog::with_commit_interval("t", 1, Duration::from_mins(1));
        let store = MemoryStore::new();
        log.produce(0, Message::new("garbage"));
        for _ in 0..2 {
            // Crashed after the unit's commit, before the offset's.
            let consumer = start(Consumer::new(
                "test",
                log.source(),
                store.clone(),
                Scripted::default(),
            ));
            let stats = consumer.stats.clone();
            until("it is set aside", || stats.snapshot().dead_lettered == 1).await;
            consumer.crash().await;
        }
        let letters = store.dead_letters();
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].1, 2);
    })
    .await;
}
