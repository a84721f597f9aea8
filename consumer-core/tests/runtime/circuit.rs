//! When nothing succeeds, the consumer backs off as a whole.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryQueue, MemoryRow, MemoryStore, Message};
use oneffect_core::{
    Cause, Consumer, Context, DeadLetterKind, Failure, Handler, HandlerResult, RetrySchedule,
    Settled, done,
};
use tokio::time::Instant;

use super::bench::*;

/// Calls a dependency that takes 10 ms, and is away now and then.
#[derive(Clone, Debug, Default)]
struct Caller {
    away: Arc<AtomicBool>,
    /// When it was called, and whether it was away.
    calls: Arc<Mutex<Vec<(Instant, bool)>>>,
    running: Arc<AtomicUsize>,
}

impl Caller {
    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    fn calls_since(&self, since: Instant) -> Vec<Duration> {
        let calls = self.calls.lock().unwrap();
        let since = calls
            .iter()
            .filter_map(|(at, _)| at.checked_duration_since(since));
        since.collect()
    }
}

impl Handler<MemoryStore> for Caller {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, MemoryStore>, event: Event) -> HandlerResult {
        let away = self.away.load(Ordering::Relaxed);
        self.calls.lock().unwrap().push((Instant::now(), away));
        self.running.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        if away {
            return Err(Failure::new("503 Service Unavailable"));
        }
        cx.stage(MemoryRow::new("effect", event.event_id));
        done()
    }
}

/// Events `e0` to `e{n - 1}`, over all lanes.
fn produce(log: &MemoryLog, partitions: i32, range: std::ops::Range<usize>) {
    for n in range {
        let partition = i32::try_from(n).unwrap() % partitions;
        log.produce(partition, event(&format!("e{n}"), &[]));
    }
}

/// Field case 171: 20 workers, an outage of 30 s, 20,000 events. Afterwards no 100 ms see more than
/// three times the mean, and during it there is hardly a call.
#[tokio::test(start_paused = true)]
async fn what_has_recovered_is_not_knocked_down_again() {
    for (ordered, events, seed) in [(true, 4_000, 11), (false, 20_000_usize, 12)] {
        locally(async move {
            let store = MemoryStore::new();
            let (log, queue) = (MemoryLog::new("t", 20), MemoryQueue::standard("q"));
            let handler = Caller::default();
            handler.set_away(true);
            for n in 0..events {
                let message = event(&format!("e{n}"), &[]);
                if ordered {
                    log.produce(i32::try_from(n % 20).unwrap(), message);
                } else {
                    queue.send(message);
                }
            }
            let begun = Instant::now();
            let consumer = if ordered {
                let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone());
                start(consumer.workers(20).seed(seed))
            } else {
                let consumer =
                    Consumer::new("test", queue.source(), store.clone(), handler.clone());
                start(consumer.workers(20).seed(seed))
            };

            tokio::time::sleep(Duration::from_secs(30)).await;
            let during = handler.calls_since(begun);
            handler.set_away(false);
            let back = Instant::now();
            let stats = consumer.stats.clone();
            until("all is done", || {
                usize::try_from(stats.snapshot().applied) == Ok(events)
            })
            .await;
            let stats = consumer.stop().await.unwrap();

            let probes = during.iter().filter(|at| **at > Duration::from_secs(2));
            assert!(probes.count() <= 60, "full jitter, 2.5 s in the mean");
            let calls = handler.calls_since(back);
            // From the first probe that is answered: before it, nobody calls.
            let first = calls[0].as_millis();
            let last = calls.last().unwrap().as_millis() - first;
            let mut windows = vec![0_usize; usize::try_from(last / 10).unwrap() + 1];
            for call in &calls {
                windows[usize::try_from((call.as_millis() - first) / 10).unwrap()] += 1;
            }
            let mean = calls.len() * 100 / usize::try_from(last).unwrap();
            let most = windows
                .windows(10)
                .map(|ten| ten.iter().sum::<usize>())
                .max();
            assert!(
                most.unwrap() <= 3 * mean,
                "{most:?} in 100 ms, {mean} in the mean"
            );
            assert_once(&store, (0..events).map(|n| format!("e{n}")));
            assert_eq!((stats.dead_lettered, stats.circuit_opened), (0, 1));
        })
        .await;
    }
}

/// Nobody is charged while everything fails, however long it takes: within the patience.
#[tokio::test(start_paused = true)]
async fn an_outage_of_what_the_handler_needs_sets_nothing_aside_and_keeps_the_order() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Caller::default(),
        );
        handler.set_away(true);
        produce(&log, 4, 0..400);
        let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .retry(RetrySchedule::default().max_attempts(5));
        let health = consumer.health();
        let consumer = start(consumer);
        until("the circuit is open", || {
            health.snapshot().has(Cause::CircuitOpen)
        })
        .await;
        let detail = health.snapshot().to_string();
        assert!(detail.contains("503 Service Unavailable"), "{detail}");
        // Units that had begun before charge theirs yet.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let charged = consumer.stats.snapshot().attempts_charged;

        tokio::time::sleep(Duration::from_mins(50)).await;
        let during = consumer.stats.snapshot();
        assert_eq!(during.attempts_charged, charged, "{during:?}");
        assert_eq!(store.open_units(), 0, "no connection is held");
        assert_eq!(health.snapshot().reasons().len(), 1);

        handler.set_away(false);
        until_drained(&log, 4).await;
        until("it is ready again", || health.snapshot().is_ready()).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(stats.dead_lettered, 0);
        assert_eq!(stats.circuit_opened, 1);
        for lane in 0..4 {
            let in_order = (store.rows("effect").into_iter())
                .map(|id| id[1..].parse::<usize>().unwrap())
                .filter(|n| n % 4 == lane);
            assert!(in_order.is_sorted(), "lane {lane}");
        }
        assert_once(&store, (0..400).map(|n| format!("e{n}")));
    })
    .await;
}

/// Events that fail for reasons of their own are found out in the end, also when there is one at
/// the head of every lane and nothing else can run.
#[tokio::test(start_paused = true)]
async fn beyond_the_patience_events_are_blamed_again() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 4), MemoryStore::new());
        for lane in 0..4 {
            for n in 0..3 {
                log.produce(lane, event(&format!("bad{lane}{n}"), &["fail"]));
            }
            log.produce(lane, event(&format!("good{lane}"), &[]));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .retry(RetrySchedule::default().max_attempts(5)),
        );
        tokio::time::sleep(Duration::from_mins(59)).await;
        assert_eq!(consumer.stats.snapshot().dead_lettered, 0);
        until_drained(&log, 4).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(stats.dead_lettered, 12);
        assert_once(&store, (0..4).map(|lane| format!("good{lane}")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_poison_event_opens_nothing_while_others_succeed_and_holds_up_nobody() {
    locally(async {
        let (queue, store) = (MemoryQueue::standard("q"), MemoryStore::new());
        queue.send(event("poison", &["fail"]));
        let consumer = Consumer::new("test", queue.source(), store.clone(), Scripted::default());
        let health = consumer.health();
        let consumer = start(consumer);
        until("it is ready", || health.snapshot().is_ready()).await;
        let mut watch = health.watch();
        // One other event now and then, and none at all for a while.
        for n in 0..20 {
            queue.send(event(&format!("e{n}"), &[]));
            tokio::time::sleep(Duration::from_secs(n)).await;
        }
        until("the queue is empty", || queue.remaining() == 0).await;
        assert!(!watch.has_changed().unwrap(), "it was ready all the time");
        assert!(watch.borrow_and_update().is_ready());
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.circuit_opened, stats.dead_lettered), (0, 1));
        assert_once(&store, (0..20).map(|n| format!("e{n}")));
    })
    .await;
}

/// A lane that one bad event holds up, with nothing else to do, is not ready; the event is blamed as
/// ever, and the lane goes on.
#[tokio::test(start_paused = true)]
async fn one_poison_event_that_everything_waits_for_turns_readiness_red_and_is_set_aside() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("poison", &["fail"]));
        log.produce(0, event("next", &[]));
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default());
        let health = consumer.health();
        let consumer = start(consumer);
        until("it is not ready", || {
            health.snapshot().has(Cause::CircuitOpen)
        })
        .await;
        until_drained(&log, 1).await;
        assert!(health.snapshot().is_ready());
        consumer.stop().await.unwrap();
        assert_settled(&store, "poison", Settled::Dead);
        let kinds: Vec<_> = (store.dead_letters().iter().map(|(letter, _)| letter.kind)).collect();
        assert_eq!(kinds, [DeadLetterKind::Exhausted]);
        assert_once(&store, ["next"]);
    })
    .await;
}

/// Nothing is left that fails, and nothing else comes: the consumer is idle, and ready.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_has_set_aside_all_that_failed_is_ready() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..2 {
            log.produce(0, event(&format!("bad{n}"), &["fail"]));
        }
        let consumer = Consumer::new("test", log.source(), store.clone(), Scripted::default())
            .retry(RetrySchedule::default().max_attempts(6))
            .outage_patience(Duration::from_mins(1));
        let health = consumer.health();
        let consumer = start(consumer);
        until("it is not ready", || {
            health.snapshot().has(Cause::CircuitOpen)
        })
        .await;
        until_drained(&log, 1).await;
        assert!(health.snapshot().is_ready(), "{}", health.snapshot());
        let stats = consumer.stop().await.unwrap();
        assert_eq!(stats.dead_lettered, 2);
    })
    .await;
}

/// Field case 170, with more failing events than workers: none of them holds up the good ones for
/// longer than a probe takes to come.
#[tokio::test(start_paused = true)]
async fn good_events_that_come_behind_a_burst_of_bad_ones_are_done_within_ten_seconds() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..10 {
            queue.send(event(&format!("bad{n}"), &["fail"]));
        }
        let consumer = start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().base(Duration::from_mins(1))),
        );
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(consumer.stats.snapshot().circuit_opened, 1);
        let sent = Instant::now();
        for n in 0..100 {
            queue.send(event(&format!("e{n}"), &[]));
        }
        let stats = consumer.stats.clone();
        until("the good ones are done", || stats.snapshot().applied == 100).await;
        assert!(sent.elapsed() < Duration::from_secs(10));
        consumer.stop().await.unwrap();
        let most = (0..10).map(|n| handler.times(&format!("bad{n}"))).max();
        assert!(most <= Some(4), "in company, and once a backoff: {most:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_said_to_be_and_asked_now_and_then() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Caller::default(),
        );
        let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone());
        let health = consumer.health();
        let consumer = start(consumer);
        until("it is ready", || health.snapshot().is_ready()).await;
        store.set_down(true);
        produce(&log, 4, 0..2000);
        tokio::time::sleep(Duration::from_mins(10)).await;
        let now = health.snapshot();
        assert!(
            now.has(Cause::CircuitOpen) && now.has(Cause::StoreAway),
            "{now}"
        );
        let units = consumer.stats.snapshot().units;
        assert!(units < 500, "{units} units in ten minutes");
        store.set_down(false);
        until_drained(&log, 4).await;
        assert!(health.snapshot().is_ready());
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.attempts_charged, stats.circuit_opened), (0, 1));
        assert_once(&store, (0..2000).map(|n| format!("e{n}")));
    })
    .await;
}

/// What waits for the circuit is bounded, and the source keeps its partitions.
#[tokio::test(start_paused = true)]
async fn while_the_circuit_is_open_the_source_is_paused_at_its_limit() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Caller::default(),
        );
        handler.set_away(true);
        produce(&log, 2, 0..2000);
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).in_flight(
                oneffect_core::Limit {
                    messages: 100,
                    bytes: 1 << 20,
                },
            ),
        );
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(log.pauses() > 0);
        assert!(log.owner(0).is_some() && log.owner(1).is_some());
        let in_flight = consumer.stats.snapshot().in_flight;
        handler.set_away(false);
        until_drained(&log, 2).await;
        consumer.stop().await.unwrap();
        assert!(in_flight < 1000, "{in_flight}");
        assert_once(&store, (0..2000).map(|n| format!("e{n}")));
    })
    .await;
}

/// A stop while the circuit is open takes no longer than any other.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_circuit() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Caller::default(),
        );
        handler.set_away(true);
        produce(&log, 4, 0..100);
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let asked = Instant::now();
        let stats = consumer.stop().await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1));
        assert_eq!(stats.circuit_opened, 1);
        assert!(store.rows("effect").is_empty());
    })
    .await;
}

/// Duplicates among the failing events neither close the circuit nor are they held up by it for
/// good.
#[tokio::test(start_paused = true)]
async fn duplicates_do_not_close_the_circuit_while_the_handler_fails() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Caller::default(),
        );
        let send = |id: String| {
            queue.send(Message::new(
                serde_json::json!({ "event_id": id }).to_string(),
            ))
        };
        for n in 0..50 {
            send(format!("old{n}"));
        }
        let consumer = start(Consumer::new(
            "test",
            queue.source(),
            store.clone(),
            handler.clone(),
        ));
        until("the first are done", || queue.remaining() == 0).await;
        handler.set_away(true);
        for n in 0..150 {
            send(if n % 3 == 0 {
                format!("old{}", n / 3)
            } else {
                format!("new{n}")
            });
        }
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(consumer.stats.snapshot().circuit_opened, 1);
        assert_eq!(consumer.stats.snapshot().duplicates, 50);
        handler.set_away(false);
        until("all are done", || queue.remaining() == 0).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.applied, stats.dead_lettered), (150, 0));
    })
    .await;
}
