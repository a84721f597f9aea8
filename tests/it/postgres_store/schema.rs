//! The schema and its versions.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use oneffect_core::{DaysFrom, Finding, Settled, Store, StoreError, Unit};
use oneffect_postgres::{Postgres, PostgresConfig, SCHEMA_VERSION};
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;

use super::{DUPLICATE, fresh, fresh_verdict, holder, look};
use crate::store_contract::postgres::OnPostgres;
use crate::support::{service, unique};

macro_rules! unmigrated {
    () => {
        match OnPostgres::unmigrated(PostgresConfig::default()).await {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

fn message(error: StoreError) -> String {
    match error {
        StoreError::Misconfigured { message, .. } => message,
        other => panic!("not a misconfiguration: {other:?}"),
    }
}

/// Field case 131.
#[tokio::test]
async fn eight_processes_that_migrate_at_once_make_one_schema() {
    let fixture = unmigrated!();
    let mut processes = JoinSet::new();
    for n in 0..8 {
        let (url, schema) = (fixture.url.clone(), fixture.schema.clone());
        processes.spawn(async move {
            let store = OnPostgres::store_at(&url, &schema, PostgresConfig::default()).await;
            if n == 3 {
                // Killed while it waits or works.
                drop_at(4, store.migrate()).await;
                return;
            }
            store.migrate().await.unwrap();
            let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
            holder(&store, consumer, &format!("{n}"))
                .await
                .commit()
                .await
                .unwrap();
        });
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }

    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox_open")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(rows, 7);
}

#[tokio::test]
async fn a_migration_that_is_killed_leaves_nothing_half_done() {
    let fixture = unmigrated!();
    for n in 1.. {
        let whole = drop_at(n, fixture.store.migrate()).await;
        if let Some(migrated) = whole {
            migrated.unwrap();
            break;
        }
    }
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    holder(&fixture.store, consumer, "x")
        .await
        .commit()
        .await
        .unwrap();
}

#[tokio::test]
async fn the_schema_goes_up_down_and_up() {
    let fixture = unmigrated!();
    let store = &fixture.store;
    let objects = async || -> i64 {
        let sql = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)::oid)
                        + (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace($1)::oid)";
        sqlx::query_scalar(sql)
            .bind(&fixture.schema)
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
    store.open("ledger", DaysFrom::Id).await.unwrap();
    assert!(message(store.migrate_to(99).await.unwrap_err()).contains("99"));
}

#[tokio::test]
async fn a_schema_that_does_not_fit_says_what_to_call() {
    let fixture = unmigrated!();
    let store = &fixture.store;

    let missing = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
    assert!(missing.contains("Postgres::migrate"), "{missing}");

    store.migrate().await.unwrap();
    let newer = "INSERT INTO oneffect_migration (version) VALUES (99)";
    sqlx::raw_sql(newer).execute(&fixture.pool).await.unwrap();
    let newer = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
    assert!(newer.contains("99"), "{newer}");
    assert!(message(store.migrate().await.unwrap_err()).contains("99"));
    assert!(message(store.migrate_to(0).await.unwrap_err()).contains("99"));

    sqlx::raw_sql("DELETE FROM oneffect_migration")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let older = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
    assert!(older.contains("Postgres::migrate"), "{older}");
}

/// Its connections find what is in "public" as well, so that handlers do.
#[tokio::test]
async fn a_schema_without_an_inbox_is_not_served_from_another() {
    let Some(url) = service("DATABASE_URL") else {
        return;
    };
    let server = sqlx::PgPool::connect(&url).await.unwrap();
    let name = unique("apart");
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&server).await.unwrap();
    let options = url.parse::<PgConnectOptions>().unwrap().database(&name);
    let public = sqlx::PgPool::connect_with(options.clone()).await.unwrap();
    Postgres::from_pool(public).migrate().await.unwrap();

    let options = options.options([("search_path", "of_its_own,public")]);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let config = PostgresConfig::default().schema("of_its_own");
    let store = Postgres::from_pool_with(pool, config).unwrap();
    let refused = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
    let found = store.migrations().await.unwrap();
    let findings = store.examine().await;

    assert!(refused.contains("migrate"), "{refused}");
    assert_eq!(found.version(), 0);
    let says = |finding: &Finding| finding.what.contains("no inbox in schema of_its_own");
    assert!(findings.iter().any(says), "{findings:?}");
    store.migrate().await.unwrap();
    store.open("ledger", DaysFrom::Id).await.unwrap();
    store.pool().close().await;
    let drop = sqlx::AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
    sqlx::raw_sql(drop).execute(&server).await.unwrap();
}

#[tokio::test]
async fn commits_that_a_crash_takes_back_are_refused() {
    let fixture = fresh!();
    let options = fixture.store.pool().connect_options();
    let options = PgConnectOptions::clone(&options).options([("synchronous_commit", "off")]);
    let store = Postgres::from_pool(sqlx::PgPool::connect_with(options).await.unwrap());

    let refused = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());

    assert!(refused.contains("synchronous_commit"), "{refused}");
}

#[tokio::test]
async fn the_inbox_can_be_read_by_people() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let uuid = &*uuid::Uuid::now_v7().to_string();
    for id in [uuid, "caf\u{e9}\0"] {
        let mut unit = holder(store, consumer, id).await;
        let reason = "no\0".into();
        let outcome = (super::key(id), Settled::Rejected { reason });
        unit.record(&[outcome]).await.unwrap();
        unit.commit().await.unwrap();
    }

    // From another search_path, as a person would.
    let sql = format!(
        "SELECT consumer, event_id, tenant, outcome, reason FROM {}.inbox_readable
         WHERE (day IS NULL) <> (period IS NULL) ORDER BY event_id",
        fixture.schema
    );
    let elsewhere = sqlx::PgPool::connect(&fixture.url).await.unwrap();
    let rows: Vec<(String, String, String, String, String)> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .fetch_all(&elsewhere)
            .await
            .unwrap();
    let found = "SELECT count(*) FROM inbox WHERE event_id = event_id_bytes($1)";
    let found: i64 = sqlx::query_scalar(found)
        .bind(uuid)
        .fetch_one(&fixture.pool)
        .await
        .unwrap();

    let row = |id: &str| {
        let texts = ["ledger", id, "", "rejected", "no\u{2400}"];
        texts.map(str::to_owned).into()
    };
    assert_eq!(rows, [row(uuid), row("caf\u{e9}\u{2400}")]);
    assert_eq!(found, 1);
}

#[tokio::test]
async fn schemas_do_not_see_one_another() {
    let (one, other) = (fresh!(), fresh!());
    let consumer = one.store.open("ledger", DaysFrom::Id).await.unwrap();
    holder(&one.store, consumer, "x")
        .await
        .commit()
        .await
        .unwrap();

    let consumer_there = other.store.open("ledger", DaysFrom::Id).await.unwrap();

    assert_eq!(look(&one.store, consumer, "x").await, DUPLICATE);
    assert_eq!(
        look(&other.store, consumer_there, "x").await,
        fresh_verdict()
    );
}

/// Polls a future until it waits for the `n`th time, and then drops it.
async fn drop_at<T>(n: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if waits + 1 == n => Poll::Ready(None),
        Poll::Pending => {
            waits += 1;
            Poll::Pending
        }
    })
    .await
}
