//! What only SQLite can get wrong.

use oneffect_core::testing::store_contract::{Fixture, ageless};
use oneffect_core::{
    Begin, Blame, Claim, ConsumerId, DaysFrom, EventId, EventKey, Prior, Settled, Store,
    StoreError, Unit, Verdict,
};
use oneffect_sqlite::{SCHEMA_VERSION, Sqlite, SqliteConfig, SqliteUnit};
use sqlx::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

use crate::store_contract::sqlite::OnSqlite;

const DUPLICATE: Verdict = Verdict::Duplicate {
    settled: Settled::Done { reply: None },
    age: Duration::ZERO,
};

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

fn fresh_verdict() -> Verdict {
    Verdict::Fresh(Prior::default())
}

fn message(error: StoreError) -> String {
    match error {
        StoreError::Misconfigured { message, .. } => message,
        other => panic!("not a misconfiguration: {other:?}"),
    }
}

async fn holder(store: &Sqlite, consumer: ConsumerId, id: &str) -> SqliteUnit {
    let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
    assert_eq!(
        unit.claim(&[key(id).into()]).await.unwrap(),
        [fresh_verdict()]
    );
    unit
}

async fn look(store: &Sqlite, consumer: ConsumerId, id: &str) -> Verdict {
    let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
    let verdict = ageless(unit.claim(&[key(id).into()]).await.unwrap()).remove(0);
    unit.rollback().await;
    verdict
}

/// Field case 129: handlers that read first and write later, in several processes, some of them
/// dropped on the way.
#[tokio::test(flavor = "multi_thread")]
async fn rival_processes_with_read_then_write_handlers_wait_for_one_another() {
    let fixture = OnSqlite::migrated().await;
    let mut processes = JoinSet::new();
    for process in 0..4 {
        let path = fixture.path.clone();
        processes.spawn(async move {
            let config = SqliteConfig::default().busy_timeout(Duration::from_secs(30));
            let store = Sqlite::open_with(path.to_str().unwrap(), config)
                .await
                .unwrap();
            let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
            for n in 0..40 {
                let id = format!("{n}");
                let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
                if ageless(unit.claim(&[key(&id).into()]).await.unwrap()) == [DUPLICATE] {
                    unit.rollback().await;
                    continue;
                }
                let read = sqlx::query_scalar("SELECT count(*) FROM effect");
                let _read: i64 = read.fetch_one(unit.connection()).await.unwrap();
                OnSqlite::write_effect(unit.connection(), &id).await;
                if (n + process) % 3 == 0 {
                    drop(unit);
                    let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
                    if unit.claim(&[key(&id).into()]).await.unwrap() == [fresh_verdict()] {
                        OnSqlite::write_effect(unit.connection(), &id).await;
                    }
                    unit.commit().await.unwrap();
                } else {
                    unit.commit().await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }

    let mut effects = fixture.effects().await;
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 40);
    assert_eq!(fixture.effects().await.len(), 40);
}

#[tokio::test]
async fn another_process_that_writes_for_too_long_is_nobodys_failure() {
    let fixture = OnSqlite::migrated().await;
    let config = SqliteConfig::default().busy_timeout(Duration::from_millis(20));
    let store = Sqlite::open_with(fixture.path.to_str().unwrap(), config)
        .await
        .unwrap();
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut other = fixture.pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut *other)
        .await
        .unwrap();

    let error = store.begin(Begin::new(consumer)).await.unwrap_err();
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut *other)
        .await
        .unwrap();

    let StoreError::RolledBack(cause) = error else {
        panic!("{error:?}");
    };
    assert_eq!(store.blame(&*cause), Some(Blame::Contention), "{cause:?}");
    assert_eq!(look(&store, consumer, "x").await, fresh_verdict());
}

/// Field case 131.
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_that_migrate_at_once_make_one_schema() {
    // Not even the file is there.
    let path = std::env::temp_dir()
        .join(crate::support::unique("store"))
        .with_extension("db");
    let mut processes = JoinSet::new();
    for n in 0..8 {
        let path = path.clone();
        processes.spawn(async move {
            let config = SqliteConfig::default().busy_timeout(Duration::from_secs(30));
            let store = Sqlite::open_with(path.to_str().unwrap(), config)
                .await
                .unwrap();
            store.migrate().await.unwrap();
            let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
            holder(&store, consumer, &format!("{n}"))
                .await
                .commit()
                .await
                .unwrap();
            assert_eq!(look(&store, consumer, &format!("{n}")).await, DUPLICATE);
        });
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }
    for extension in ["db", "db-wal", "db-shm"] {
        let _ = std::fs::remove_file(path.with_extension(extension));
    }
}

#[tokio::test]
async fn the_schema_goes_up_down_and_up() {
    let fixture = OnSqlite::unmigrated().await;
    let store = &fixture.store;
    let objects = async || -> i64 {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'";
        sqlx::query_scalar(sql)
            .fetch_one(&fixture.pool)
            .await
            .unwrap()
    };

    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    let up = objects().await;
    store.migrate_to(0).await.unwrap();
    assert_eq!(objects().await, 0);
    store.migrate_to(SCHEMA_VERSION).await.unwrap();
    assert_eq!(objects().await, up);
    assert!(message(store.migrate_to(99).await.unwrap_err()).contains("99"));
}

#[tokio::test]
async fn a_schema_that_does_not_fit_says_what_to_call() {
    let fixture = OnSqlite::unmigrated().await;
    let store = &fixture.store;

    let missing = message(
        Store::open(store, "ledger", DaysFrom::Id)
            .await
            .unwrap_err(),
    );
    assert!(missing.contains("Sqlite::migrate"), "{missing}");

    store.migrate().await.unwrap();
    let newer = "INSERT INTO oneffect_migration (version) VALUES (99)";
    sqlx::raw_sql(newer).execute(&fixture.pool).await.unwrap();
    assert!(message(store.open("ledger", DaysFrom::Id).await.unwrap_err()).contains("99"));
    assert!(message(store.migrate().await.unwrap_err()).contains("99"));
}

#[tokio::test]
async fn a_database_in_memory_is_refused() {
    for url in [
        "sqlite::memory:",
        ":memory:",
        "sqlite:file:x?mode=memory",
        "",
    ] {
        let refused = message(Sqlite::open(url).await.unwrap_err());
        assert!(refused.contains("memory"), "{refused}");
    }
}

#[tokio::test]
async fn a_deferred_constraint_that_fails_at_commit_is_a_certain_rollback() {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let setup = "CREATE TABLE account (id INTEGER PRIMARY KEY);
                 CREATE TABLE entry (account INTEGER REFERENCES account DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(setup).execute(&fixture.pool).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    sqlx::raw_sql("INSERT INTO entry VALUES (7)")
        .execute(unit.connection())
        .await
        .unwrap();
    let failed = unit.commit().await;

    assert!(
        matches!(failed, Err(StoreError::RolledBack(_))),
        "{failed:?}"
    );
    assert_eq!(look(store, consumer, "x").await, fresh_verdict());
}

#[tokio::test]
async fn a_handlers_commit_is_of_its_own_savepoint() {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let mut nested = unit.connection().begin().await.unwrap();
    OnSqlite::write_effect(&mut nested, "nested").await;
    nested.commit().await.unwrap();
    unit.rollback().await;
    assert!(fixture.effects().await.is_empty());

    // One that is dropped is undone, and one that is lost is kept.
    let mut unit = holder(store, consumer, "x").await;
    let mut nested = unit.connection().begin().await.unwrap();
    OnSqlite::write_effect(&mut nested, "dropped").await;
    drop(nested);
    let mut nested = unit.connection().begin().await.unwrap();
    OnSqlite::write_effect(&mut nested, "lost").await;
    std::mem::forget(nested);
    unit.commit().await.unwrap();
    assert_eq!(fixture.effects().await, ["lost"]);
    assert_eq!(look(store, consumer, "x").await, DUPLICATE);
}

#[tokio::test]
async fn a_unit_that_ended_well_leaves_its_connection_to_the_next() {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    // A temporary table lives as long as its connection.
    let there = async || -> bool {
        let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
        let found = sqlx::query_scalar("SELECT count(*) FROM temp.sqlite_schema");
        let found: i64 = found.fetch_one(unit.connection()).await.unwrap();
        unit.rollback().await;
        found > 0
    };

    let mut unit = holder(store, consumer, "x").await;
    sqlx::raw_sql("CREATE TEMP TABLE mark (x)")
        .execute(unit.connection())
        .await
        .unwrap();
    unit.commit().await.unwrap();
    assert!(there().await);
    holder(store, consumer, "y").await.rollback().await;
    assert!(there().await);
    drop(holder(store, consumer, "y").await);
    assert!(!there().await);
}

#[tokio::test]
async fn the_inbox_can_be_read_by_people() {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let uuid = "0190163d-8694-439b-aea5-966c26f8ad91";
    for id in [uuid, "caf\u{e9}\0"] {
        let mut unit = holder(store, consumer, id).await;
        let reason = "no\0".into();
        let outcome = (key(id), Settled::Rejected { reason });
        unit.record(&[outcome]).await.unwrap();
        unit.commit().await.unwrap();
    }

    let sql =
        "SELECT consumer, event_id, tenant, outcome, reason FROM inbox_readable ORDER BY event_id";
    let rows: Vec<(String, String, String, String, String)> =
        sqlx::query_as(sql).fetch_all(&fixture.pool).await.unwrap();

    // NUL ends what most tools show, so there the bytes are shown.
    let row = |id: &str| {
        let texts = ["ledger", id, "", "rejected", "X'6E6F00'"];
        texts.map(str::to_owned).into()
    };
    assert_eq!(rows, [row(uuid), row("X'636166C3A900'")]);
}

/// Each statement finds its keys by the index, one by one.
#[tokio::test]
async fn no_statement_reads_the_inbox_from_end_to_end() {
    let fixture = OnSqlite::migrated().await;
    for sql in [
        include_str!("../../adapters/sqlite/src/queries/claim.sql"),
        include_str!("../../adapters/sqlite/src/queries/settled.sql"),
        include_str!("../../adapters/sqlite/src/queries/unclaim.sql"),
        include_str!("../../adapters/sqlite/src/queries/record.sql"),
        include_str!("../../adapters/sqlite/src/queries/forget_days.sql"),
        include_str!("../../adapters/sqlite/src/queries/forget_attempts.sql"),
    ] {
        let explain = format!("EXPLAIN QUERY PLAN {sql}");
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(explain))
            .bind("[]")
            .bind(1)
            .fetch_all(&fixture.pool)
            .await
            .unwrap();
        for (_, _, _, step) in plan {
            let scans = ["SCAN inbox", "SCAN retry"]
                .iter()
                .any(|scan| step.contains(scan));
            assert!(!scans, "{step}: {sql}");
        }
    }
}

/// Rows of a day that is forgotten twenty days later, when the clock stands.
async fn with_old_rows(rows: usize) -> OnSqlite {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let keys: Vec<Claim> = (0..rows).map(|n| key(&format!("old-{n}")).into()).collect();
    for batch in keys.chunks(1000) {
        let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
        unit.claim(batch).await.unwrap();
        unit.commit().await.unwrap();
    }
    let now: f64 = sqlx::query_scalar("SELECT now FROM oneffect_now")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    let later = Duration::from_secs_f64(now) + Duration::from_hours(20 * 24);
    fixture.set_clock(SystemTime::UNIX_EPOCH + later).await;
    fixture
}

/// Field case 128: what is forgotten goes in steps, and another process writes between them.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_goes_in_small_steps_between_which_others_write() {
    const ROWS: usize = 20_000;
    let fixture = with_old_rows(ROWS).await;
    let other = Sqlite::open(fixture.path.to_str().unwrap()).await.unwrap();
    let consumer = other.open("ledger", DaysFrom::Id).await.unwrap();
    let forgotten = AtomicBool::new(false);

    let (maintained, written) = tokio::join!(
        async {
            let maintained = fixture.store.maintain().await.unwrap();
            forgotten.store(true, Ordering::Relaxed);
            maintained
        },
        async {
            let mut written = 0;
            while !forgotten.load(Ordering::Relaxed) {
                let unit = holder(&other, consumer, &format!("new-{written}")).await;
                unit.commit().await.unwrap();
                written += 1;
            }
            written
        }
    );

    assert_eq!(maintained.dropped, ROWS as u64);
    assert!(!maintained.postponed);
    assert!(written > 1, "nobody else could write");
    assert_eq!(fixture.remembered().await, written);
}

/// Invariant 8, with the process killed at any moment.
#[tokio::test]
async fn the_floor_is_recorded_before_anything_is_forgotten() {
    const ROWS: usize = 2_000;
    let fixture = with_old_rows(ROWS).await;
    let floor = async || -> i64 {
        let floor = sqlx::query_scalar("SELECT floor FROM inbox_floor");
        floor.fetch_one(&fixture.pool).await.unwrap()
    };
    let before = floor().await;
    let mut left = ROWS;
    for millis in 0.. {
        let round = fixture.store.maintain();
        let _ = tokio::time::timeout(Duration::from_millis(millis), round).await;
        let (rows, floor) = (fixture.remembered().await, floor().await);
        assert!(rows <= left, "what is forgotten is back");
        assert!(rows == ROWS || floor == before + 20, "forgotten unsaid");
        left = rows;
        if left == 0 {
            break;
        }
    }
}

#[tokio::test]
async fn the_window_belongs_to_the_database() {
    let fixture = OnSqlite::migrated().await;
    let store = &fixture.store;
    assert_eq!(store.window_days().await.unwrap(), 8);
    let before = store.maintain().await.unwrap().floor.unwrap();

    store.set_window_days(30).await.unwrap();
    let longer = store.maintain().await.unwrap();
    // What is forgotten stays so, however far back the inbox is to remember from now on.
    assert_eq!(longer.floor, Some(before));
    assert_eq!(longer.window_days, Some(30));
    store.set_window_days(2).await.unwrap();
    let shorter = store.maintain().await.unwrap();
    assert_eq!(shorter.floor, Some(before.plus(6)));

    for refused in [0, 3651] {
        let refused = store.set_window_days(refused).await;
        assert!(message(refused.unwrap_err()).contains("1 to 3650"));
    }
}
