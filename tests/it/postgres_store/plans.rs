//! Plans that were made while a table was empty, and are kept when it is full.

use std::time::Duration;

use oneffect_core::{Claim, DaysFrom, EventKey, Settled, Store, Unit};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{begin, fresh, key};
use crate::store_contract::postgres::OnPostgres;

const ROWS: i64 = 100_000;

#[tokio::test]
async fn a_plan_made_on_an_empty_table_probes_the_index_of_a_full_one() {
    let fixture = fresh!();

    let read = rows_read_in_sequence_once_full(&fixture).await;

    assert_eq!(read, 0, "a table was read from end to end");
}

/// With statistics that say "three rows" the server plans to read them all. Until it counts again,
/// a statement may do so once, but never once for each key.
#[tokio::test]
async fn a_plan_made_on_a_small_table_reads_a_full_one_once_at_most() {
    let fixture = fresh!();
    let some = "
        INSERT INTO inbox (consumer, event_id, tenant)
            SELECT 1, '\\x02'::bytea || convert_to('new-' || n, 'UTF8'), '' FROM generate_series(1, 3) n;
        INSERT INTO retry (consumer, event_id, tenant, attempts, last_error, next_attempt_at)
            SELECT 1, '\\x02'::bytea || convert_to('new-' || n, 'UTF8'), '', 1, '', now() FROM generate_series(1, 3) n";
    sqlx::raw_sql(some).execute(&fixture.pool).await.unwrap();
    for vacuum in ["VACUUM ANALYZE inbox", "VACUUM ANALYZE retry"] {
        sqlx::raw_sql(vacuum).execute(&fixture.pool).await.unwrap();
    }

    let read = rows_read_in_sequence_once_full(&fixture).await;

    assert!(read < 5 * ROWS, "{read} rows were read");
}

/// Runs all statements on small tables, fills them, and runs all again with the same plans.
async fn rows_read_in_sequence_once_full(fixture: &OnPostgres) -> i64 {
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
    // Statistics that come in later would make new plans, and hide the old.
    let setup = "ALTER TABLE inbox SET (autovacuum_enabled = off); ALTER TABLE retry SET (autovacuum_enabled = off)";
    sqlx::raw_sql(setup).execute(&fixture.pool).await.unwrap();
    let batch: Vec<EventKey> = (0..100).map(|n| key(&format!("{n}"))).collect();
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

    let fill = format!("
        INSERT INTO inbox (consumer, event_id, tenant)
            SELECT 1, '\\x02'::bytea || convert_to('old-' || n, 'UTF8'), '' FROM generate_series(1, {ROWS}) n;
        INSERT INTO retry (consumer, event_id, tenant, attempts, last_error, next_attempt_at)
            SELECT 1, '\\x02'::bytea || convert_to('old-' || n, 'UTF8'), '', 1, '', now() FROM generate_series(1, {ROWS}) n");
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill))
        .execute(&fixture.pool)
        .await
        .unwrap();
    let before = rows_read_in_sequence(fixture, &store).await;
    all_statements().await;
    rows_read_in_sequence(fixture, &store).await - before
}

/// By the store's connection, as the server counts.
async fn rows_read_in_sequence(fixture: &OnPostgres, store: &Postgres) -> i64 {
    // Counts are handed in at the end of a transaction.
    sqlx::raw_sql("SELECT pg_stat_force_next_flush()")
        .execute(store.pool())
        .await
        .unwrap();
    sqlx::raw_sql("SELECT 1")
        .execute(store.pool())
        .await
        .unwrap();
    let sql = "SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables
               WHERE schemaname = $1 AND relname IN ('inbox', 'retry')";
    sqlx::query_scalar(sql)
        .bind(&fixture.schema)
        .fetch_one(&fixture.pool)
        .await
        .unwrap()
}
