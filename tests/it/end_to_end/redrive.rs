//! Dead letters that are redriven, on a real broker and real databases.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use oneffect::testing::{MemoryLog, Message};
use oneffect::{
    Cause, Consumer, DeadLetterBounds, DeadLetters, Handler, LetterFilter, Redrive, RedriveAs,
    RetrySchedule, Store,
};

use super::Running;
use super::brokers::{Broker, OnKafka, Sent};
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::{Event, Probe};
use crate::child::{Child, Spec};
use crate::support::until;

/// What the consumers of these tests allow.
const ATTEMPTS: u32 = 12;

fn sent(lane: u32, event: &Event) -> Sent {
    Sent {
        lane,
        payload: serde_json::to_vec(event).unwrap(),
    }
}

/// An event that fails until it is set aside.
fn dead(id: &str) -> Event {
    Event {
        fail: ATTEMPTS,
        ..Event::new(id)
    }
}

async fn mark<S: Store>(store: &S) -> u64 {
    let requested = store
        .request_redrive(&LetterFilter::of("probe"), RedriveAs::Itself)
        .await;
    requested.unwrap().requested
}

async fn letters<S: Store>(store: &S) -> usize {
    let letters = store.list_letters(&LetterFilter::default()).await;
    letters.unwrap().len()
}

async fn assert_once(database: &OnPostgres, n: usize) {
    let effects = database.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(effects.len(), n);
    assert_eq!(database.idle_in_transaction().await, 0);
}

/// From the failure to the effect, while the broker delivers the original again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_redriven_and_takes_effect_once_among_its_duplicates() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let event = dead("x");
    let running = Running::start(&broker, &database).await;
    broker.send(&[sent(0, &event), sent(0, &event)]).await;
    until("it is set aside", async || {
        letters(&database.store()).await == 1
    })
    .await;
    assert_eq!(mark(&database.store()).await, 1);
    let mut round = 0;
    while letters(&database.store()).await > 0 {
        assert!(round < 1200, "it is never redriven");
        broker.send(&[sent(0, &event), sent(1, &event)]).await;
        broker
            .send(&[sent(0, &Event::new(format!("e{round}")))])
            .await;
        round += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    broker.send(&[sent(2, &event)]).await;
    until("all is settled", async || broker.is_drained().await).await;
    let stats = running.stop().await;

    assert_once(&database, 1 + round).await;
    assert_eq!((stats.redriven, stats.redrives_failed), (1, 0));
    assert_eq!(database.settled().await, i64::try_from(1 + round).unwrap());
}

/// The order in which their effects came.
async fn order(database: &OnPostgres) -> Vec<String> {
    let rows = sqlx::query_scalar("SELECT event_id FROM effect ORDER BY seq");
    rows.fetch_all(&database.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_one_key_are_redriven_in_order_and_another_key_does_not_wait() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let running = Running::start(&broker, &database).await;
    broker
        .send(&[unread(0, "a1"), unread(0, "a2"), unread(1, "b1")])
        .await;
    until("all are set aside", async || {
        letters(&database.store()).await == 3
    })
    .await;
    mend(&database, "a1", 1).await;
    mend(&database, "a2", 0).await;
    mend(&database, "b1", 0).await;
    mark(&database.store()).await;
    until("all are redriven", async || {
        letters(&database.store()).await == 0
    })
    .await;
    let stats = running.stop().await;

    assert_once(&database, 3).await;
    assert_eq!((stats.redriven, stats.redrives_failed), (3, 1));
    let order = order(&database).await;
    let place = |id: &str| order.iter().position(|other| other == id);
    assert!(place("a1") < place("a2"), "{order:?}");
    assert!(place("b1") < place("a1"), "{order:?}");
}

const LETTERS: usize = 40;

/// Killed again and again while it redrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_while_it_redrives_does_it_once_more_and_once() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let events: Vec<Sent> = (0..LETTERS)
        .map(|n| unread(u32::try_from(n).unwrap(), &format!("e{n}")))
        .collect();
    broker.send(&events).await;
    let running = Running::start(&broker, &database).await;
    until("all are set aside", async || {
        letters(&database.store()).await == LETTERS
    })
    .await;
    running.stop().await;

    for n in 0..LETTERS {
        mend(&database, &format!("e{n}"), 0).await;
    }
    mark(&database.store()).await;
    let spec = Spec {
        broker: broker.spec(),
        database: database.spec(),
        delay_ms: 20,
    };
    for round in 1..=4 {
        let before = letters(&database.store()).await;
        let child = Child::start(&spec);
        until("it redrives", async || {
            letters(&database.store()).await < before
        })
        .await;
        tokio::time::sleep(Duration::from_millis(9 * round)).await;
        child.kill();
        // The broker brings what is being redriven.
        broker.send(&events[..4]).await;
    }
    let last = Running::start(&broker, &database).await;
    until("all are redriven", async || {
        letters(&database.store()).await == 0
    })
    .await;
    until("all is settled", async || broker.is_drained().await).await;
    last.stop().await;
    assert_once(&database, LETTERS).await;
}

/// An event with an id that does not decode: it is set aside at once.
fn unread(lane: u32, id: &str) -> Sent {
    let payload = format!(r#"{{"event_id":"{id}","fail":"unreadable"}}"#).into();
    Sent { lane, payload }
}

/// Makes the letter of an event one that decodes, and whose handler fails so many times.
async fn mend(database: &OnPostgres, id: &str, fail: u32) {
    let event = Event {
        fail,
        ..Event::new(id)
    };
    let mended =
        sqlx::query("UPDATE dead_letter SET payload = $1 WHERE event_id = event_id_bytes($2)")
            .bind(serde_json::to_vec(&event).unwrap())
            .bind(id)
            .execute(&database.pool)
            .await;
    assert_eq!(mended.unwrap().rows_affected(), 1);
}

/// Polls a future until it waits for the `n`th time, and then drops it.
async fn drop_at<T>(n: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => {
            waits += 1;
            if waits == n {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

/// Dropped at every await point on the way, from the look for letters to the commit.
async fn a_redrive_dropped_at_any_step_takes_effect_once<D: Database>()
where
    Probe: Handler<D::Store>,
{
    let Some(database) = D::fresh().await else {
        return;
    };
    let log = MemoryLog::new("t", 1);
    let message = |event: &Event| Message::new(serde_json::to_vec(event).unwrap());
    let mut ids = Vec::new();
    let mut done = false;
    for n in 1.. {
        let id = format!("e{n}");
        log.produce(0, message(&dead(&id)));
        let running = Running::run(quick(&log, &database, Probe::default()), Probe::default());
        until("it is set aside", async || log.committed(0) == log.end(0)).await;
        running.stop().await;
        ids.push(id);

        let probe = Probe::default();
        // It has failed as often as it does.
        for id in &ids {
            for _ in 0..ATTEMPTS {
                probe.count(id);
            }
        }
        let redrive = Redrive::new("probe", database.store(), probe);
        let all = LetterFilter::default();
        let whole = drop_at(n, redrive.run(all, RedriveAs::Itself)).await;
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().given_up, 0);
            done = letters(&database.store()).await == 0;
        }
        if done {
            break;
        }
    }

    let effects = database.effects().await;
    assert!(ids.len() > 5, "{}", ids.len());
    for id in &ids {
        assert_eq!(effects.get(id), Some(&1), "{id}");
    }
    assert_eq!(database.settled().await, i64::try_from(ids.len()).unwrap());
    assert_eq!(database.idle_in_transaction().await, 0);
}

/// A consumer that sets aside at once what fails.
fn quick<D: Database>(
    log: &MemoryLog,
    database: &D,
    probe: Probe,
) -> Consumer<oneffect::testing::MemoryLogSource, D::Store, Probe>
where
    Probe: Handler<D::Store>,
{
    super::consumer(log.source(), database, probe).retry(RetrySchedule::default().max_attempts(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_redrive_dropped_at_any_step_takes_effect_once() {
    a_redrive_dropped_at_any_step_takes_effect_once::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_redrive_dropped_at_any_step_takes_effect_once() {
    a_redrive_dropped_at_any_step_takes_effect_once::<OnSqlite>().await;
}

/// Field case 168: the table is full, and only the lanes that need it stand still.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_stops_a_partition_and_the_others_go_on() {
    let (Some(broker), Some(database)) = (OnKafka::fresh().await, OnPostgres::fresh().await) else {
        return;
    };
    let probe = Probe::default();
    let consumer = super::consumer(broker.source().await, &database, probe.clone())
        .dead_letters(DeadLetterBounds::default().letters(1));
    let health = consumer.health();
    let running = Running::run(consumer, probe);
    let unreadable = |lane| Sent {
        lane,
        payload: b"unreadable".to_vec(),
    };
    broker.send(&[unreadable(0)]).await;
    until("it is set aside", async || {
        letters(&database.store()).await == 1
    })
    .await;
    broker
        .send(&[unreadable(0), sent(0, &Event::new("behind"))])
        .await;
    until("it stands still", async || {
        health.snapshot().has(Cause::DeadLettersFull)
    })
    .await;
    let others: Vec<Sent> = (0..100)
        .map(|n| sent(1 + n % 3, &Event::new(format!("e{n}"))))
        .collect();
    broker.send(&others).await;
    until("the others are through", async || {
        database.effects().await.len() == 100
    })
    .await;
    assert_eq!(letters(&database.store()).await, 1);
    assert!(!broker.is_drained().await);

    let all = LetterFilter::default();
    assert_eq!(database.store().discard_letters(&all).await.unwrap(), 1);
    until("all is settled", async || broker.is_drained().await).await;
    assert!(health.snapshot().is_ready());
    let stats = running.stop().await;
    assert_once(&database, 101).await;
    assert_eq!(
        (stats.dead_lettered, letters(&database.store()).await),
        (2, 1)
    );
}
