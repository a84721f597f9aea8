//! Connections that are half open: the server hears nothing, and no one tells.

use std::time::Duration;

use futures::future::join_all;
use oneffect_core::testing::store_contract::Fixture;
use oneffect_core::{Begin, Blame, ConsumerId, DaysFrom, Settled, Store, StoreError, Unit};
use oneffect_postgres::{Postgres, PostgresConfig};
use tokio::time::timeout;

use super::proxy::{Cut, Proxy};
use super::{DUPLICATE, begin, blame, fresh, fresh_verdict, holder, key, look};
use crate::store_contract::postgres::OnPostgres;

/// Deadlines that a test can wait for, and that a busy machine keeps.
fn impatient() -> PostgresConfig {
    PostgresConfig::default()
        .statement_timeout(Duration::from_secs(3))
        .idle_in_transaction_timeout(Duration::from_secs(3))
        .answer_timeout(Duration::from_secs(3))
}

async fn through(proxy: &Proxy, fixture: &OnPostgres, connections: u32) -> (Postgres, ConsumerId) {
    let options = fixture.store.pool().connect_options();
    let store = proxy.store_with(&options, connections, impatient()).await;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    (store, consumer)
}

async fn take_effect(store: &Postgres, consumer: ConsumerId, id: &str) {
    let mut unit = holder(store, consumer, id).await;
    OnPostgres::write_effect(unit.connection(), id).await;
    unit.commit().await.unwrap();
}

/// All but COMMIT: it is certain that nothing happened.
const VERBS: [&str; 12] = [
    "open",
    "charge",
    "begin",
    "claim",
    "write",
    "savepoint",
    "rollback_to_savepoint",
    "release_savepoint",
    "unclaim",
    "record",
    "set_aside",
    "forget_attempts",
];

struct Row(String);

impl oneffect_postgres::StagedRow for Row {
    const TABLE: &'static str = "effect";
    const COLUMNS: &'static [&'static str] = &["effect"];

    fn bind(rows: &[&Self], insert: oneffect_postgres::Insert) -> oneffect_postgres::Insert {
        let rows: Vec<_> = rows.iter().map(|row| row.0.as_bytes()).collect();
        insert.bind(rows)
    }
}

/// The database falls silent just before the verb.
async fn silence_at(
    verb: &'static str,
    proxy: &Proxy,
    store: &Postgres,
    consumer: ConsumerId,
) -> StoreError {
    let outside: Option<StoreError> = match verb {
        "open" => {
            proxy.fall_silent();
            store.open("ledger", DaysFrom::Id).await.err()
        }
        "charge" => {
            proxy.fall_silent();
            let key = key(verb);
            let charge = store.charge(consumer, &key, "why", Duration::ZERO);
            charge.await.err()
        }
        "begin" => {
            proxy.fall_silent();
            store.begin(Begin::new(consumer)).await.err()
        }
        _ => None,
    };
    if let Some(error) = outside {
        return error;
    }
    let mut unit = begin(store, consumer).await;
    let keys = [key(verb)];
    if verb != "claim" {
        unit.claim(&[key(verb).into()]).await.unwrap();
        unit.savepoint().await.unwrap();
        OnPostgres::write_effect(unit.connection(), verb).await;
    }
    proxy.fall_silent();
    let failed = match verb {
        "claim" => unit.claim(&[key(verb).into()]).await.map(|_| ()),
        "write" => unit.write(&[Row(verb.into()).into()]).await,
        "savepoint" => unit.savepoint().await,
        "rollback_to_savepoint" => unit.rollback_to_savepoint().await,
        "release_savepoint" => unit.release_savepoint().await,
        "unclaim" => unit.unclaim(&keys).await,
        "record" => unit.record(&[(key(verb), Settled::Dead)]).await,
        "set_aside" => unit.set_aside(&[super::letter()]).await,
        "forget_attempts" => unit.forget_attempts(&keys).await,
        other => panic!("{other} is no verb"),
    };
    // Does not wait for an answer either.
    unit.rollback().await;
    failed.unwrap_err()
}

#[tokio::test]
async fn a_silent_database_is_an_outage_at_every_verb_and_the_event_takes_effect_once() {
    let fixture = fresh!();
    let upstream = fixture.store.pool().connect_options();

    join_all(VERBS.map(async |verb| {
        let proxy = Proxy::start(&upstream).await;
        let (store, consumer) = through(&proxy, &fixture, 3).await;
        take_effect(&store, consumer, &format!("{verb} before")).await;

        let error = silence_at(verb, &proxy, &store, consumer).await;

        assert!(
            matches!(error, StoreError::RolledBack(_)),
            "{verb}: {error:?}"
        );
        assert_eq!(
            blame(&store, &error),
            Some(Blame::Outage),
            "{verb}: {error:?}"
        );
        assert!(
            format!("{error:?}").contains("has not answered"),
            "{error:?}"
        );
        proxy.recover();
        take_effect(&store, consumer, verb).await;
    }))
    .await;

    let mut effects = fixture.effects().await;
    effects.sort_unstable();
    let mut expected: Vec<_> = VERBS
        .iter()
        .flat_map(|verb| [format!("{verb} before"), (*verb).to_owned()])
        .collect();
    expected.sort_unstable();
    assert_eq!(effects, expected);
}

/// Field case 103, where nobody hangs up.
#[tokio::test]
async fn a_commit_that_is_not_answered_is_found_out_by_claiming_again() {
    let fixture = fresh!();
    let upstream = fixture.store.pool().connect_options();

    join_all(
        [
            (Cut::SilentBefore, fresh_verdict()),
            (Cut::SilentAfter, DUPLICATE),
        ]
        .map(async |(cut, verdict)| {
            let proxy = Proxy::start(&upstream).await;
            let (store, consumer) = through(&proxy, &fixture, 3).await;
            let id = format!("{cut:?}");
            let mut unit = holder(&store, consumer, &id).await;
            OnPostgres::write_effect(unit.connection(), &id).await;
            proxy.arm(cut);

            let committed = unit.commit().await;

            assert!(
                matches!(committed, Err(StoreError::Indeterminate(_))),
                "{cut:?}: {committed:?}"
            );
            assert_eq!(look(&store, consumer, &id).await, verdict, "{cut:?}");
            if verdict != DUPLICATE {
                take_effect(&store, consumer, &id).await;
            }
        }),
    )
    .await;

    let mut effects = fixture.effects().await;
    effects.sort_unstable();
    assert_eq!(effects, ["SilentAfter", "SilentBefore"]);
}

/// What the pool waits for by itself before it takes a connection back.
#[tokio::test]
async fn a_connection_that_falls_silent_on_its_way_back_leaves_its_place_in_the_pool() {
    let fixture = fresh!();
    let proxy = Proxy::start(&fixture.store.pool().connect_options()).await;
    let (store, consumer) = through(&proxy, &fixture, 1).await;

    for id in ["x", "y"] {
        let unit = holder(&store, consumer, id).await;
        proxy.arm(Cut::SilentAfterRollback);
        unit.commit().await.unwrap();
    }

    assert_eq!(look(&store, consumer, "y").await, DUPLICATE);
}

/// As on a handler's timeout: its statement is dropped, and then the unit.
#[tokio::test]
async fn dropping_a_unit_behind_a_silent_statement_waits_for_nothing() {
    let fixture = fresh!();
    let proxy = Proxy::start(&fixture.store.pool().connect_options()).await;
    let (store, consumer) = through(&proxy, &fixture, 1).await;

    let mut unit = holder(&store, consumer, "x").await;
    OnPostgres::write_effect(unit.connection(), "lost").await;
    proxy.fall_silent();
    let statement = OnPostgres::write_effect(unit.connection(), "x");
    timeout(Duration::from_millis(50), statement)
        .await
        .unwrap_err();
    drop(unit);
    proxy.recover();

    take_effect(&store, consumer, "x").await;
    assert_eq!(fixture.effects().await, ["x"]);
}

/// After a failover all connections are half open, and one of them is enough to know.
#[tokio::test]
async fn one_silence_is_enough_to_trust_no_idle_connection() {
    let fixture = fresh!();
    let proxy = Proxy::start(&fixture.store.pool().connect_options()).await;
    let (store, consumer) = through(&proxy, &fixture, 4).await;
    let units = join_all((0..4).map(|n| {
        let store = &store;
        async move { holder(store, consumer, &format!("{n}")).await }
    }));
    for unit in units.await {
        unit.commit().await.unwrap();
    }
    crate::support::until("all are in the pool", async || store.pool().num_idle() == 4).await;

    proxy.fall_silent();
    let error = store.begin(Begin::new(consumer)).await.unwrap_err();
    proxy.recover();

    assert_eq!(blame(&store, &error), Some(Blame::Outage), "{error:?}");
    assert_eq!(store.pool().num_idle(), 0);
    take_effect(&store, consumer, "x").await;
}

/// A table is changed while consumers run: what they have prepared fails on each connection, for as
/// long as it lives.
#[tokio::test]
async fn a_statement_that_was_prepared_before_its_table_changed_fails_nobody() {
    let fixture = fresh!(PostgresConfig::default().max_connections(3));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let create = "CREATE TABLE account (id int)";
    sqlx::raw_sql(create).execute(&fixture.pool).await.unwrap();
    let units = join_all((0..3).map(|n| async move {
        let mut unit = holder(store, consumer, &format!("{n}")).await;
        let read = sqlx::query("SELECT * FROM account");
        read.fetch_all(unit.connection()).await.map(|_| unit)
    }));
    for unit in units.await {
        unit.unwrap().commit().await.unwrap();
    }
    let alter = "ALTER TABLE account ADD COLUMN owner text";
    sqlx::raw_sql(alter).execute(&fixture.pool).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let read = sqlx::query("SELECT * FROM account");
    let error = read.fetch_all(unit.connection()).await.unwrap_err();
    assert_eq!(store.blame(&error), Some(Blame::Contention), "{error:?}");
    unit.rollback().await;

    for id in ["x", "y", "z"] {
        let mut unit = holder(store, consumer, id).await;
        let read = sqlx::query("SELECT * FROM account");
        read.fetch_all(unit.connection()).await.unwrap();
        unit.commit().await.unwrap();
    }
}
