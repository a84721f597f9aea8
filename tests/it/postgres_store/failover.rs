//! Whole consumers, while the database goes away in the ways of a failover.

use std::time::Duration;

use oneffect::testing::{MemoryQueue, Message};
use oneffect::{Consumer, Context, Handler, HandlerResult, Limit, Postgres, Stats, done};
use oneffect_core::testing::store_contract::Fixture;
use oneffect_postgres::PostgresConfig;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnectOptions;

use super::fresh;
use super::proxy::Proxy;
use crate::end_to_end::{Probe, Running};
use crate::store_contract::postgres::OnPostgres;
use crate::support::until;

const EVENTS: usize = 60;

struct Effects;

impl Handler<Postgres> for Effects {
    type Event = serde_json::Value;

    async fn handle(
        &self,
        cx: &mut Context<'_, Postgres>,
        event: serde_json::Value,
    ) -> HandlerResult {
        let id = event["event_id"].as_str().unwrap().to_owned();
        let insert = sqlx::query("INSERT INTO effect (effect) VALUES ($1)");
        // Slow enough for the fault to find it at work.
        tokio::time::sleep(Duration::from_millis(5)).await;
        insert.bind(id.as_bytes()).execute(cx.db().await?).await?;
        done()
    }
}

/// Runs a consumer until all events are settled; the fault strikes when some are.
async fn consume(fixture: &OnPostgres, store: Postgres, fault: impl AsyncFnOnce()) -> Stats {
    let queue = MemoryQueue::standard("q");
    for n in 0..EVENTS {
        let body = serde_json::json!({ "event_id": format!("e{n:02}") });
        queue.send(Message::new(serde_json::to_vec(&body).unwrap()));
    }
    let consumer = Consumer::new("ledger", queue.source(), store, Effects)
        .workers(3)
        .batch(Limit {
            messages: 2,
            bytes: 1 << 20,
        })
        .handler_timeout(Duration::from_secs(3));
    let running = Running::run(consumer, Probe::default());
    until("some have taken effect", async || {
        !fixture.effects().await.is_empty()
    })
    .await;
    fault().await;
    until("the queue is empty", async || queue.remaining() == 0).await;
    let stats = running.stop().await;
    let mut effects = fixture.effects().await;
    effects.sort_unstable();
    let expected: Vec<_> = (0..EVENTS).map(|n| format!("e{n:02}")).collect();
    assert_eq!(effects, expected);
    assert!(fixture.dead_letters().await.is_empty());
    stats
}

/// Every connection becomes half open, and for a while new ones do too.
#[tokio::test(flavor = "multi_thread")]
async fn all_take_effect_once_when_every_connection_falls_silent() {
    let fixture = fresh!();
    let proxy = Proxy::start(&fixture.store.pool().connect_options()).await;
    let config = PostgresConfig::default()
        .statement_timeout(Duration::from_secs(2))
        .idle_in_transaction_timeout(Duration::from_secs(4))
        .answer_timeout(Duration::from_secs(2));
    let options = fixture.store.pool().connect_options();
    let store = proxy.store_with(&options, 4, config).await;

    consume(&fixture, store, async || {
        proxy.fall_silent();
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.recover();
    })
    .await;
}

/// Field case 115: sessions end, and those that are made next are on a standby, or on a primary that
/// has been demoted. When it is over, they are still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_interlude_dead_letters_nothing_and_leaves_no_read_only_session() {
    let fixture = fresh!();
    let role = &fixture.schema;
    let admin = async |sql: &str| {
        let sql = AssertSqlSafe(sql.replace("{role}", role));
        sqlx::raw_sql(sql).execute(&fixture.pool).await.unwrap();
    };
    admin(
        "CREATE ROLE {role} LOGIN;
         GRANT ALL ON SCHEMA {role} TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA {role} TO {role};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {role} TO {role}",
    )
    .await;
    let options: PgConnectOptions = fixture.url.parse().unwrap();
    let options = options.username(role).options([("search_path", role)]);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let store = Postgres::from_pool(pool.clone());

    let stats = consume(&fixture, store, async || {
        admin("ALTER ROLE {role} SET default_transaction_read_only = on").await;
        admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
            .await;
        let before = fixture.effects().await.len();
        tokio::time::sleep(Duration::from_secs(2)).await;
        // What was at work may have committed just before.
        assert!(fixture.effects().await.len() <= before + 6);
        admin("ALTER ROLE {role} RESET default_transaction_read_only").await;
    })
    .await;

    assert_eq!((stats.attempts_charged, stats.dead_lettered), (0, 0));
    pool.close().await;
    admin("DROP OWNED BY {role}; DROP ROLE {role}").await;
}
