//! Plans that were made while a table was empty, and are kept when it is full.

use std::time::Duration;

use oneffect_core::{Claim, DaysFrom, EventKey, Settled, Store, Unit};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::days::{maintain, of_day, run, set_day, some_day};
use super::{begin, key};
use crate::store_contract::postgres::OnServer;

const ROWS: i64 = 100_000;

/// How a row is put where: of today, of the open period, of a closed one; and a failed attempt.
const ROWS_OF: [&str; 4] = [
    "inbox (consumer, event_id, tenant, day)
         SELECT 1, event_id, '', (oneffect_now() AT TIME ZONE 'UTC')::date",
    "inbox_open (consumer, event_id, tenant, day)
         SELECT 1, event_id, '', (SELECT open_period FROM inbox_floor)",
    "inbox_open (consumer, event_id, tenant, day)
         SELECT 1, event_id, '', (SELECT open_floor FROM inbox_floor)",
    "retry (consumer, event_id, tenant, attempts, last_error, next_attempt_at)
         SELECT 1, event_id, '', 1, '', now()",
];

#[tokio::test]
async fn a_plan_made_on_empty_tables_probes_the_indexes_of_full_ones() {
    on_empty_tables::<0>().await;
}

#[tokio::test]
async fn on_18_a_plan_made_on_empty_tables_probes_the_indexes_of_full_ones() {
    on_empty_tables::<18>().await;
}

#[tokio::test]
async fn a_plan_made_on_small_tables_reads_a_full_one_once_at_most() {
    on_small_tables::<0>().await;
}

#[tokio::test]
async fn on_18_a_plan_made_on_small_tables_reads_a_full_one_once_at_most() {
    on_small_tables::<18>().await;
}

async fn on_empty_tables<const SERVER: u8>() {
    let Some(fixture) = with_partitions::<SERVER>().await else {
        return;
    };

    let read = rows_read_in_sequence_once_full(&fixture).await;

    assert_eq!(read, 0, "a table was read from end to end");
}

/// With statistics that say "three rows" the server plans to read them all. Until it counts again,
/// a statement may do so once, but never once for each key.
async fn on_small_tables<const SERVER: u8>() {
    let Some(fixture) = with_partitions::<SERVER>().await else {
        return;
    };
    fill(&fixture, "new", 3).await;
    for table in tables(&fixture).await {
        run(&fixture, format!("VACUUM ANALYZE {table}")).await;
    }

    let read = rows_read_in_sequence_once_full(&fixture).await;

    // Nine statements look at one of the four.
    assert!(read < 12 * ROWS, "{read} rows were read");
}

/// With a period that is closed, and ten days.
async fn with_partitions<const SERVER: u8>() -> Option<OnServer<SERVER>> {
    let fixture = OnServer::<SERVER>::fresh_with(PostgresConfig::default()).await?;
    let today = some_day();
    set_day(&fixture, today.plus(-2)).await;
    maintain(&fixture.store).await;
    set_day(&fixture, today).await;
    maintain(&fixture.store).await;
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut unit = begin(&fixture.store, consumer).await;
    let days = (-8..=1).map(|ahead| Claim::new(of_day(today.plus(ahead), 0)));
    unit.claim(&days.collect::<Vec<_>>()).await.unwrap();
    unit.rollback().await;
    // Its sessions would hand in what they count whenever they like.
    fixture.store.pool().close().await;
    // Statistics that come in later would make new plans, and hide the old.
    for table in tables(&fixture).await {
        run(
            &fixture,
            format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"),
        )
        .await;
    }
    Some(fixture)
}

async fn tables<const SERVER: u8>(fixture: &OnServer<SERVER>) -> Vec<String> {
    let sql = "SELECT relname::text FROM pg_class
               WHERE relnamespace = to_regnamespace($1)::oid AND relkind = 'r'
                 AND (relname ~ '^inbox_(open_)?[0-9]' OR relname = 'retry')";
    let names = sqlx::query_scalar(sql).bind(&fixture.schema);
    names.fetch_all(&fixture.pool).await.unwrap()
}

async fn fill<const SERVER: u8>(fixture: &OnServer<SERVER>, name: &str, rows: i64) {
    for insert in ROWS_OF {
        let sql = format!(
            "INSERT INTO {insert} FROM (
                 SELECT '\\x02'::bytea || convert_to('{name}-' || n, 'UTF8') FROM generate_series(1, {rows}) n
             ) AS ids (event_id)"
        );
        run(fixture, sql).await;
    }
}

/// Runs all statements on small tables, fills them, and runs all again with the same plans.
async fn rows_read_in_sequence_once_full<const SERVER: u8>(fixture: &OnServer<SERVER>) -> i64 {
    // One connection, whose every plan is made once and for all: the worst case.
    let options = fixture.store.pool().connect_options();
    let options =
        PgConnectOptions::clone(&options).options([("plan_cache_mode", "force_generic_plan")]);
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap();
    let store = Postgres::from_pool(pool);
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let today = some_day();
    let batch: Vec<EventKey> = (0..50)
        .flat_map(|n| [key(&format!("{n}")), of_day(today, n)])
        .collect();
    let all_statements = async || {
        let mut unit = begin(&store, consumer).await;
        let claims: Vec<Claim> = batch.iter().cloned().map(Claim::new).collect();
        unit.claim(&claims).await.unwrap();
        unit.unclaim(&batch[..50]).await.unwrap();
        unit.forget_attempts(&batch).await.unwrap();
        let dead: Vec<_> = batch[50..]
            .iter()
            .map(|key| (key.clone(), Settled::Dead))
            .collect();
        unit.record(&dead).await.unwrap();
        unit.commit().await.unwrap();
        for key in &batch[..5] {
            store
                .charge(consumer, key, "failed", Duration::ZERO)
                .await
                .unwrap();
        }
    };
    all_statements().await;
    all_statements().await;

    fill(fixture, "old", ROWS).await;
    let before = read_so_far(fixture, &store).await;
    all_statements().await;
    let after = read_so_far(fixture, &store).await;

    // The claims are of one of the ten days.
    assert_eq!(
        after.other_days, before.other_days,
        "other days were looked into"
    );
    after.rows - before.rows
}

#[derive(Clone, Copy)]
struct Read {
    /// From end to end.
    rows: i64,
    /// How often other days than today were looked into, in whatever way.
    other_days: i64,
}

/// By the store's connection, as the server counts.
async fn read_so_far<const SERVER: u8>(fixture: &OnServer<SERVER>, store: &Postgres) -> Read {
    // Counts are handed in at the end of a transaction.
    sqlx::raw_sql("SELECT pg_stat_force_next_flush()")
        .execute(store.pool())
        .await
        .unwrap();
    sqlx::raw_sql("SELECT 1")
        .execute(store.pool())
        .await
        .unwrap();
    let sql = "SELECT sum(seq_tup_read)::bigint,
                      sum(seq_scan + coalesce(idx_scan, 0)) FILTER (WHERE relname <> $2 AND relname ~ '^inbox_[0-9]')::bigint
               FROM pg_stat_user_tables
               WHERE schemaname = $1 AND (relname ~ '^inbox_(open_)?[0-9]' OR relname = 'retry')";
    let today = format!("inbox_{}", some_day().to_string().replace('-', ""));
    let (rows, other_days) = sqlx::query_as(sql)
        .bind(&fixture.schema)
        .bind(today)
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    Read { rows, other_days }
}
