//! What only PostgreSQL can get wrong.

mod commits;
mod connections;
mod days;
mod failover;
mod plans;
mod pooler;
mod proxy;
mod schema;
mod silence;

use std::error::Error;
use std::time::Duration;

use oneffect_core::testing::store_contract::{Fixture, ageless};
use oneffect_core::{
    AssignmentId, Begin, Blame, ConsumerId, DaysFrom, DeadLetter, DeadLetterKind, Delivery,
    EventId, EventKey, Position, Prior, Settled, Store, StoreError, Unit, Verdict,
};
use oneffect_postgres::{Isolation, Postgres, PostgresConfig, PostgresUnit};
use tokio::join;
use tokio::time::sleep;

use crate::store_contract::postgres::OnPostgres;

const DUPLICATE: Verdict = Verdict::Duplicate {
    settled: Settled::Done { reply: None },
    age: Duration::ZERO,
};

/// The fixture, or the end of the test when there is no server.
macro_rules! fresh {
    () => {
        fresh!(PostgresConfig::default())
    };
    ($config:expr) => {
        match OnPostgres::fresh_with($config).await {
            Some(fixture) => fixture,
            None => return,
        }
    };
}
use fresh;

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

fn fresh_verdict() -> Verdict {
    Verdict::Fresh(Prior::default())
}

/// Of an event that has no id.
fn letter() -> DeadLetter {
    let position = Position::Queue {
        queue: "q".into(),
        message_id: "m".into(),
    };
    let delivery = Delivery::new(position, AssignmentId(1), 0, None);
    DeadLetter::new(&delivery, None, DeadLetterKind::Poison, 0, "no id")
}

async fn begin(store: &Postgres, consumer: ConsumerId) -> PostgresUnit {
    let mut begin = Begin::new(consumer);
    begin.claim_wait = Duration::from_secs(30);
    store.begin(begin).await.unwrap()
}

/// A unit that has claimed the key.
async fn holder(store: &Postgres, consumer: ConsumerId, id: &str) -> PostgresUnit {
    let mut unit = begin(store, consumer).await;
    assert_eq!(
        unit.claim(&[key(id).into()]).await.unwrap(),
        [fresh_verdict()]
    );
    unit
}

/// What a claim says, in a unit that is rolled back.
async fn look(store: &Postgres, consumer: ConsumerId, id: &str) -> Verdict {
    let mut unit = begin(store, consumer).await;
    let verdict = ageless(unit.claim(&[key(id).into()]).await.unwrap()).remove(0);
    unit.rollback().await;
    verdict
}

/// As the runtime asks: the first link of the chain that the store knows.
fn blame(store: &Postgres, error: &(dyn Error + 'static)) -> Option<Blame> {
    store.blame(error).or_else(|| blame(store, error.source()?))
}

/// The claim that lost fails at these levels, because its snapshot is older than the winner, and is
/// right when it runs again.
#[tokio::test]
async fn a_loser_at_a_strict_isolation_level_is_nobodys_failure() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let fixture = fresh!(PostgresConfig::default().isolation(isolation));
        let store = &fixture.store;
        let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
        let winner = holder(store, consumer, "x").await;

        let loser = async {
            let mut unit = begin(store, consumer).await;
            let lost = unit.claim(&[key("x").into()]).await;
            unit.rollback().await;
            lost
        };
        let (lost, ()) = join!(loser, async {
            sleep(Duration::from_millis(150)).await;
            winner.commit().await.unwrap();
        });

        let error = lost.unwrap_err();
        assert!(matches!(error, StoreError::RolledBack(_)), "{error:?}");
        assert_eq!(blame(store, &error), Some(Blame::Contention));
        assert_eq!(look(store, consumer, "x").await, DUPLICATE);
    }
}

/// Field case 125, at each level.
#[tokio::test]
async fn a_loser_is_fresh_at_every_isolation_level_when_the_winner_rolls_back() {
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let fixture = fresh!(PostgresConfig::default().isolation(isolation));
        let store = &fixture.store;
        let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
        let winner = holder(store, consumer, "x").await;

        let (verdict, ()) = join!(look(store, consumer, "x"), async {
            sleep(Duration::from_millis(150)).await;
            winner.rollback().await;
        });

        assert_eq!(verdict, fresh_verdict());
        let mut unit = holder(store, consumer, "x").await;
        OnPostgres::write_effect(unit.connection(), "x").await;
        unit.commit().await.unwrap();
        assert_eq!(fixture.effects().await, ["x"]);
    }
}

#[tokio::test]
async fn the_claims_lock_timeout_ends_with_the_claim() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let setting = async |unit: &mut PostgresUnit, name: &str| -> String {
        let setting = sqlx::query_scalar("SELECT current_setting($1)").bind(name);
        setting.fetch_one(unit.connection()).await.unwrap()
    };

    // Also when nothing was fresh.
    for _ in 0..2 {
        let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
        assert_eq!(setting(&mut unit, "lock_timeout").await, "500ms");
        unit.claim(&[key("x").into(), key("y").into()])
            .await
            .unwrap();
        assert_eq!(setting(&mut unit, "lock_timeout").await, "0");
        assert_eq!(setting(&mut unit, "statement_timeout").await, "1min");
        let idle = setting(&mut unit, "idle_in_transaction_session_timeout").await;
        assert_eq!(idle, "1min");
        unit.commit().await.unwrap();
    }
}

#[tokio::test]
async fn the_sessions_own_lock_timeout_is_the_handlers() {
    let fixture = fresh!();
    let options = fixture.store.pool().connect_options();
    let options =
        sqlx::postgres::PgConnectOptions::clone(&options).options([("lock_timeout", "7s")]);
    let store = Postgres::from_pool(sqlx::PgPool::connect_with(options).await.unwrap());
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(&store, consumer, "x").await;
    let shown = sqlx::query_scalar("SHOW lock_timeout");
    let shown: String = shown.fetch_one(unit.connection()).await.unwrap();

    assert_eq!(shown, "7s");
    unit.rollback().await;
}

/// A late key of a batch is waited for no longer than an early one, although the setting ends in
/// the same statement.
#[tokio::test]
async fn the_claims_lock_timeout_holds_for_the_last_key() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let winner = holder(store, consumer, "z").await;

    let mut begin = Begin::new(consumer);
    begin.claim_wait = Duration::from_millis(20);
    let mut rival = store.begin(begin).await.unwrap();
    let batch: Vec<_> = ["a", "b", "c", "z"]
        .into_iter()
        .map(|id| key(id).into())
        .collect();
    let busy = tokio::time::timeout(Duration::from_secs(30), rival.claim(&batch)).await;

    assert!(matches!(busy, Ok(Err(StoreError::Busy))), "{busy:?}");
    rival.rollback().await;
    winner.rollback().await;
}

#[tokio::test]
async fn a_handler_may_wait_for_a_lock_longer_than_the_claim() {
    let fixture = fresh!();
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let setup =
        "CREATE TABLE account (id int PRIMARY KEY, balance int); INSERT INTO account VALUES (1, 0)";
    sqlx::raw_sql(setup).execute(&fixture.pool).await.unwrap();
    let update = "UPDATE account SET balance = balance + 1";
    let mut other = fixture.pool.begin().await.unwrap();
    sqlx::raw_sql(update).execute(&mut *other).await.unwrap();

    let mut begin = Begin::new(consumer);
    begin.claim_wait = Duration::from_millis(10);
    let mut unit = store.begin(begin).await.unwrap();
    unit.claim(&[key("x").into()]).await.unwrap();
    let (updated, ()) = join!(sqlx::raw_sql(update).execute(unit.connection()), async {
        sleep(Duration::from_millis(150)).await;
        other.commit().await.unwrap();
    });

    updated.unwrap();
    unit.commit().await.unwrap();
}
