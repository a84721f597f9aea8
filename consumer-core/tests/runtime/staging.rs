//! Staged rows that the database does not take.

use oneffect_core::testing::{
    Call, MemoryConnection, MemoryLog, MemoryRow, MemoryStore, Unreliable,
};
use oneffect_core::{
    Blame, Consumer, Context, Handler, HandlerResult, Lanes, RetrySchedule, Settled, Stats, Store,
    done,
};
use std::sync::{Arc, Mutex};

use super::bench::*;

/// Stages a row that may be there once: `x-7` stands for the row `x`, and is event 7.
#[derive(Clone, Default)]
struct Unique {
    entered: Arc<Mutex<Vec<String>>>,
}

impl<S: Store<Connection = MemoryConnection, Row = MemoryRow>> Handler<S> for Unique {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, S>, event: Event) -> HandlerResult {
        self.entered.lock().unwrap().push(event.event_id.clone());
        let row = event.event_id.split('-').next().unwrap().to_owned();
        if !event.staged {
            // Sees all that was staged before it.
            let rows = cx.db().await?.rows("effect").await?;
            cx.db()
                .await?
                .append("seen", rows.len().to_string())
                .await?;
        }
        cx.stage(MemoryRow::unique("effect", row));
        cx.stage(MemoryRow::new("all", event.event_id));
        done()
    }
}

impl Unique {
    fn times(&self, id: &str) -> usize {
        let entered = self.entered.lock().unwrap();
        entered.iter().filter(|other| *other == id).count()
    }
}

/// Sixty events in a batch, each with a row of its own but for three that repeat another's: each of
/// them in a lane of its own, or all in one.
async fn run(
    make: fn(&str, &[&str]) -> oneffect_core::testing::Message,
) -> (MemoryStore, Unique, Stats) {
    let (log, store, handler) = (
        MemoryLog::new("t", 1),
        MemoryStore::new(),
        Unique::default(),
    );
    let consumer = start(
        Consumer::new("test", log.source(), store.clone(), handler.clone())
            .workers(1)
            .retry(RetrySchedule::default().max_attempts(2)),
    );
    // Batches have grown.
    for n in 0..200 {
        log.produce(0, staged(&format!("warm{n}"), &[]));
    }
    until_drained(&log, 1).await;
    for n in 0..60 {
        let row = if n % 20 == 19 { n - 10 } else { n };
        log.produce(0, make(&format!("r{row:02}-{n:02}"), &[]));
    }
    until_drained(&log, 1).await;
    let stats = consumer.stop().await.unwrap();
    assert_eq!(store.open_units(), 0);
    (store, handler, stats)
}

#[tokio::test(start_paused = true)]
async fn a_row_that_breaks_a_constraint_fails_its_own_event_and_its_neighbours_take_effect() {
    for make in [event, staged] {
        in_every_lane(|| async move {
            let (store, handler, stats) = run(make).await;
            assert_eq!((stats.applied, stats.dead_lettered), (257, 3));
            assert_eq!(
                stats.attempts_charged, 6,
                "two for each, and none for another"
            );
            for n in 0..60 {
                let bad = n % 20 == 19;
                let row = if bad { n - 10 } else { n };
                let id = format!("r{row:02}-{n:02}");
                assert_settled(&store, &id, if bad { Settled::Dead } else { DONE });
                assert!(handler.times(&id) > 0);
            }
            let rows: Vec<_> = store
                .rows("all")
                .into_iter()
                .filter(|id| id.starts_with('r'))
                .collect();
            assert_eq!(rows.len(), 57);
        })
        .await;
    }
}

/// The handlers of a batch whose write has failed are not asked again.
#[tokio::test(start_paused = true)]
async fn handlers_are_not_run_again_to_find_the_row_that_breaks_a_constraint() {
    in_every_lane(|| async {
        let (_, handler, stats) = run(staged).await;
        let entered = handler.entered.lock().unwrap().len();
        // Behind a culprit its own lane's events are begun again.
        let lanes_own = if stats.second_runs > 0 { 3 * 60 } else { 0 };
        assert!(entered <= 200 + 60 + 3 * 3 + lanes_own, "{entered}");
        assert!(stats.second_runs <= 3);
    })
    .await;
    in_lanes(Lanes::Unordered, async {
        let (_, handler, _) = run(staged).await;
        let entered = handler.entered.lock().unwrap().len();
        assert_eq!(
            entered,
            200 + 60 + 3 * 2,
            "once, and each culprit's two attempts"
        );
    })
    .await;
}

/// What follows the culprit in its lane is not there before it: its rows went with it.
#[tokio::test(start_paused = true)]
async fn the_order_of_a_lane_survives_a_row_that_cannot_be_written_at_first() {
    for lanes in [Lanes::Partition, Lanes::Key] {
        for nth in 0..12 {
            in_lanes(lanes, async move {
                let (log, memory) = (MemoryLog::new("t", 2), MemoryStore::new());
                let store = Unreliable::new(memory.clone());
                for n in 0..40 {
                    let (partition, lane) = (n % 2, u32::try_from(n % 3).unwrap());
                    let make = if n % 5 == 0 { event } else { staged };
                    let message = make(&format!("p{partition}k{lane}-{n:02}"), &[]);
                    log.produce(partition, of_key(message, partition, lane));
                }
                // The write itself, and some of its halves.
                for _ in 0..nth {
                    store.fail_next(Call::Write, Blame::Event);
                }
                let consumer = start(
                    Consumer::new("test", log.source(), store, Scripted::default()).workers(1),
                );
                until_drained(&log, 2).await;
                let stats = consumer.stop().await.unwrap();
                assert_in_order(&memory);
                assert_eq!((stats.applied, memory.rows("effect").len()), (40, 40));
                assert_eq!(stats.dead_lettered, 0);
            })
            .await;
        }
    }
}
