//! Order by key, and no order at all.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryStore, Message};
use oneffect_core::{Consumer, Lanes, Limit, RetrySchedule, Settled};

use super::bench::*;

fn of(key: &str, message: Message) -> Message {
    message.key(key.to_owned())
}

/// The ids of a key's effects, in order.
fn effects_of(store: &MemoryStore, key: char) -> Vec<String> {
    let rows = store.rows("effect").into_iter();
    rows.filter(|id| id.starts_with(key)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_holds_back_its_key_and_no_other() {
    for act in ["fail", "fail_late", "panic_late", "swallow", "deadlock"] {
        in_lanes(Lanes::Key, async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            for n in 0..20 {
                let script = if n == 3 {
                    &[act, act, act, act, act, "go"][..]
                } else {
                    &[]
                };
                log.produce(0, of("a", event(&format!("a{n:02}"), script)));
                log.produce(0, of("b", staged(&format!("b{n:02}"), &[])));
            }
            let base = Duration::from_mins(1);
            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), Scripted::default())
                    .retry(RetrySchedule::default().base(base)),
            );
            until("the other key is through", || {
                effects_of(&store, 'b').len() == 20
            })
            .await;
            assert!(effects_of(&store, 'a').len() <= 3 || act == "deadlock");
            until_drained(&log, 1).await;
            consumer.stop().await.unwrap();
            for key in ['a', 'b'] {
                assert!(effects_of(&store, key).is_sorted(), "{act}");
                assert_eq!(effects_of(&store, key).len(), 20);
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_order_a_failing_event_holds_back_none() {
    in_lanes(Lanes::Unordered, async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..100 {
            let script = if n % 10 == 0 { &["fail_late"][..] } else { &[] };
            log.produce(0, of("same", event(&format!("e{n}"), script)));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().base(Duration::from_hours(1))),
        );
        until("the good ones are through", || effects(&store).len() == 90).await;
        assert_eq!(log.committed(0), 0, "the offset waits for the first");
        consumer.crash().await;
        // What had run ahead comes again, and is known.
        let next = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().max_attempts(1)),
        );
        until_drained(&log, 1).await;
        let stats = next.stop().await.unwrap();
        assert_eq!((stats.duplicates, stats.dead_lettered), (90, 10));
        assert_once(
            &store,
            (0..100).filter(|n| n % 10 > 0).map(|n| format!("e{n}")),
        );
    })
    .await;
}

/// Nothing says that they do not depend on each other.
#[tokio::test(start_paused = true)]
async fn records_without_a_key_keep_their_partitions_order_and_hold_back_no_key() {
    in_lanes(Lanes::Key, async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..10 {
            let script = if n == 4 {
                &["fail_late", "fail_late", "fail_late", "fail_late", "go"][..]
            } else {
                &[]
            };
            let mut message = event(&format!("n{n}"), script);
            message.key = None;
            log.produce(0, message);
            log.produce(0, of("", event(&format!("e{n}"), &[])));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        until("the empty key is through", || {
            effects_of(&store, 'e').len() == 10
        })
        .await;
        assert_eq!(effects_of(&store, 'n').len(), 4);
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert!(effects_of(&store, 'n').is_sorted());
        assert_once(
            &store,
            (0..10).flat_map(|n| [format!("n{n}"), format!("e{n}")]),
        );
    })
    .await;
}

/// Field cases 006, 050: one key fails for minutes. What is behind it is kept, up to the limit, and
/// only then its partition waits; the other keys have gone far beyond it, and nothing is kept of
/// them. The other partition never notices.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_stuck_lets_the_others_run_ahead_until_the_room_is_full() {
    in_lanes(Lanes::Key, async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        log.produce(0, of("stuck", event("stuck", &["fail_late", "go"])));
        // Of fifty events, one is behind the stuck one.
        for n in 0..7000 {
            let key = if n % 50 == 0 {
                "stuck".into()
            } else {
                format!("k{}", n % 37)
            };
            log.produce(0, of(&key, event(&format!("e{n}"), &[])));
        }
        for n in 0..3000 {
            log.produce(1, of("other", event(&format!("o{n:04}"), &[])));
        }
        let limit = Limit {
            messages: 100,
            bytes: 1 << 20,
        };
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .in_flight(limit)
                .retry(
                    RetrySchedule::default()
                        .base(Duration::from_mins(2))
                        .cap(Duration::from_mins(2)),
                ),
        );
        let stats = consumer.stats.clone();
        let mut most = 0;
        until(
            "the other partition is through, and the keys are far ahead",
            || {
                most = most.max(stats.snapshot().in_flight);
                log.committed(1) == 3000 && store.rows("effect").len() > 3000 + 2500
            },
        )
        .await;
        assert_eq!(log.committed(0), 0);
        until("there is no room", || {
            most = most.max(stats.snapshot().in_flight);
            stats.snapshot().in_flight > 60 && store.open_units() == 0
        })
        .await;
        until_drained(&log, 2).await;
        // What was on its way when the pause was asked for still comes.
        assert!(most <= 100 + 2 * 500, "{most}");
        consumer.stop().await.unwrap();
        assert_eq!(effects(&store).len(), 10_001);
        assert!(effects_of(&store, 'o').is_sorted());
    })
    .await;
}

/// A lane a key: thousands of them in one partition, each with an event that fails now and then.
#[tokio::test(start_paused = true)]
async fn thousands_of_keys_each_keep_their_order() {
    in_lanes(Lanes::Key, async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..9000 {
            let key = n % 3000;
            let script = if n % 701 == 0 {
                &["fail", "go"][..]
            } else {
                &[]
            };
            let id = format!("p0k{key}-{n:05}");
            log.produce(0, of(&key.to_string(), staged(&id, script)));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(stats.applied, 9000);
        assert_in_order(&store);
    })
    .await;
}

/// Field case 005: events come slowly, their partitions move every other second, and what is through
/// ahead of its turn never takes the offset with it.
#[tokio::test(start_paused = true)]
async fn the_offset_never_passes_what_is_not_settled_while_partitions_move() {
    for lanes in [Lanes::Key, Lanes::Unordered] {
        in_lanes(lanes, async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            let sources = [log.source(), log.source()];
            let members = [sources[0].member(), sources[1].member()];
            let consumers = sources.map(|source| {
                start(Consumer::new("test", source, store.clone(), Scripted::default()).workers(2))
            });
            let mut before = 0;
            for n in 0..180 {
                let script = if n % 7 == 0 { &["slow"][..] } else { &[] };
                log.produce(
                    0,
                    of(&format!("{}", n % 5), event(&format!("e{n}"), script)),
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
                let committed = log.committed(0);
                assert!((before..=log.end(0)).contains(&committed));
                for settled in 0..committed {
                    let id = format!("e{settled}");
                    assert_settled(&store, &id, DONE);
                }
                before = committed;
                if n % 2 == 0 {
                    let [one, other] = if n % 4 == 0 {
                        members
                    } else {
                        [members[1], members[0]]
                    };
                    log.revoke(one, 0, Duration::from_secs(5));
                    until("it is let go", || log.owner(0) != Some(one)).await;
                    log.assign(other, 0);
                }
            }
            until_drained(&log, 1).await;
            for consumer in consumers {
                consumer.stop().await.unwrap();
            }
            assert_once(&store, (0..180).map(|n| format!("e{n}")));
        })
        .await;
    }
}

/// Field case 044: a stop does not wait for a batch to fill, nor for a lane's next attempt.
#[tokio::test(start_paused = true)]
async fn a_stop_gives_back_what_waits_in_any_lane_at_once() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..3 {
            log.produce(0, event(&format!("e{n}"), &["fail_late", "go"]));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        until("one has failed", || {
            store.attempts("test", &key("e0")).is_some()
        })
        .await;
        until("it waits", || store.open_units() == 0).await;
        let begun = tokio::time::Instant::now();
        let stats = consumer.stop().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(stats.released, 3);
        let next = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        until_drained(&log, 1).await;
        next.stop().await.unwrap();
        assert_once(&store, ["e0", "e1", "e2"]);
    })
    .await;
}

/// An event that is set aside frees its key.
#[tokio::test(start_paused = true)]
async fn a_key_goes_on_behind_its_dead_letter() {
    in_lanes(Lanes::Key, async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for (id, script) in [("a1", &[][..]), ("a2", &["fail_late"]), ("a3", &[])] {
            log.produce(0, of("a", event(id, script)));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().max_attempts(3)),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a1", "a3"]);
        assert_settled(&store, "a2", Settled::Dead);
    })
    .await;
}
