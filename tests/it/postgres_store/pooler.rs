//! Behind a pooler that hands out connections by transaction: a real PgBouncer.

use std::error::Error;
use std::time::Duration;

use oneffect::testing::{MemoryQueue, Message};
use oneffect::{Consumer, Context, Handler, HandlerResult, done};
use oneffect_core::testing::store_contract::{Ending, Fixture, StoredLetter};
use oneffect_core::{Begin, Blame, DaysFrom, Store, StoreError, Unit};
use oneffect_postgres::{Pooling, Postgres, PostgresConfig, SCHEMA_VERSION, Statements};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::task::JoinSet;

use super::{blame, fresh, fresh_verdict, holder, key};
use crate::end_to_end::{Probe, Running};
use crate::store_contract::postgres::OnPostgres;
use crate::support::{service, unique, until};

/// A store behind the pooler, in the mode that is right there.
struct BehindPooler(OnPostgres);

fn unnamed() -> PostgresConfig {
    PostgresConfig::default().statements(Statements::Unnamed)
}

/// Another database of the pooler's, which it pools otherwise: see `scripts/services.d`.
fn pooled(url: &str, database: &str) -> String {
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}

impl BehindPooler {
    async fn unmigrated() -> Option<Self> {
        let url = service("POOLER_URL")?;
        let schema = unique("pooled");
        let set = format!("SET search_path = {schema}");
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .after_connect(move |connection, _| {
                let set = sqlx::AssertSqlSafe(set.clone());
                Box::pin(async move { sqlx::raw_sql(set).execute(connection).await.map(|_| ()) })
            });
        let options: PgConnectOptions = pooled(&url, "session").parse().unwrap();
        let pool = pool.connect_with(options.extra_float_digits(None));
        Some(Self(OnPostgres {
            pool: pool.await.unwrap(),
            store: OnPostgres::store_at(&url, &schema, unnamed()).await,
            url,
            schema,
        }))
    }
}

impl Fixture for BehindPooler {
    type Store = Postgres;
    const CONCURRENT_UNITS: bool = OnPostgres::CONCURRENT_UNITS;
    const ABORTS_ON_ERROR: bool = OnPostgres::ABORTS_ON_ERROR;

    async fn fresh() -> Option<Self> {
        Some(Self(Self::unmigrated().await?.0.migrated().await))
    }

    fn store(&self) -> Postgres {
        self.0.store()
    }

    /// Also where a handler has ended the transaction, and with it the `search_path`: as one simple query,
    /// since the next one may be another session's. What the pooler does keep for a client is its
    /// application's name.
    async fn write_effect(connection: &mut PgConnection, effect: &str) {
        let bytes: Vec<_> = effect.bytes().map(|byte| format!("{byte:02x}")).collect();
        let bytes = bytes.concat();
        let insert = format!(
            "DO $$ BEGIN EXECUTE format('INSERT INTO %I.effect (effect) VALUES (decode(%L, ''hex''))', \
                                        current_setting('application_name'), '{bytes}'); END $$"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
            .execute(connection)
            .await
            .unwrap();
    }

    async fn effects(&self) -> Vec<String> {
        self.0.effects().await
    }

    async fn fail_statement(connection: &mut PgConnection) -> Box<dyn Error + Send + Sync> {
        OnPostgres::fail_statement(connection).await
    }

    async fn end_transaction(connection: &mut PgConnection, how: Ending) {
        OnPostgres::end_transaction(connection, how).await;
    }

    async fn dead_letters(&self) -> Vec<StoredLetter> {
        self.0.dead_letters().await
    }

    async fn idle_in_transaction(&self) -> usize {
        self.0.idle_in_transaction().await
    }
}

mod contract {
    oneffect_core::store_contract!(super::BehindPooler);
}

fn message(error: StoreError) -> String {
    match error {
        StoreError::Misconfigured { message, .. } => message,
        other => panic!("not a misconfiguration: {other:?}"),
    }
}

async fn named_at(url: &str) -> Postgres {
    Postgres::connect(url).await.unwrap()
}

/// Field case 114.
#[tokio::test]
async fn the_default_mode_refuses_to_start_and_says_what_to_set() {
    let Some(fixture) = BehindPooler::fresh().await else {
        return;
    };
    let url = &fixture.0.url;

    let refused = message(
        named_at(url)
            .await
            .open("ledger", DaysFrom::Id)
            .await
            .unwrap_err(),
    );
    assert!(refused.contains("Statements::Unnamed"), "{refused}");

    // A startup parameter, which the pooler itself refuses.
    let with_schema = PostgresConfig::default().schema("ledger");
    let refused = Postgres::connect_with(url, with_schema).await.unwrap_err();
    let refused = message(refused);
    assert!(refused.contains("Statements::Unnamed"), "{refused}");
    assert!(
        refused.contains("16432") || refused.contains("port"),
        "{refused}"
    );

    fixture.0.store.open("ledger", DaysFrom::Id).await.unwrap();
}

#[tokio::test]
async fn each_way_of_pooling_is_found_out() {
    let Some(url) = service("POOLER_URL") else {
        return;
    };
    let direct = fresh!();
    for (store, pooling, right) in [
        (named_at(&url).await, Pooling::Transaction, false),
        (
            named_at(&pooled(&url, "session")).await,
            Pooling::Session,
            true,
        ),
        (
            named_at(&pooled(&url, "statement")).await,
            Pooling::Statement,
            false,
        ),
        (direct.store.clone(), Pooling::Session, true),
    ] {
        let report = store.pooler().await.unwrap();
        assert_eq!(
            (report.pooling, report.is_right()),
            (pooling, right),
            "{report}"
        );
    }
    let unnamed = Postgres::connect_with(&url, unnamed()).await.unwrap();
    let report = unnamed.pooler().await.unwrap();
    let examined = format!("{:?}", unnamed.examine().await);
    assert!(examined.contains(&report.to_string()), "{examined}");
    assert_eq!(
        (report.pooling, report.is_right()),
        (Pooling::Transaction, true)
    );

    // It gets past the pooler, and only misses its tables.
    let Some(unmigrated) = BehindPooler::unmigrated().await else {
        return;
    };
    let store = Postgres::from_pool(unmigrated.0.pool);
    let refused = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
    assert!(refused.contains("Postgres::migrate"), "{refused}");
    for config in [PostgresConfig::default(), self::unnamed()] {
        let statement = pooled(&url, "statement");
        let store = Postgres::connect_with(&statement, config).await.unwrap();
        let refused = message(store.open("ledger", DaysFrom::Id).await.unwrap_err());
        assert!(refused.contains("no transactions"), "{refused}");
    }
}

async fn ask(connection: &mut PgConnection, constant: i32) -> i32 {
    let sql = format!("SELECT $1::int4 + {constant}");
    let answer = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(7);
    answer.fetch_one(connection).await.unwrap()
}

/// What the refusal is for: two clients, each of which has prepared its own statement in a transaction
/// of its own, and two sessions, of which the one that came back last is handed out first.
async fn run_another_clients_statement(url: &str) {
    let options: PgConnectOptions = pooled(url, "narrow").parse().unwrap();
    let options = options.extra_float_digits(None);
    let mut one = options.connect().await.unwrap();
    let mut other = options.connect().await.unwrap();
    // What earlier clients have left in the pooler's sessions.
    let begin = "BEGIN; DEALLOCATE ALL";
    sqlx::raw_sql(begin).execute(&mut one).await.unwrap();
    sqlx::raw_sql(begin).execute(&mut other).await.unwrap();
    assert_eq!(ask(&mut one, 1000).await, 1007);
    assert_eq!(ask(&mut other, 2000).await, 2007);
    sqlx::raw_sql("COMMIT").execute(&mut one).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();

    sqlx::raw_sql("BEGIN").execute(&mut one).await.unwrap();
    assert_eq!(
        ask(&mut one, 1000).await,
        2007,
        "the other's, without an error"
    );
    sqlx::raw_sql("COMMIT").execute(&mut one).await.unwrap();

    sqlx::raw_sql(begin).execute(&mut one).await.unwrap();
    sqlx::raw_sql(begin).execute(&mut other).await.unwrap();
    one.close().await.unwrap();
    other.close().await.unwrap();
}

/// Delivers each id ten times, through stores of which each has its own connections.
async fn storm(fixture: &OnPostgres, config: &PostgresConfig) -> Vec<String> {
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let narrow = pooled(&fixture.url, "narrow");
    let mut clients = JoinSet::new();
    for client in 0..5 {
        let config = config.clone().max_connections(2);
        let store = OnPostgres::store_at(&narrow, &fixture.schema, config).await;
        for half in 0..2 {
            let store = store.clone();
            clients.spawn(async move {
                let mut failures = Vec::new();
                for n in 0..30 {
                    let id = format!("{:02}", (n * 7 + client * 3 + half * 15) % 30);
                    if let Err(error) = once(&store, consumer, &id).await {
                        failures.push(format!("{error:?}"));
                    }
                }
                failures
            });
        }
    }
    clients.join_all().await.concat()
}

/// One delivery, with its effect where it is fresh.
async fn once(
    store: &Postgres,
    consumer: oneffect_core::ConsumerId,
    id: &str,
) -> Result<(), StoreError> {
    let mut begin = Begin::new(consumer);
    begin.claim_wait = Duration::from_secs(30);
    let mut unit = store.begin(begin).await?;
    let verdicts = unit.claim(&[key(id).into()]).await?;
    if verdicts == [fresh_verdict()] {
        let insert = sqlx::query("INSERT INTO effect (effect) VALUES ($1)");
        let insert = insert.bind(id.as_bytes()).persistent(false);
        insert
            .execute(unit.connection())
            .await
            .map_err(StoreError::rolled_back)?;
    }
    unit.commit().await
}

/// Field case 114. Ten clients on two sessions.
#[tokio::test(flavor = "multi_thread")]
async fn by_name_another_clients_statement_runs_and_without_names_a_storm_takes_effect_once() {
    let Some(fixture) = BehindPooler::fresh().await else {
        return;
    };
    run_another_clients_statement(&fixture.0.url).await;

    let failures = storm(&fixture.0, &unnamed()).await;

    assert!(failures.is_empty(), "{failures:?}");
    let mut effects = fixture.effects().await;
    effects.sort_unstable();
    let expected: Vec<_> = (0..30).map(|n| format!("{n:02}")).collect();
    assert_eq!(effects, expected);
    assert_eq!(fixture.idle_in_transaction().await, 0);
}

/// Field case 131, without session locks.
#[tokio::test]
async fn eight_processes_that_migrate_at_once_through_a_pooler_make_one_schema() {
    let Some(fixture) = BehindPooler::unmigrated().await else {
        return;
    };
    let fixture = fixture.0;
    let mut processes = JoinSet::new();
    for n in 0..8 {
        let (url, schema) = (fixture.url.clone(), fixture.schema.clone());
        processes.spawn(async move {
            let store = OnPostgres::store_at(&url, &schema, unnamed()).await;
            store.migrate().await.unwrap();
            let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
            let unit = holder(&store, consumer, &format!("{n}")).await;
            unit.commit().await.unwrap();
        });
    }
    processes.join_all().await;

    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox_readable")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(rows, 8);
    fixture.store.migrate_to(0).await.unwrap();
    fixture.store.migrate_to(SCHEMA_VERSION).await.unwrap();
}

/// The session that a statement was kept in may be another client's next, and the other way round.
#[tokio::test]
async fn a_handler_that_keeps_a_statement_by_name_is_unmasked_before_the_commit() {
    let Some(fixture) = BehindPooler::fresh().await else {
        return;
    };
    let store = &fixture.0.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();

    let mut unit = holder(store, consumer, "x").await;
    let keeps = sqlx::query("INSERT INTO effect (effect) VALUES ($1)").bind(b"x".as_slice());
    keeps.execute(unit.connection()).await.unwrap();
    let refused = message(unit.commit().await.unwrap_err());

    assert!(refused.contains("persistent(false)"), "{refused}");
    let mut unit = holder(store, consumer, "x").await;
    BehindPooler::write_effect(unit.connection(), "right").await;
    unit.commit().await.unwrap();
    assert_eq!(fixture.effects().await, ["right"]);
}

/// What a pooler makes of statements that are kept by name is no event's fault.
#[tokio::test]
async fn a_statement_of_another_client_is_nobodys_failure() {
    let fixture = fresh!();
    for code in ["26000", "42P05"] {
        let sql = format!("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$");
        let failed = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&fixture.pool)
            .await;
        let error = StoreError::rolled_back(failed.unwrap_err());
        assert_eq!(blame(&fixture.store, &error), Some(Blame::Outage));
    }
}

struct Effects;

struct Entry {
    effect: Vec<u8>,
}

oneffect_postgres::staged_row!(Entry in "effect" { effect });

impl Handler<Postgres> for Effects {
    type Event = serde_json::Value;

    async fn handle(
        &self,
        cx: &mut Context<'_, Postgres>,
        event: serde_json::Value,
    ) -> HandlerResult {
        let id = event["event_id"].as_str().unwrap().to_owned();
        let effect = id.clone().into_bytes();
        if id.ends_with('7') {
            BehindPooler::write_effect(cx.db().await?, &id).await;
            // Undone once, in company, with a savepoint or alone.
            if cx.attempt() == 1 {
                return Err(std::io::Error::other("the first attempt").into());
            }
        } else {
            cx.stage(Entry { effect });
        }
        done()
    }
}

/// Staged rows, savepoints, attempts and commits, all of it.
#[tokio::test(flavor = "multi_thread")]
async fn two_consumers_behind_a_pooler_take_each_event_into_effect_once() {
    let Some(fixture) = BehindPooler::fresh().await else {
        return;
    };
    let queue = MemoryQueue::standard("q");
    for n in 0..100 {
        for _ in 0..2 {
            let body = serde_json::json!({ "event_id": format!("e{n:02}") });
            queue.send(Message::new(serde_json::to_vec(&body).unwrap()));
        }
    }
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let schedule = oneffect::RetrySchedule::default()
            .base(Duration::from_millis(20))
            .cap(Duration::from_millis(100));
        let consumer = Consumer::new("ledger", queue.source(), fixture.store(), Effects)
            .workers(3)
            .retry(schedule);
        consumers.push(Running::run(consumer, Probe::default()));
    }
    until("the queue is empty", async || queue.remaining() == 0).await;
    for consumer in consumers {
        assert_eq!(consumer.stop().await.dead_lettered, 0);
    }

    let mut effects = fixture.effects().await;
    effects.sort_unstable();
    let expected: Vec<_> = (0..100).map(|n| format!("e{n:02}")).collect();
    assert_eq!(effects, expected);
    assert_eq!(fixture.idle_in_transaction().await, 0);
}
