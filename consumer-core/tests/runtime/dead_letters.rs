//! How many dead letters there may be, and of which events.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryQueue, MemoryStore, Message};
use oneffect_core::{
    Cause, Consumer, DeadLetterBounds, DeadLetterKind, DeadLetters, LetterFilter, RetrySchedule,
    Settled,
};

use super::bench::*;

fn unreadable(n: usize) -> Message {
    Message::new(format!("unreadable {n}"))
}

/// Discards the oldest letter.
async fn discard_one(store: &MemoryStore) {
    let mut oldest = LetterFilter::of("test");
    oldest.limit = Some(1);
    assert_eq!(store.discard_letters(&oldest).await.unwrap(), 1);
}

/// Field case 168, the database's part.
#[tokio::test(start_paused = true)]
async fn at_the_bound_the_lane_stands_still_and_the_others_go_on() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        for n in 0..3 {
            log.produce(0, unreadable(n));
        }
        log.produce(0, event("behind", &[]));
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default())
            .dead_letters(DeadLetterBounds::default().letters(2));
        let health = consumer.health();
        let consumer = start(consumer);

        until("the lane stands still", || {
            health.snapshot().has(Cause::DeadLettersFull)
        })
        .await;
        for n in 0..100 {
            log.produce(1, event(&format!("n{n}"), &[]));
        }
        until("the neighbours are through", || log.committed(1) == 100).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(log.committed(0), 2);
        assert_eq!(store.dead_letters().len(), 2);
        assert!(health.snapshot().has(Cause::DeadLettersFull));
        assert_eq!(store.outcome("test", &key("behind")), None);
        let stats = consumer.stats.snapshot();
        assert_eq!((stats.dead_lettered, stats.in_flight), (2, 2));

        discard_one(&store).await;
        until_drained(&log, 2).await;
        assert!(health.snapshot().is_ready());
        assert_eq!(store.dead_letters().len(), 2);
        assert_settled(&store, "behind", DONE);
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.dead_lettered, stats.released), (3, 0));
    })
    .await;
}

/// The claim is given back, so that another process may have more room; and the handler is not
/// entered again for what has failed as often as it may.
#[tokio::test(start_paused = true)]
async fn at_the_bound_an_event_with_an_id_stays_unsettled() {
    for script in [&["fail"][..], &["fail_late"]] {
        locally(async move {
            let (log, store, handler) = (
                MemoryLog::new("t", 1),
                MemoryStore::new(),
                Scripted::default(),
            );
            log.produce(0, unreadable(1));
            log.produce(0, event("a", script));
            log.produce(0, event("b", &[]));
            let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().max_attempts(2))
                .dead_letters(DeadLetterBounds::default().letters(1));
            let health = consumer.health();
            let consumer = start(consumer);

            until("the lane stands still", || {
                health.snapshot().has(Cause::DeadLettersFull)
            })
            .await;
            tokio::time::sleep(Duration::from_secs(100)).await;
            let entered = handler.times("a");
            assert_eq!(store.inbox("test"), []);
            assert_eq!(log.committed(0), 1);

            discard_one(&store).await;
            until_drained(&log, 1).await;
            assert_settled(&store, "a", Settled::Dead);
            assert_once(&store, ["b"]);
            assert_eq!(handler.times("a"), entered);
            assert_eq!(store.attempts("test", &key("a")), None);
            consumer.stop().await.unwrap();
        })
        .await;
    }
}

/// What is set aside already takes no more room, so it is settled.
#[tokio::test(start_paused = true)]
async fn at_the_bound_a_repeat_of_a_letter_is_settled() {
    locally(async {
        let (log, store) = (
            MemoryLog::with_commit_interval("t", 1, Duration::from_hours(1)),
            MemoryStore::new(),
        );
        log.produce(0, unreadable(1));
        let consumer = |log: &MemoryLog| {
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .dead_letters(DeadLetterBounds::default().letters(1))
        };
        let first = start(consumer(&log));
        until("it is set aside", || store.dead_letters().len() == 1).await;
        first.crash().await;
        assert_eq!(log.committed(0), 0);

        let second = start(consumer(&log));
        until("it is settled again", || {
            second.stats.snapshot().settled() == 1
        })
        .await;
        second.stop().await.unwrap();
        assert_eq!(log.committed(0), 1);
        assert_eq!(store.dead_letters()[0].1, 2);
    })
    .await;
}

/// Nothing is released for it: a broker counts releases, and would move the message away.
#[tokio::test(start_paused = true)]
async fn at_the_bound_a_queue_keeps_its_message() {
    locally(async {
        let (queue, store) = (MemoryQueue::standard("q"), MemoryStore::new());
        queue.send(unreadable(1));
        queue.send(unreadable(2));
        // Units that run at once do not see each other's letters.
        let consumer = Consumer::new("test", queue.source(), store.clone(), Scripted::default())
            .workers(1)
            .dead_letters(DeadLetterBounds::default().letters(1));
        let health = consumer.health();
        let consumer = start(consumer);
        until("there is no room", || {
            health.snapshot().has(Cause::DeadLettersFull)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(25)).await;

        discard_one(&store).await;
        until("both are settled", || {
            consumer.stats.snapshot().dead_lettered == 2
        })
        .await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.released, stats.deliveries), (0, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rejected_events_are_set_aside_where_that_is_asked_for() {
    for script in [&["reject"][..], &["reject_late"]] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            log.produce(0, event("a", script));
            log.produce(0, event("a", script));
            log.produce(0, event("b", &[]));
            let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .set_aside_rejected();
            let consumer = start(consumer);
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();

            let reason = "never".into();
            assert_settled(&store, "a", Settled::Rejected { reason });
            assert_once(&store, ["b"]);
            let letters = store.dead_letters();
            assert_eq!(letters.len(), 1);
            let letter = &letters[0].0;
            assert_eq!(letter.kind, DeadLetterKind::Rejected);
            assert_eq!((&*letter.error, &letter.event), ("never", &Some(key("a"))));
            assert_eq!((stats.rejected, stats.dead_lettered), (1, 0));
        })
        .await;
    }
}

/// What would never fit does not hold its lane.
#[tokio::test(start_paused = true)]
async fn what_is_too_large_for_a_letter_is_cut_and_marked() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let large = unreadable(1)
            .header("a", vec![b'x'; 50])
            .header("b", "1")
            .key(vec![b'k'; 50]);
        log.produce(0, large);
        let bounds = DeadLetterBounds::default().payload(4).headers(20).key(10);
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default())
            .dead_letters(bounds);
        let consumer = start(consumer);
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();

        let letter = store.dead_letters().remove(0).0;
        assert_eq!(letter.payload.as_deref(), Some(&b"unre"[..]));
        assert_eq!((letter.cut.payload, letter.cut.key), (Some(12), Some(50)));
        assert_eq!((letter.cut.headers, letter.headers.len()), (1, 1));
    })
    .await;
}
