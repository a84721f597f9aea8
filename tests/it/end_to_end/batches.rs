//! Handlers that are given whole batches, on real databases.

use std::time::Duration;

use oneffect::testing::{MemoryLog, Message};
use oneffect::{
    BatchContext, BatchHandler, BatchResult, Consumer, Failure, Fresh, Lanes, Postgres,
    RetrySchedule, RunError, Sqlite, Store, StoreError, done, each, reject,
};

use super::Running;
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::{Event, Probe};
use crate::support::until;

/// Writes what all good events say, statement by statement, and answers for each.
#[derive(Clone, Default)]
struct AtOnce {
    probe: Probe,
    /// It writes before it decides.
    rash: bool,
}

macro_rules! writes_to {
    ($store:ident, $insert:literal) => {
        impl BatchHandler<$store> for AtOnce {
            type Event = Event;

            async fn handle(
                &self,
                cx: &mut BatchContext<'_, $store>,
                events: Vec<Fresh<'_, Event>>,
            ) -> BatchResult {
                let nth: Vec<u32> = (events.iter())
                    .map(|event| self.probe.count(&event.event_id))
                    .collect();
                for (event, nth) in events.iter().zip(&nth) {
                    assert!(!event.panic || *nth > event.fail, "the handler's own panic");
                    if self.rash || !event.reject {
                        sqlx::query($insert)
                            .bind(&event.event_id)
                            .execute(&mut *cx.db().await?)
                            .await?;
                    }
                }
                each(events.iter().zip(nth).map(|(event, nth)| {
                    if nth <= event.fail {
                        return Err(Failure::new("not now"));
                    }
                    if event.reject {
                        reject("never")
                    } else {
                        done()
                    }
                }))
            }
        }
    };
}

writes_to!(Postgres, "INSERT INTO effect (event_id) VALUES ($1)");
writes_to!(Sqlite, "INSERT INTO effect (event_id) VALUES (?)");

fn message(event: &Event) -> Message {
    Message::new(serde_json::to_vec(event).unwrap())
}

async fn batches_take_effect_once<D: Database>()
where
    AtOnce: BatchHandler<D::Store>,
{
    for lanes in [Lanes::Partition, Lanes::Key] {
        let Some(database) = D::fresh().await else {
            return;
        };
        let log = MemoryLog::new("t", 1);
        for n in 0..600 {
            let mut event = Event::new(format!("e{n}"));
            match n % 100 {
                17 => event.reject = true,
                31 => event.fail = 2,
                53 => (event.panic, event.fail) = (true, 1),
                _ => {}
            }
            log.produce(0, message(&event).key(format!("{}", n % 50)));
            if n % 5 == 0 {
                log.produce(0, message(&event).key(format!("{}", n % 50)));
            }
        }
        let consumer =
            Consumer::batches("batch", log.source(), database.store(), AtOnce::default())
                .lanes(lanes)
                .retry(RetrySchedule::default().base(Duration::from_millis(1)));
        let consumer = Running::run_batches(consumer);
        until("all is settled", async || log.committed(0) == log.end(0)).await;
        let stats = consumer.stop().await;

        let effects = database.effects().await;
        assert_eq!((effects.len(), effects.values().max()), (594, Some(&1)));
        assert_eq!((stats.rejected, stats.dead_lettered), (6, 0), "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_on_postgres_take_effect_once() {
    batches_take_effect_once::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_on_sqlite_take_effect_once() {
    batches_take_effect_once::<OnSqlite>().await;
}

/// What nothing could undo is found out in debug builds.
#[cfg(debug_assertions)]
async fn who_writes_and_rejects_is_found_out<D: Database>()
where
    AtOnce: BatchHandler<D::Store>,
    D::Store: Store,
{
    let Some(database) = D::fresh().await else {
        return;
    };
    let log = MemoryLog::new("t", 1);
    for n in 0..40 {
        let mut event = Event::new(format!("e{n}"));
        event.reject = n == 30;
        log.produce(0, message(&event));
    }
    let rash = AtOnce {
        rash: true,
        ..AtOnce::default()
    };
    let consumer = Consumer::batches("batch", log.source(), database.store(), rash).workers(1);
    let Err(RunError::Store(StoreError::Misconfigured { message, .. })) =
        consumer.run(std::future::pending()).await
    else {
        panic!("it was not found out");
    };
    assert!(message.contains("e30"), "{message}");
    assert!(!database.effects().await.contains_key("e30"));
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn who_writes_to_postgres_and_rejects_is_found_out() {
    who_writes_and_rejects_is_found_out::<OnPostgres>().await;
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn who_writes_to_sqlite_and_rejects_is_found_out() {
    who_writes_and_rejects_is_found_out::<OnSqlite>().await;
}
