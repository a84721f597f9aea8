//! Connections that are killed, frozen, read-only or cut off.

use std::time::Duration;

use oneffect_core::testing::store_contract::Fixture;
use oneffect_core::{Begin, Blame, DaysFrom, Store, StoreError, Unit};
use oneffect_postgres::{Postgres, PostgresConfig, PostgresUnit};

use super::{DUPLICATE, blame, fresh, fresh_verdict, holder, look};
use crate::store_contract::postgres::OnPostgres;
use crate::support::until;

async fn backend(unit: &mut PostgresUnit) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(unit.connection())
        .await
        .unwrap()
}

async fn kill_all(fixture: &OnPostgres) {
    let sql =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
    let killed: i64 = sqlx::query_scalar(sql)
        .bind(&fixture.schema)
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert!(killed > 0);
    until("they are gone", async || fixture.sessions("%").await == 0).await;
}

/// Field case 127.
#[tokio::test]
async fn a_killed_session_is_nobodys_failure() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    kill_all(&fixture).await;
    let error = sqlx::raw_sql("SELECT 1")
        .execute(unit.connection())
        .await
        .unwrap_err();
    assert_eq!(store.blame(&error), Some(Blame::Outage), "{error:?}");
    unit.rollback().await;

    // In the commit nobody can tell.
    let unit = holder(store, consumer, "x").await;
    kill_all(&fixture).await;
    let failed = unit.commit().await;
    assert!(
        matches!(failed, Err(StoreError::Indeterminate(_))),
        "{failed:?}"
    );
    assert_eq!(look(store, consumer, "x").await, fresh_verdict());
}

#[tokio::test]
async fn sessions_killed_in_the_pool_do_not_fail_a_unit() {
    let fixture = fresh!(PostgresConfig::default().max_connections(3));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let units = [
        holder(store, consumer, "a").await,
        holder(store, consumer, "b").await,
        holder(store, consumer, "c").await,
    ];
    for unit in units {
        unit.commit().await.unwrap();
    }
    until("all are in the pool", async || store.pool().num_idle() == 3).await;
    kill_all(&fixture).await;

    for id in ["d", "e", "f"] {
        holder(store, consumer, id).await.commit().await.unwrap();
    }

    assert_eq!(look(store, consumer, "d").await, DUPLICATE);
}

/// SIGSTOP, a VM's pause, half-open TCP: the server hears nothing.
#[tokio::test]
async fn a_frozen_unit_loses_its_transaction_by_the_servers_deadline() {
    let deadline = Duration::from_millis(200);
    let fixture = fresh!(PostgresConfig::default().idle_in_transaction_timeout(deadline));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut frozen = holder(store, consumer, "x").await;
    OnPostgres::write_effect(frozen.connection(), "frozen").await;

    // Waits until the server has ended the other.
    let mut rival = holder(store, consumer, "x").await;
    OnPostgres::write_effect(rival.connection(), "rival").await;
    rival.commit().await.unwrap();

    let thawed = frozen.commit().await.unwrap_err();
    assert!(
        !matches!(thawed, StoreError::HandlerEndedTransaction),
        "{thawed:?}"
    );
    assert_eq!(blame(store, &thawed), Some(Blame::Outage));
    assert_eq!(fixture.effects().await, ["rival"]);
}

#[tokio::test]
async fn a_statement_that_never_ends_is_ended_by_the_server() {
    let deadline = Duration::from_millis(200);
    let fixture = fresh!(PostgresConfig::default().statement_timeout(deadline));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    // The handler's future is dropped, as on a timeout; the statement goes on for a while.
    let mut unit = holder(store, consumer, "x").await;
    let statement = sqlx::raw_sql("SELECT pg_sleep(600)").execute(unit.connection());
    assert!(
        tokio::time::timeout(Duration::from_millis(20), statement)
            .await
            .is_err()
    );
    drop(unit);

    assert_eq!(look(store, consumer, "x").await, fresh_verdict());
    until("its session is gone", async || {
        fixture.sessions("active").await == 0
    })
    .await;
}

/// A server that has become a standby: the connection must not serve another unit.
#[tokio::test]
async fn a_read_only_connection_is_an_outage_and_is_closed() {
    let fixture = fresh!(PostgresConfig::default().max_connections(1));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let read_only = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";
    sqlx::raw_sql(read_only)
        .execute(store.pool())
        .await
        .unwrap();

    let mut unit = super::begin(store, consumer).await;
    let error = unit.claim(&[super::key("x").into()]).await.unwrap_err();
    unit.rollback().await;

    assert_eq!(blame(store, &error), Some(Blame::Outage), "{error:?}");
    assert_eq!(look(store, consumer, "x").await, fresh_verdict());
}

#[tokio::test]
async fn a_unit_that_ended_well_leaves_its_connection_to_the_next() {
    let fixture = fresh!(PostgresConfig::default().max_connections(1));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let first = backend(&mut unit).await;
    unit.commit().await.unwrap();
    let mut unit = holder(store, consumer, "y").await;
    assert_eq!(backend(&mut unit).await, first);
    unit.rollback().await;
    let mut unit = holder(store, consumer, "y").await;
    assert_eq!(backend(&mut unit).await, first);
    drop(unit);
    let mut unit = holder(store, consumer, "y").await;
    assert_ne!(backend(&mut unit).await, first);
    unit.rollback().await;
}

#[tokio::test]
async fn a_pool_that_is_used_up_is_an_outage_and_says_so() {
    let fixture = fresh!(
        PostgresConfig::default()
            .max_connections(1)
            .acquire_timeout(Duration::from_millis(200))
    );
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let _all_there_are = fixture.store.begin(Begin::new(consumer)).await.unwrap();
    let error = fixture.store.begin(Begin::new(consumer)).await.unwrap_err();
    assert_eq!(
        blame(&fixture.store, &error),
        Some(Blame::Outage),
        "{error:?}"
    );
    assert!(format!("{error:?}").contains("in use"), "{error:?}");
}

/// What is wrong, and where, without the password.
#[tokio::test]
async fn a_database_that_cannot_be_reached_is_an_outage_that_says_where_and_why() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = mute.local_addr().unwrap().port();
    for (host, port, why) in [
        ("127.0.0.1", 1, "refused"),
        ("no-such-host.invalid", 5432, "lookup"),
        ("127.0.0.1", mute, "does not answer"),
    ] {
        let config = PostgresConfig::default().acquire_timeout(Duration::from_millis(200));
        let url = format!("postgres://app:secret@{host}:{port}/ledger");
        let error = Postgres::connect_with(&url, config).await.unwrap_err();
        assert!(matches!(error, StoreError::RolledBack(_)), "{error:?}");
        let text = format!("{error:?}");
        for part in [host, &port.to_string(), "ledger", "app", why] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("secret"), "{text}");
    }
}

/// A person must see to it, and is told where.
#[tokio::test]
async fn a_server_that_refuses_us_says_where() {
    let Some(url) = crate::support::service("DATABASE_URL") else {
        return;
    };
    let (server, _) = url.rsplit_once('/').unwrap();
    let error = Postgres::connect(&format!("{server}/no_such_database"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, StoreError::Misconfigured { .. }),
        "{error:?}"
    );
    let text = format!("{error:?}");
    assert!(
        text.contains("refuses us") && text.contains("no_such_database"),
        "{text}"
    );
}
