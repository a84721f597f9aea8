//! User code, sources and options that do what they should not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use oneffect_core::testing::{Call, MemoryLog, MemoryRow, MemoryStore, Unreliable};
use oneffect_core::{
    Assignment, AssignmentId, Blame, Consumer, Context, Decode, DecodeError, Delivery, EventId,
    EventKey, Handler, HandlerResult, IdFrom, Limit, Position, RetrySchedule, RunError, Settled,
    Settlement, Source, SourceError, SourceEvent, StoreError, Tenant, TenantFrom, done, handler_fn,
};
use tokio::time::Instant;

use super::bench::*;

/// Reads the event as [`Event`] does, and panics where it says so.
#[derive(Debug)]
struct Fragile(String);

impl Decode for Fragile {
    fn decode(delivery: &Delivery) -> Result<Self, DecodeError> {
        let event = Event::decode(delivery)?;
        assert!(event.script.is_empty(), "index out of bounds");
        Ok(Self(event.event_id))
    }
}

async fn have_effect(cx: &mut Context<'_, MemoryStore>, event: Fragile) -> HandlerResult {
    cx.db().await?.append("effect", event.0).await?;
    done()
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_decoding_is_a_dead_letter_and_its_lane_goes_on() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for (id, script) in [("a", &[][..]), ("b", &["go"]), ("c", &[])] {
            log.produce(0, event(id, script));
        }
        let handler = handler_fn(|cx, event: Fragile| have_effect(cx, event).boxed());
        let consumer = start(Consumer::new("test", log.source(), store.clone(), handler));
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a", "c"]);
        assert_settled(&store, "b", Settled::Dead);
        let (letter, _) = &store.dead_letters()[0];
        assert!(letter.error.contains("out of bounds"), "{}", letter.error);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_looking_for_the_id_is_a_dead_letter_and_no_crash() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for id in ["a", "b", "c"] {
            log.produce(0, event(id, &[]));
        }
        let find = IdFrom::closure(|delivery| {
            let event = Event::decode(delivery).unwrap();
            assert_ne!(event.event_id, "b", "no such thing");
            Ok(EventKey::new(EventId::new(event.event_id)?))
        });
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default()).event_id(find),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a", "c"]);
        let (letter, _) = &store.dead_letters()[0];
        assert!(letter.error.contains("no such thing"), "{}", letter.error);
    })
    .await;
}

/// A closure can panic before it returns its future.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_before_its_future_exists_is_charged_like_any_other() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for id in ["a", "b", "c"] {
            log.produce(0, event(id, &[]));
        }
        let handler = handler_fn(|cx: &mut Context<'_, MemoryStore>, event: Event| {
            assert_ne!(event.event_id, "b", "no way");
            have_effect(cx, Fragile(event.event_id)).boxed()
        });
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler)
                .retry(RetrySchedule::default().max_attempts(3)),
        );
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a", "c"]);
        assert_settled(&store, "b", Settled::Dead);
        assert_eq!(stats.attempts_charged, 3);
    })
    .await;
}

/// An error that cannot even be shown is still that event's failure.
#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_shown_is_charged_like_any_other() {
    #[derive(Debug)]
    struct Shy;
    impl std::fmt::Display for Shy {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("do not look")
        }
    }
    impl std::error::Error for Shy {}
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, event("a", &[]));
        let handler = handler_fn(|_: &mut Context<'_, MemoryStore>, _: Event| {
            async { Err(Shy.into()) }.boxed()
        });
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler)
                .retry(RetrySchedule::default().max_attempts(3)),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_settled(&store, "a", Settled::Dead);
    })
    .await;
}

/// Stages a row, and gives up on `cx.db()` while that row is being written.
struct Impatient;

impl<S> Handler<S> for Impatient
where
    S: oneffect_core::Store<Connection = oneffect_core::testing::MemoryConnection, Row = MemoryRow>,
{
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, S>, event: Event) -> HandlerResult {
        let first_try = cx.attempt() == 1;
        if event.script.is_empty() {
            cx.db().await?;
        }
        cx.stage(MemoryRow::new("effect", event.event_id));
        if first_try {
            // Polled once: the write has begun, and has not ended.
            assert!(cx.db().now_or_never().is_none());
        }
        done()
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_write_was_dropped_midway_is_not_lost() {
    for script in [&[][..], &["go"]] {
        for company in [0, 3] {
            in_every_lane(|| async move {
                let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
                let ids: Vec<String> = (0..=company).map(|n| format!("e{n}")).collect();
                for id in &ids {
                    log.produce(0, event(id, script));
                }
                let consumer = start(Consumer::new(
                    "test",
                    log.source(),
                    store.clone(),
                    Impatient,
                ));
                until_drained(&log, 1).await;
                consumer.stop().await.unwrap();
                assert_once(&store, ids);
            })
            .await;
        }
    }
}

/// Stages a row, and does not care whether it can be written.
struct Careless;

impl Handler<Unreliable<MemoryStore>> for Careless {
    type Event = Event;

    async fn handle(
        &self,
        cx: &mut Context<'_, Unreliable<MemoryStore>>,
        event: Event,
    ) -> HandlerResult {
        cx.stage(MemoryRow::new("effect", event.event_id));
        let _ = cx.db().await;
        done()
    }
}

/// Not every database aborts the transaction of a failed statement.
#[tokio::test(start_paused = true)]
async fn a_row_that_could_not_be_written_is_not_lost_when_the_handler_says_that_all_is_well() {
    in_every_lane(|| async {
        let (log, memory) = (MemoryLog::new("t", 1), MemoryStore::new());
        let store = Unreliable::new(memory.clone());
        store.fail_next(Call::Write, Blame::Event);
        for id in ["a", "b", "c"] {
            log.produce(0, event(id, &[]));
        }
        let consumer = start(Consumer::new("test", log.source(), store, Careless));
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_once(&memory, ["a", "b", "c"]);
    })
    .await;
}

/// Found out by the savepoint rather than by the commit, it is the same mistake.
#[tokio::test(start_paused = true)]
async fn a_handler_that_commits_inside_a_savepoint_stops_the_consumer() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let handler = Scripted::default();
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        for n in 0..4 {
            log.produce(0, event(&format!("r{n}"), &["reject_late"]));
        }
        until_drained(&log, 1).await;
        log.produce(0, event("x", &["commit"]));
        let error = consumer.ended().await.unwrap_err();
        assert!(
            matches!(error, RunError::Store(StoreError::HandlerEndedTransaction)),
            "{error:?}"
        );
        assert_eq!(log.committed(0), 4, "it is not acknowledged");
        assert_eq!(handler.times("x"), 1);
    })
    .await;
}

/// Hands out one event, and has failed for good then.
#[derive(Debug, Default)]
struct Broken {
    said: usize,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Source for Broken {
    fn system(&self) -> &'static str {
        "memory"
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        self.said += 1;
        match self.said {
            1 => Ok(SourceEvent::Assigned(vec![Assignment {
                id: AssignmentId(1),
                name: "broken".into(),
            }])),
            2 => {
                let position = Position::Log {
                    topic: "t".into(),
                    partition: 0,
                    offset: 0,
                };
                let payload = event("x", &["slow"]).payload;
                let delivery = Delivery::new(position, AssignmentId(1), 0, payload);
                Ok(SourceEvent::Deliveries(vec![delivery]))
            }
            _ => {
                // Without this the test would not end, but hang.
                assert!(
                    self.asked.fetch_add(1, Ordering::Relaxed) < 1000,
                    "it spins"
                );
                Err(SourceError::fatal("gone"))
            }
        }
    }

    fn settle(&mut self, _: &[Settlement]) {}

    fn pause(&mut self, _: AssignmentId) {}

    fn resume(&mut self, _: AssignmentId) {}

    fn longest_hold(&self, _: bool) -> Duration {
        Duration::MAX
    }

    fn stop_receiving(&mut self) {}

    async fn close(self: Box<Self>, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_failed_is_not_asked_again_while_units_drain() {
    locally(async {
        let (source, store) = (Broken::default(), MemoryStore::new());
        let asked = Arc::clone(&source.asked);
        let consumer = start(Consumer::new(
            "test",
            source,
            store.clone(),
            Scripted::default(),
        ));
        let error = consumer.ended().await.unwrap_err();
        assert!(matches!(error, RunError::Source(_)), "{error:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_once(&store, ["x"]);
    })
    .await;
}

/// "As long as it takes" is said with the largest duration there is.
#[tokio::test(start_paused = true)]
async fn the_largest_limits_there_are_do_no_harm() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        let most = Limit {
            messages: usize::MAX,
            bytes: usize::MAX,
        };
        let forever = RetrySchedule::default()
            .base(Duration::MAX)
            .cap(Duration::MAX);
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .batch(most)
                .in_flight(most)
                .drain(Duration::MAX)
                .handler_timeout(Duration::MAX)
                .accept_short_window("no window is as long as for ever")
                .retry(forever),
        );
        for n in 0..100 {
            log.produce(0, event(&format!("e{n}"), &[]));
            until("it is through", || log.committed(0) == log.end(0)).await;
        }
        log.produce(1, event("never again", &["fail"]));
        until("it is charged", || {
            store.attempts("test", &key("never again")).is_some()
        })
        .await;
        until("it waits", || store.open_units() == 0).await;
        log.produce(0, event("slow", &["slow"]));
        until("it runs", || handler.times("slow") == 1).await;
        let begun = Instant::now();
        consumer.stop().await.unwrap();
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert_eq!(handler.times("never again"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_looking_for_the_tenant_is_a_dead_letter_and_no_crash() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for id in ["a", "b", "c"] {
            log.produce(0, event(id, &[]));
        }
        let find = TenantFrom::closure(|delivery| {
            let event = Event::decode(delivery).unwrap();
            assert_ne!(event.event_id, "b", "no such thing");
            Tenant::new("shop")
        });
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default()).tenant(find),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a", "c"]);
        let (letter, _) = &store.dead_letters()[0];
        assert!(letter.error.contains("no such thing"), "{}", letter.error);
    })
    .await;
}
