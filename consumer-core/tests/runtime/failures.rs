//! Handlers that fail, and stores that do.

use std::time::Duration;

use oneffect_core::testing::{Fault, MemoryLog, MemoryStore, Message, Unreliable};
use oneffect_core::{
    Consumer, DaysFrom, DeadLetterKind, RetrySchedule, RunError, Settled, Store, StoreError,
};

use super::bench::*;

/// A log of one partition with these events, and a neighbour in another.
async fn run(events: Vec<Message>) -> (MemoryStore, Scripted, oneffect_core::Stats) {
    let (log, store, handler) = (
        MemoryLog::new("t", 2),
        MemoryStore::new(),
        Scripted::default(),
    );
    for n in 0..5 {
        log.produce(1, event(&format!("neighbour{n}"), &[]));
    }
    for event in events {
        log.produce(0, event);
    }
    let consumer = start(
        Consumer::new("test", log.source(), store.clone(), handler.clone())
            .retry(RetrySchedule::default().max_attempts(5)),
    );
    until_drained(&log, 2).await;
    let stats = consumer.stop().await.unwrap();
    assert_eq!(store.open_units(), 0);
    (store, handler, stats)
}

fn neighbours() -> impl Iterator<Item = String> {
    (0..5).map(|n| format!("neighbour{n}"))
}

/// The order of effects in the failing lane, without the neighbours.
fn lane(store: &MemoryStore) -> Vec<String> {
    store
        .rows("effect")
        .into_iter()
        .filter(|id| !id.starts_with('n'))
        .collect()
}

/// Field cases 046, 063 in its Kafka form: whatever way an event fails, its lane keeps its order, its
/// neighbours take effect, and it takes effect in the end.
#[tokio::test(start_paused = true)]
async fn a_failed_event_runs_again_and_nothing_of_its_lane_overtakes_it() {
    for act in [
        "fail",
        "fail_late",
        "panic",
        "panic_late",
        "swallow",
        "deadlock",
        "elsewhere",
    ] {
        for make in [event, staged] {
            locally(async move {
                let (store, handler, stats) = run(vec![
                    make("a", &[]),
                    make("b", &[act, act, "go"]),
                    make("c", &[]),
                    make("d", &[]),
                ])
                .await;
                assert_eq!(lane(&store), ["a", "b", "c", "d"], "{act}");
                assert_once(
                    &store,
                    neighbours().chain(["a", "b", "c", "d"].map(String::from)),
                );
                assert!(handler.times("b") >= 3, "{act}");
                assert_eq!(stats.dead_lettered, 0);
                assert_settled(&store, "b", DONE);
                assert_eq!(
                    store.attempts("test", &key("b")),
                    None,
                    "the retry row goes when it settles"
                );
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_always_fails_is_set_aside_and_its_lane_goes_on() {
    for act in ["fail", "fail_late", "panic", "panic_late", "swallow"] {
        locally(async move {
            let (store, handler, stats) =
                run(vec![event("a", &[]), event("b", &[act]), event("c", &[])]).await;
            assert_eq!(lane(&store), ["a", "c"], "{act}");
            assert_settled(&store, "b", Settled::Dead);
            let letters = store.dead_letters();
            assert_eq!(letters.len(), 1);
            let letter = &letters[0].0;
            assert_eq!(
                (letter.kind, letter.attempts),
                (DeadLetterKind::Exhausted, 5)
            );
            if act.starts_with("panic") {
                assert!(letter.error.contains("no way"), "{}", letter.error);
            }
            assert_eq!(stats.attempts_charged, 5);
            assert!(handler.times("b") >= 5);
            assert_eq!(store.attempts("test", &key("b")), None);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_leaves_its_inbox_row_and_nothing_else() {
    for act in ["reject", "reject_late"] {
        for make in [event, staged] {
            locally(async move {
                let (store, handler, stats) = run(vec![
                    make("a", &[]),
                    make("b", &[act]),
                    make("c", &[]),
                    make("b", &[act]),
                ])
                .await;
                assert_eq!(lane(&store), ["a", "c"], "{act}");
                assert_settled(
                    &store,
                    "b",
                    Settled::Rejected {
                        reason: "never".into(),
                    },
                );
                assert_eq!((stats.rejected, stats.duplicates), (1, 1));
                assert!(
                    handler.times("b") <= 2,
                    "once more at most, to undo its writes"
                );
            })
            .await;
        }
    }
}

/// Nobody's fault is charged to nobody, for however long it lasts: field cases 106, 113, 164.
#[tokio::test(start_paused = true)]
async fn what_is_nobodys_fault_is_never_charged() {
    for act in ["deadlock", "elsewhere"] {
        locally(async move {
            let mut script = vec![act; 30];
            script.push("go");
            let (store, _, stats) = run(vec![event("a", &script), event("b", &[])]).await;
            assert_eq!(lane(&store), ["a", "b"]);
            assert_eq!((stats.attempts_charged, stats.dead_lettered), (0, 0));
        })
        .await;
    }
}

/// Field case 164: an outage of two minutes loses nothing and sets nothing aside.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_costs_time_and_nothing_else() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Scripted::default(),
        );
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        let stats = consumer.stats.clone();
        until("it is connected", || stats.snapshot().connected).await;
        store.set_down(true);
        for n in 0..500 {
            log.produce(n % 4, event(&format!("e{n}"), &[]));
        }
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(store.rows("effect").len(), 0);
        store.set_down(false);
        until_drained(&log, 4).await;
        let stats = consumer.stop().await.unwrap();
        assert_once(&store, (0..500).map(|n| format!("e{n}")));
        assert_eq!((stats.attempts_charged, stats.dead_lettered), (0, 0));
    })
    .await;
}

/// A restart in the middle of the retries does not begin to count again.
#[tokio::test(start_paused = true)]
async fn attempts_are_remembered_across_restarts_and_so_is_the_wait() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("x", &["fail_late"]));
        let schedule = RetrySchedule::default()
            .base(Duration::from_secs(100))
            .max_attempts(3);
        for charged in 1..3 {
            let handler = Scripted::default();
            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), handler.clone()).retry(schedule),
            );
            until("the attempt is charged", || {
                store
                    .attempts("test", &key("x"))
                    .is_some_and(|prior| prior.attempts == charged)
            })
            .await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(handler.times("x"), 1, "it waits");
            consumer.crash().await;

            let early = Scripted::default();
            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), early.clone()).retry(schedule),
            );
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(early.times("x"), 0, "a restart does not shorten the wait");
            consumer.crash().await;
            tokio::time::sleep(Duration::from_secs(200)).await;
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default()).retry(schedule),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_settled(&store, "x", Settled::Dead);
        assert_eq!(store.dead_letters()[0].0.attempts, 3);
    })
    .await;
}

/// Field cases 101, 103: an answer that was lost is neither success nor failure.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_is_found_out_by_claiming_again() {
    for fault in [
        Fault::BeforeCommit,
        Fault::DuringCommit,
        Fault::LostBefore,
        Fault::AfterCommit,
    ] {
        in_every_lane(|| async move {
            let (log, memory, handler) = (
                MemoryLog::new("t", 1),
                MemoryStore::new(),
                Scripted::default(),
            );
            let store = Unreliable::new(memory.clone());
            store.fail_next_commit(fault);
            for id in ["a", "b", "c"] {
                log.produce(0, event(id, &[]));
            }
            let consumer = start(Consumer::new("test", log.source(), store, handler.clone()));
            until_drained(&log, 1).await;
            consumer.stop().await.unwrap();
            assert_once(&memory, ["a", "b", "c"]);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_commits_by_itself_stops_the_consumer() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("x", &["commit"]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        let error = consumer.ended().await.unwrap_err();
        assert!(
            matches!(error, RunError::Store(StoreError::HandlerEndedTransaction)),
            "{error:?}"
        );
        assert_eq!(log.committed(0), 0, "nothing is acknowledged");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_fails_alone() {
    locally(async {
        let (store, handler, stats) = run(vec![
            event("a", &[]),
            event("b", &["hang", "hang", "go"]),
            event("c", &[]),
        ])
        .await;
        assert_eq!(lane(&store), ["a", "b", "c"]);
        assert_eq!(handler.times("b"), 3);
        assert!(stats.attempts_charged >= 1);
    })
    .await;
}

/// Field case 154: the wait of a failed event holds no transaction.
#[tokio::test(start_paused = true)]
async fn a_failed_event_waits_without_a_transaction_and_delays_nobody() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        log.produce(0, event("x", &["fail_late"]));
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        until("it waits", || store.attempts("test", &key("x")).is_some()).await;
        for n in 0..100 {
            log.produce(1, event(&format!("e{n}"), &[]));
        }
        until("the others are through", || log.committed(1) == 100).await;
        assert_eq!(store.open_units(), 0);
        assert_eq!(log.committed(0), 0);
        consumer.stop().await.unwrap();
    })
    .await;
}

/// The process that charged the last attempt died before it wrote the dead letter.
#[tokio::test(start_paused = true)]
async fn an_event_found_exhausted_is_set_aside_without_running_again() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("x", &[]));
        let consumer = store.open("test", DaysFrom::Id).await.unwrap();
        for _ in 0..3 {
            let wait = Duration::from_millis(1);
            store
                .charge(consumer, &key("x"), "broken", wait)
                .await
                .unwrap();
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().max_attempts(3)),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(handler.times("x"), 0);
        let (letter, _) = &store.dead_letters()[0];
        assert_eq!((&*letter.error, letter.attempts), ("broken", 3));
        assert_settled(&store, "x", Settled::Dead);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_gives_up_when_told_to_stop_is_not_charged() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("x", &["until_cancelled", "go"]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until("it runs", || handler.times("x") == 1).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.attempts_charged, stats.released), (0, 1));
        assert_eq!(store.attempts("test", &key("x")), None);
        let next = start(Consumer::new("test", log.source(), store.clone(), handler));
        until_drained(&log, 1).await;
        next.stop().await.unwrap();
        assert_once(&store, ["x"]);
    })
    .await;
}

/// A database that is busy or away for a moment does not keep a consumer from starting.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_at_the_start_is_waited_for_and_not_for_ever() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("x", &[]));
        store.set_down(true);
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        tokio::time::sleep(Duration::from_secs(10)).await;
        store.set_down(false);
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_once(&store, ["x"]);

        store.set_down(true);
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        let error = consumer.ended().await.unwrap_err();
        assert!(matches!(error, RunError::Store(_)));
        assert!(
            format!("{error:?}").starts_with("the store cannot be used: "),
            "{error:?}"
        );
    })
    .await;
}
