//! What only a whole process can suffer, and what only a real broker does to it.

use std::time::Duration;

use super::brokers::{Broker, OnKafka, OnStandardQueue, Sent};
use super::databases::{Database, DatabaseSpec, OnPostgres};
use super::handler::{Event, Probe};
use super::{Running, consumer};
use crate::child::{Child, Spec};
use crate::support::until;

fn sent(lane: u32, event: &Event) -> Sent {
    Sent {
        lane,
        payload: serde_json::to_vec(event).unwrap(),
    }
}

fn plain(range: std::ops::Range<usize>) -> Vec<Sent> {
    let lane = |n| u32::try_from(n).unwrap();
    range
        .map(|n| sent(lane(n), &Event::new(format!("e{n}"))))
        .collect()
}

/// E = 1 for `e0` up to `e{n - 1}`, and for nothing else.
async fn assert_once(database: &OnPostgres, n: usize) {
    let effects = database.effects().await;
    let wrong: Vec<_> = effects.iter().filter(|(_, count)| **count != 1).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(effects.len(), n);
    assert_eq!(database.idle_in_transaction().await, 0);
}

/// Field case 111: killed again and again, at whatever point it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_again_and_again_loses_nothing_and_doubles_nothing() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    broker.send(&plain(0..300)).await;
    let spec = Spec {
        broker: broker.spec(),
        database: database.spec(),
        delay_ms: 5,
        crash_guard: None,
    };
    for round in 1..=5 {
        let before = database.effects().await.len();
        let child = Child::start(&spec);
        until("it has had effects", async || {
            database.effects().await.len() > before
        })
        .await;
        // Somewhere within the next batches, a different place each time.
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        child.kill();
    }
    let last = Running::start(&broker, &database).await;
    until("all is settled", async || broker.is_drained().await).await;
    last.stop().await;
    assert_once(&database, 300).await;
}

/// A frozen process loses its transaction by the server's deadline, and its partitions by the
/// group's: another consumer settles the event. When it thaws it does no harm. Field case 010.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_loses_its_keys_and_does_no_harm_when_it_thaws() {
    freeze_and_thaw(None).await;
}

/// It holds its keys for as long as it can, so it has not crashed: under the crash guard its events
/// run alone elsewhere, and none is set aside.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_is_not_taken_for_a_crashed_one() {
    freeze_and_thaw(Some(1)).await;
}

async fn freeze_and_thaw(crash_guard: Option<u32>) {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    broker.send(&plain(0..40)).await;
    let mut spec = database.spec();
    if let DatabaseSpec::Postgres(spec) = &mut spec {
        spec.idle_deadline = 2000;
    }
    let child = Child::start(&Spec {
        broker: broker.spec(),
        database: spec,
        delay_ms: 300,
        crash_guard,
    });
    // Frozen between two units it would hold nothing: thaw it, and try again.
    loop {
        until("it holds a transaction", async || {
            database.idle_in_transaction().await > 0
        })
        .await;
        child.signal("STOP");
        tokio::time::sleep(Duration::from_millis(100)).await;
        if database.idle_in_transaction().await > 0 {
            break;
        }
        child.signal("CONT");
    }

    let probe = Probe::default();
    let mut other = consumer(broker.source().await, &database, probe.clone());
    if let Some(crashes) = crash_guard {
        other = other.crash_guard(crashes);
    }
    let other = Running::run(other, probe);
    until("the other has settled all", async || {
        broker.is_drained().await
    })
    .await;
    assert_once(&database, 40).await;

    child.signal("CONT");
    broker.send(&plain(40..60)).await;
    until("both go on", async || broker.is_drained().await).await;
    other.stop().await;
    broker.send(&plain(60..70)).await;
    until("the thawed one takes over", async || {
        broker.is_drained().await
    })
    .await;
    child.signal("TERM");
    assert_eq!(child.ended(), Some(0));
    assert_once(&database, 70).await;
    assert!(database.dead_letters().await.is_empty());
    assert_eq!(database.started().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_and_exits_with_zero() {
    let (Some(broker), Some(database)) =
        (OnStandardQueue::fresh().await, OnPostgres::fresh().await)
    else {
        return;
    };
    broker.send(&plain(0..100)).await;
    let child = Child::start(&Spec {
        broker: broker.spec(),
        database: database.spec(),
        delay_ms: 50,
        crash_guard: None,
    });
    until("it works", async || !database.effects().await.is_empty()).await;
    child.signal("TERM");
    assert_eq!(child.ended(), Some(0));
    // Field case 071: what it had not begun is visible again, not hidden for a timeout.
    until("nothing is left hidden", async || {
        broker.remaining().await.1 == 0
    })
    .await;
    let done = i64::try_from(database.effects().await.len()).unwrap();
    assert_eq!(
        broker.remaining().await.0,
        100 - done,
        "what was committed is deleted"
    );
}

/// Field case 009: a handler slower than `max.poll.interval.ms` costs no rebalance and runs once.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_poll_interval_keeps_its_partition() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let mut slow = Event::new("e0");
    slow.delay_ms = 9_000;
    let source = broker.spec.source().set("max.poll.interval.ms", "5000");
    let a = Running::start_with(source, &database, Probe::default());
    broker.send(&[sent(0, &slow)]).await;
    until("it runs", async || a.probe.times("e0") == 1).await;
    broker.send(&plain(1..50)).await;
    until("all is settled", async || broker.is_drained().await).await;
    assert_eq!(a.probe.times("e0"), 1);
    let stats = a.stop().await;
    assert_eq!((stats.dropped, stats.late), (0, 0), "no rebalance");
    assert_once(&database, 50).await;
}

/// Field case 101: PostgreSQL answers ROLLBACK, without an error, to the COMMIT of a transaction in
/// which a statement has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_sql_error_is_never_acknowledged_without_its_effect() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let mut swallows = Event::new("e1");
    swallows.swallow = 3;
    broker
        .send(&[
            sent(0, &Event::new("e0")),
            sent(0, &swallows),
            sent(0, &Event::new("e2")),
        ])
        .await;
    let consumer = Running::start(&broker, &database).await;
    until("all is settled", async || broker.is_drained().await).await;
    assert!(consumer.probe.times("e1") > 3);
    consumer.stop().await;
    assert_once(&database, 3).await;
}

/// Field case 127: sessions that are killed are nobody's fault, and the loop lives on.
#[tokio::test(flavor = "multi_thread")]
async fn killed_database_sessions_cost_nothing_but_time() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    broker.send(&plain(0..500)).await;
    let source = broker.source().await;
    let consumer = Running::start_with(
        source,
        &database,
        Probe::with_delay(Duration::from_millis(2)),
    );
    let killer = sqlx::PgPool::connect(&std::env::var("DATABASE_URL").unwrap())
        .await
        .unwrap();
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
        )
        .bind(database.session_name())
        .execute(&killer)
        .await
        .unwrap();
    }
    until("all is settled", async || broker.is_drained().await).await;
    let stats = consumer.stop().await;
    assert_eq!((stats.attempts_charged, stats.dead_lettered), (0, 0));
    assert_once(&database, 500).await;
}

/// Field case 174: duplicates are routine.
#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_counted_and_nothing_else() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let mut messages = plain(0..700);
    messages.extend(plain(0..300));
    broker.send(&messages).await;
    let consumer = Running::start(&broker, &database).await;
    until("all is settled", async || broker.is_drained().await).await;
    let stats = consumer.stop().await;
    assert_eq!(
        (stats.applied, stats.duplicates, stats.put_back),
        (700, 300, 0)
    );
    assert_eq!(
        (stats.pauses, stats.second_runs, stats.attempts_charged),
        (0, 0, 0)
    );
    assert_once(&database, 700).await;
}
