//! A handler that takes its process along, in processes of their own.

use std::time::Duration;

use super::brokers::{Broker, OnFifoQueue, OnKafka, Sent};
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::Event;
use crate::child::{Child, Spec};

const CRASHES: u32 = 2;

async fn a_crash_loop_ends<B: Broker, D: Database>() {
    let (Some(broker), Some(database)) = (B::fresh().await, D::fresh().await) else {
        return;
    };
    let mut aborts = Event::new("aborts");
    aborts.abort = true;
    let events = |range: std::ops::Range<u32>| range.map(|n| (n % 4, Event::new(format!("e{n}"))));
    let all = events(0..20).chain([(1, aborts)]).chain(events(20..40));
    let sent = all.map(|(lane, event)| Sent {
        lane,
        payload: serde_json::to_vec(&event).unwrap(),
    });
    broker.send(&sent.collect::<Vec<_>>()).await;
    let spec = Spec {
        broker: broker.spec(),
        database: database.spec(),
        delay_ms: 5,
        crash_guard: Some(CRASHES),
    };

    let mut deaths = 0;
    let mut child = Child::start(&spec);
    for _ in 0..2400 {
        if child.has_ended() {
            deaths += 1;
            assert!(deaths <= 1 + CRASHES, "the crash loop does not end");
            child = Child::start(&spec);
        } else if broker.is_drained().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    child.signal("TERM");
    assert_eq!(child.ended(), Some(0));

    assert_eq!(deaths, 1 + CRASHES, "once in company, then alone");
    let letters = database.dead_letters().await;
    assert_eq!(
        letters.into_iter().collect::<Vec<_>>(),
        [("crashed".to_owned(), 1)]
    );
    let effects = database.effects().await;
    assert!(effects.values().all(|n| *n == 1), "{effects:?}");
    assert_eq!((effects.len(), database.settled().await), (40, 41));
    assert_eq!(database.started().await, 0, "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_ends_on_kafka_and_postgres() {
    a_crash_loop_ends::<OnKafka, OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_ends_on_a_fifo_queue_and_sqlite() {
    a_crash_loop_ends::<OnFifoQueue, OnSqlite>().await;
}
