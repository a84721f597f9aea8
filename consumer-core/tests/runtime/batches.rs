//! Handlers that are given whole batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect_core::testing::{
    MemoryConnection, MemoryLog, MemoryRow, MemoryStore, Message, Unreliable,
};
use oneffect_core::{
    BatchContext, BatchHandler, BatchResult, Consumer, ConsumerConfig, Duplicate, Fresh, Lanes,
    RetrySchedule, RunError, Settled, Stats, Store, StoreError, all_done, done, done_with, each,
    reject,
};

use super::bench::*;

/// A log of one partition with these events, and a neighbour in another, handled in batches.
async fn run(events: Vec<Message>) -> (MemoryStore, Scripted, Stats) {
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
    let mut config = ConsumerConfig::default();
    config.workers = 1;
    config.retry = RetrySchedule::default().max_attempts(5);
    config.handler_timeout = Duration::from_secs(10);
    let consumer = start_either(true, log.source(), store.clone(), handler.clone(), config);
    until_drained(&log, 2).await;
    let stats = consumer.stop().await.unwrap();
    assert_eq!(store.open_units(), 0);
    (store, handler, stats)
}

fn neighbours() -> impl Iterator<Item = String> {
    (0..5).map(|n| format!("neighbour{n}"))
}

fn lane(store: &MemoryStore) -> Vec<String> {
    let rows = store.rows("effect").into_iter();
    rows.filter(|id| !id.starts_with('n')).collect()
}

const ABCD: [&str; 4] = ["a", "b", "c", "d"];

#[tokio::test(start_paused = true)]
async fn whatever_way_an_event_fails_in_a_batch_its_lane_keeps_its_order_and_all_take_effect() {
    for act in [
        "fail",
        "fail_late",
        "panic",
        "panic_late",
        "swallow",
        "deadlock",
        "elsewhere",
        "hang",
    ] {
        for make in [event, staged] {
            locally(async move {
                let script = [act, act, act, act, "go"];
                let events = ABCD.map(|id| make(id, if id == "b" { &script } else { &[] }));
                let (store, _, stats) = run(events.into()).await;
                assert_eq!(lane(&store), ABCD, "{act}");
                assert_once(&store, neighbours().chain(ABCD.map(String::from)));
                assert_eq!(stats.dead_lettered, 0, "{act}");
                assert_eq!(store.attempts("test", &key("b")), None);
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_always_fails_in_batches_is_set_aside_after_its_attempts_and_no_other_is_charged()
 {
    for act in [
        "fail",
        "fail_late",
        "panic",
        "panic_late",
        "swallow",
        "hang",
    ] {
        locally(async move {
            let events = vec![event("a", &[]), event("b", &[act]), staged("c", &[])];
            let (store, _, stats) = run(events).await;
            assert_eq!(lane(&store), ["a", "c"], "{act}");
            assert_settled(&store, "b", Settled::Dead);
            assert_eq!(
                (stats.attempts_charged, stats.dead_lettered),
                (5, 1),
                "{act}"
            );
            assert_eq!(store.dead_letters()[0].0.attempts, 5);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_of_a_batch_leaves_its_inbox_row_and_its_neighbours_take_effect() {
    for make in [event, staged] {
        locally(async move {
            let events = ABCD.map(|id| make(id, if id == "b" { &["reject"] } else { &[] }));
            let (store, handler, stats) = run(events.into()).await;
            assert_eq!(lane(&store), ["a", "c", "d"]);
            let reason = "never".into();
            assert_settled(&store, "b", Settled::Rejected { reason });
            assert_eq!((stats.rejected, stats.attempts_charged), (1, 0));
            assert!(
                handler.times("b") <= 2,
                "once more to check that it writes nothing"
            );
        })
        .await;
    }
}

/// Alone, the database undoes what it wrote.
#[tokio::test(start_paused = true)]
async fn an_event_alone_may_be_rejected_late() {
    for make in [event, staged] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            let handler = AtOnce::default();
            let consumer = start(Consumer::batches(
                "test",
                log.source(),
                store.clone(),
                handler,
            ));
            for id in ["a", "b"] {
                log.produce(0, make(id, &["reject_late"]));
                until_drained(&log, 1).await;
            }
            let stats = consumer.stop().await.unwrap();
            assert_eq!((stats.rejected, store.rows("effect").len()), (2, 0));
        })
        .await;
    }
}

/// Clause 4: in a batch nothing could undo it.
#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn a_handler_that_writes_for_an_event_of_a_batch_and_rejects_it_stops_the_consumer() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        // Batches grow from one.
        for (id, script) in [("first", &[][..]), ("a", &[]), ("b", &["reject_late"])] {
            log.produce(0, event(id, script));
        }
        let handler = AtOnce::default();
        let consumer =
            start(Consumer::batches("test", log.source(), store.clone(), handler).workers(1));
        let error = consumer.ended().await.unwrap_err();
        let RunError::Store(StoreError::Misconfigured { message, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(message.contains("the event b"), "{message}");
        assert_once(&store, ["first"]);
    })
    .await;
}

/// A transient event is left out, and so are the later ones of its lane; the others are not.
#[tokio::test(start_paused = true)]
async fn the_handler_is_called_again_without_what_failed_and_what_follows_it() {
    in_lanes(Lanes::Key, async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        // Batches grow: one, two, four.
        let warm = ["u", "v", "w"].map(|id| event(id, &[]).key(id));
        for event in warm {
            log.produce(0, event);
        }
        for (id, script) in [
            ("x1", &["fail", "go"][..]),
            ("y1", &[]),
            ("x2", &[]),
            ("y2", &[]),
        ] {
            let make = if id.starts_with('x') { event } else { staged };
            log.produce(0, make(id, script).key(id[..1].to_owned()));
        }
        let mut config = ConsumerConfig::default();
        config.workers = 1;
        let consumer = start_either(true, log.source(), store.clone(), handler.clone(), config);
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();
        let entered = handler.entered();
        let batch = ["x1", "x2", "y1", "y2"];
        assert_eq!(
            entered[3..],
            [&batch[..], &["y1", "y2", "x1", "x2"]].concat()
        );
        assert_once(&store, ["u", "v", "w"].into_iter().chain(batch));
        assert_eq!(stats.attempts_charged, 0);
    })
    .await;
}

/// Answers with what its events say.
#[derive(Clone, Default)]
struct Replies {
    told: Arc<Mutex<Vec<(String, Settled)>>>,
    /// How many outcomes too many.
    surplus: usize,
}

impl<S: Store<Connection = MemoryConnection, Row = MemoryRow>> BatchHandler<S> for Replies {
    type Event = Event;

    async fn handle(
        &self,
        cx: &mut BatchContext<'_, S>,
        events: Vec<Fresh<'_, Event>>,
    ) -> BatchResult {
        for event in &events {
            cx.stage(event, MemoryRow::new("effect", &event.event_id));
        }
        let outcomes = events.iter().map(|event| match &*event.event_id {
            "large" => done_with("x".repeat(100)),
            "none" => done(),
            "bad" => reject("never"),
            id => done_with(id),
        });
        each(outcomes.chain((0..self.surplus).map(|_| done())))
    }

    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        let id = duplicate.event_key.id.to_string();
        self.told.lock().unwrap().push((id, settled.clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_batch_has_its_own_reply_and_its_duplicates_are_told() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Replies::default(),
        );
        let ids = ["first", "second", "none", "bad", "large", "last"];
        for id in ids {
            log.produce(0, event(id, &[]));
        }
        let consumer = start(
            Consumer::batches("test", log.source(), store.clone(), handler.clone()).reply_limit(50),
        );
        until_drained(&log, 1).await;
        for id in ids {
            log.produce(0, event(id, &[]));
        }
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.dead_lettered, stats.duplicates), (1, 6));
        assert_once(&store, ["first", "second", "none", "last"]);
        let told = handler.told.lock().unwrap();
        let reply = |id: &str| Settled::Done {
            reply: Some(format!("\"{id}\"").into()),
        };
        let rejected = Settled::Rejected {
            reason: "never".into(),
        };
        let settled = [
            reply("first"),
            reply("second"),
            DONE,
            rejected,
            Settled::Dead,
            reply("last"),
        ];
        let expected: Vec<_> = ids.map(str::to_owned).into_iter().zip(settled).collect();
        assert_eq!(*told, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_many_outcomes_are_a_mistake_that_is_charged_and_says_so() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let handler = Replies {
            surplus: 1,
            ..Replies::default()
        };
        for id in ["a", "b"] {
            log.produce(0, event(id, &[]));
        }
        let consumer = start(
            Consumer::batches("test", log.source(), store.clone(), handler)
                .retry(RetrySchedule::default().max_attempts(2)),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect").len(), 0);
        let letters = store.dead_letters();
        assert_eq!(letters.len(), 2);
        assert!(
            letters[0].0.error.contains("2 outcomes for 1 events"),
            "{}",
            letters[0].0.error
        );
    })
    .await;
}

/// Gives each event's row a unique name; the row named `taken` is there already.
struct Unique;

impl<S: Store<Connection = MemoryConnection, Row = MemoryRow>> BatchHandler<S> for Unique {
    type Event = Event;

    async fn handle(
        &self,
        cx: &mut BatchContext<'_, S>,
        events: Vec<Fresh<'_, Event>>,
    ) -> BatchResult {
        if events.iter().any(|event| !event.staged) {
            cx.db().await?;
        }
        for event in &events {
            cx.stage(event, MemoryRow::unique("effect", &event.event_id));
        }
        all_done()
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_of_a_batch_that_breaks_a_constraint_fails_its_own_event() {
    for make in [event, staged] {
        in_every_lane(|| async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            let unit = Unreliable::new(store.clone());
            for n in 0..30 {
                log.produce(0, make(&format!("e{n}"), &[]));
            }
            let consumer = start(
                Consumer::batches("test", log.source(), unit, Unique)
                    .retry(RetrySchedule::default().max_attempts(2)),
            );
            until_drained(&log, 1).await;
            // The same rows under other keys.
            for n in 0..30 {
                let id = if n % 10 == 3 {
                    format!("e{n}")
                } else {
                    format!("f{n}")
                };
                let message = make(&id, &[]).header("event-id", format!("second{n}"));
                log.produce(0, message);
            }
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();
            assert_eq!((stats.applied, stats.dead_lettered), (57, 3));
            assert_eq!(stats.attempts_charged, 6);
            assert_eq!(store.rows("effect").len(), 57);
        })
        .await;
    }
}
