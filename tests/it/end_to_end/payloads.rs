//! Bytes and ids that databases do not like, from a log in memory to real databases.

use oneffect::testing::{MemoryLog, Message};

use super::Running;
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::{Event, Probe};
use crate::support::until;

fn message(event: &Event) -> Message {
    Message::new(serde_json::to_vec(event).unwrap())
}

async fn until_drained(log: &MemoryLog) {
    until("all is settled", async || log.committed(0) == log.end(0)).await;
}

/// Field case 086: one batch of good events, and some that hold what a database does not take as
/// text. The good ones take effect, the others are set aside whole.
async fn what_a_database_refuses_spoils_nobody_elses_effect<D: Database>()
where
    Probe: oneffect::Handler<D::Store>,
{
    let Some(database) = D::fresh().await else {
        return;
    };
    let log = MemoryLog::new("t", 1);
    for n in 0..48 {
        log.produce(0, message(&Event::new(format!("e{n}"))));
        match n {
            20 => {
                log.produce(0, message(&Event::new("nul\0nul")));
            }
            30 => {
                log.produce(0, Message::new("not json").header("n\0l", "a\0b"));
            }
            40 => {
                log.produce(0, Message::new(&b"{\"event_id\": \"\xff\"}"[..]));
            }
            _ => {}
        }
    }
    let consumer = Running::start_with(log.source(), &database, Probe::default());
    until_drained(&log).await;
    let stats = consumer.stop().await;

    let effects = database.effects().await;
    for n in 0..48 {
        assert_eq!(effects.get(&format!("e{n}")), Some(&1), "e{n}");
    }
    let letters: i64 = database.dead_letters().await.values().sum();
    // An id with NUL is fine for the inbox; whether the handler's own table takes it is the
    // database's affair: PostgreSQL's text does not, SQLite's does.
    let with_effect = i64::try_from(effects.len()).unwrap() - 48;
    assert_eq!(letters + with_effect, 3, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_refuses_spoils_nobody_elses_effect() {
    what_a_database_refuses_spoils_nobody_elses_effect::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sqlite_refuses_spoils_nobody_elses_effect() {
    what_a_database_refuses_spoils_nobody_elses_effect::<OnSqlite>().await;
}

/// Field case 088: an id up to the limit works and is recognised; a longer one is refused before
/// the database sees it, with no retries.
async fn ids_work_up_to_their_limit_and_longer_ones_are_set_aside<D: Database>()
where
    Probe: oneffect::Handler<D::Store>,
{
    let Some(database) = D::fresh().await else {
        return;
    };
    let log = MemoryLog::new("t", 1);
    // Not compressible, as real ids are not: a compressed key would fit where a real one does not.
    let id = |len: usize| -> String {
        (0..len)
            .map(|n| char::from(b'a' + u8::try_from((n * n + 7 * n) % 23).unwrap()))
            .collect()
    };
    for len in [10, 255, 256, 1024, 1025, 2704, 5000, 1_000_000] {
        for _ in 0..2 {
            log.produce(0, message(&Event::new(id(len))));
        }
    }
    let consumer = Running::start_with(log.source(), &database, Probe::default());
    until_drained(&log).await;
    let stats = consumer.stop().await;

    assert_eq!((stats.applied, stats.duplicates), (4, 4), "{stats:?}");
    assert_eq!(
        (stats.dead_lettered, stats.attempts_charged),
        (8, 0),
        "{stats:?}"
    );
    let effects = database.effects().await;
    assert_eq!(effects.len(), 4);
    assert!(effects.values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_ids_work_up_to_their_limit() {
    ids_work_up_to_their_limit_and_longer_ones_are_set_aside::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_ids_work_up_to_their_limit() {
    ids_work_up_to_their_limit_and_longer_ones_are_set_aside::<OnSqlite>().await;
}
