//! Commits that are not what they seem.

use oneffect_core::testing::store_contract::Fixture;
use oneffect_core::{Blame, DaysFrom, Store, StoreError, Unit};
use oneffect_postgres::PostgresConfig;
use sqlx::{Connection, PgConnection};

use super::proxy::{Cut, Proxy};
use super::{DUPLICATE, blame, fresh, fresh_verdict, holder, letter, look};
use crate::store_contract::postgres::OnPostgres;

/// Field case 103, both ways: only claiming again tells.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_out_by_claiming_again() {
    let fixture = fresh!();
    let options = fixture.store.pool().connect_options();
    let proxy = Proxy::start(&options).await;
    let store = proxy.store(&options).await;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    for (cut, verdict) in [(Cut::Before, fresh_verdict()), (Cut::After, DUPLICATE)] {
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
    }
    assert_eq!(fixture.effects().await, ["After"]);
}

async fn insert_one(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("INSERT INTO account VALUES (1)")
        .execute(connection)
        .await?;
    Ok(())
}

/// Field case 107.
#[tokio::test]
async fn a_swallowed_unique_violation_fails_the_unit_and_in_a_nested_transaction_does_not() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let setup = "CREATE TABLE account (id int PRIMARY KEY); INSERT INTO account VALUES (1)";
    sqlx::raw_sql(setup).execute(&fixture.pool).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let _swallowed = insert_one(unit.connection()).await.unwrap_err();
    let failed = unit.commit().await.unwrap_err();
    assert!(matches!(failed, StoreError::RolledBack(_)), "{failed:?}");
    assert_eq!(blame(store, &failed), Some(Blame::Event));
    assert_eq!(look(store, consumer, "x").await, fresh_verdict());

    let mut unit = holder(store, consumer, "x").await;
    let mut nested = unit.connection().begin().await.unwrap();
    let _expected = insert_one(&mut nested).await.unwrap_err();
    nested.rollback().await.unwrap();
    OnPostgres::write_effect(unit.connection(), "x").await;
    unit.commit().await.unwrap();
    assert_eq!(look(store, consumer, "x").await, DUPLICATE);
    assert_eq!(fixture.effects().await, ["x"]);
}

#[tokio::test]
async fn a_handlers_commit_is_of_its_own_savepoint() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let mut nested = unit.connection().begin().await.unwrap();
    OnPostgres::write_effect(&mut nested, "nested").await;
    nested.commit().await.unwrap();
    unit.rollback().await;
    assert!(fixture.effects().await.is_empty());

    // One that is dropped is undone, and one that is lost is kept.
    let mut unit = holder(store, consumer, "x").await;
    let mut nested = unit.connection().begin().await.unwrap();
    OnPostgres::write_effect(&mut nested, "dropped").await;
    drop(nested);
    let mut nested = unit.connection().begin().await.unwrap();
    OnPostgres::write_effect(&mut nested, "lost").await;
    std::mem::forget(nested);
    unit.commit().await.unwrap();
    assert_eq!(fixture.effects().await, ["lost"]);
    assert_eq!(look(store, consumer, "x").await, DUPLICATE);
}

/// They fail in the COMMIT itself, and for certain.
#[tokio::test]
async fn a_deferred_check_that_fails_at_commit_is_a_certain_rollback() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let setup = "
        CREATE TABLE account (id int PRIMARY KEY);
        CREATE TABLE entry (account int REFERENCES account DEFERRABLE INITIALLY DEFERRED);
        CREATE TABLE book (amount int);
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'the books do not balance'; END $$;
        CREATE CONSTRAINT TRIGGER balanced AFTER INSERT ON book
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    sqlx::raw_sql(setup).execute(&fixture.pool).await.unwrap();

    for insert in [
        "INSERT INTO entry VALUES (7)",
        "INSERT INTO book VALUES (7)",
    ] {
        let mut unit = holder(store, consumer, "x").await;
        sqlx::raw_sql(insert)
            .execute(unit.connection())
            .await
            .unwrap();
        let failed = unit.commit().await.unwrap_err();

        assert!(matches!(failed, StoreError::RolledBack(_)), "{failed:?}");
        assert_eq!(blame(store, &failed), Some(Blame::Event));
        assert_eq!(look(store, consumer, "x").await, fresh_verdict());
    }
}

/// A handler that drops the future of a failing statement has swallowed its error all the same.
#[tokio::test]
async fn an_error_that_nobody_waited_for_is_a_certain_rollback() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    {
        let statement =
            sqlx::raw_sql("SELECT pg_sleep(0.2); SELECT 1 / 0").execute(unit.connection());
        let impatient = tokio::time::timeout(std::time::Duration::from_millis(20), statement);
        assert!(impatient.await.is_err());
    }
    let failed = unit.commit().await.unwrap_err();

    assert!(matches!(failed, StoreError::RolledBack(_)), "{failed:?}");
    assert_eq!(look(store, consumer, "x").await, fresh_verdict());
}

/// Units that claim nothing: letters of events without an id, by themselves.
#[tokio::test]
async fn a_unit_without_claims_is_verified_too() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let letters = &[letter()];

    let mut unit = super::begin(store, consumer).await;
    unit.set_aside(letters).await.unwrap();
    sqlx::raw_sql("COMMIT; BEGIN")
        .execute(unit.connection())
        .await
        .unwrap();
    let ended = unit.commit().await;
    assert!(
        matches!(ended, Err(StoreError::HandlerEndedTransaction)),
        "{ended:?}"
    );

    let mut unit = super::begin(store, consumer).await;
    let _swallowed = OnPostgres::fail_statement(unit.connection()).await;
    let failed = unit.commit().await;
    assert!(
        matches!(failed, Err(StoreError::RolledBack(_))),
        "{failed:?}"
    );

    super::begin(store, consumer).await.commit().await.unwrap();
}

/// The empty transaction that a verified commit leaves behind ends by itself.
#[tokio::test]
async fn commits_leave_no_session_in_a_transaction() {
    let fixture = fresh!(PostgresConfig::default().max_connections(3));
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let run = async |lane: usize| {
        for n in 0..20 {
            let mut unit = holder(store, consumer, &format!("{lane}-{n}")).await;
            OnPostgres::write_effect(unit.connection(), "x").await;
            unit.commit().await.unwrap();
        }
    };

    tokio::join!(run(0), run(1), run(2));

    crate::support::until("all sessions are idle", async || {
        fixture.sessions("idle in transaction%").await == 0
    })
    .await;
    // None was closed either: all of it ran on the pool's three.
    assert!(fixture.sessions("idle").await <= 3);
    assert_eq!(store.pool().size(), 3);
}
