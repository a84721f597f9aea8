//! What is said of an inbox's size, against inboxes that are really filled.

use oneffect_core::{
    Begin, Claim, ConsumerId, DaysFrom, EventId, EventKey, Fingerprint, IdShape, InboxLoad,
    InboxSize, Settled, Store, Tenant, Unit,
};
use oneffect_postgres::{Postgres, PostgresConfig};
use oneffect_sqlite::Sqlite;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use uuid::Uuid;

use crate::store_contract::postgres::OnPostgres;
use crate::store_contract::sqlite::OnSqlite;

const BATCH: usize = 1000;

/// What is filled in, and how many.
struct Case {
    name: &'static str,
    load: InboxLoad,
    rows: usize,
}

fn cases(rows: usize) -> Vec<Case> {
    let case = |name, load, rows| Case { name, load, rows };
    let load = |ids| InboxLoad::new(1000.0, 8, ids);
    let plain = load(IdShape::uuid_v7());
    vec![
        case("ordered", plain, rows),
        case("random", load(IdShape::uuid_v4()), rows),
        case(
            "text, tenants and fingerprints",
            load(IdShape::text(40)).tenant(8).fingerprints(),
            rows,
        ),
        case("small replies", plain.replies(200, 0.3), rows / 2),
        case("large replies", plain.replies(3000, 0.1), rows / 4),
    ]
}

/// Claims and records as the runtime does, a batch at a time.
async fn fill<S: Store>(store: &S, case: &Case) {
    let mut rng = StdRng::seed_from_u64(7);
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut left = case.rows;
    while left > 0 {
        let batch = BATCH.min(left);
        left -= batch;
        unit(store, consumer, case, batch, &mut rng).await;
    }
}

async fn unit<S: Store>(
    store: &S,
    consumer: ConsumerId,
    case: &Case,
    batch: usize,
    rng: &mut StdRng,
) {
    let load = &case.load;
    let claims: Vec<Claim> = (0..batch)
        .map(|_| {
            let mut key = EventKey::new(EventId::new(id(load.ids, rng)).unwrap());
            key.tenant = Tenant::new("t".repeat(load.tenant)).unwrap();
            let content = rng.random::<[u8; 8]>();
            let fingerprint = Fingerprint::Payload.of(Some(&content));
            let fingerprint = fingerprint.filter(|_| load.fingerprints);
            Claim::new(key).with_fingerprint(fingerprint)
        })
        .collect();
    let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
    unit.claim(&claims).await.unwrap();
    let mut replies = Vec::new();
    for claim in &claims {
        if load.reply > 0 && rng.random_bool(load.reply_share) {
            let mut reply = vec![0; load.reply];
            rng.fill_bytes(&mut reply);
            let reply = Some(reply.into());
            replies.push((claim.key.clone(), Settled::Done { reply }));
        }
    }
    if !replies.is_empty() {
        unit.record(&replies).await.unwrap();
    }
    unit.commit().await.unwrap();
}

fn id(shape: IdShape, rng: &mut StdRng) -> String {
    if shape.bytes != 17 {
        let digits = (1..shape.bytes).map(|_| char::from(rng.random_range(b'a'..=b'z')));
        return digits.collect();
    }
    let id = if shape.ordered {
        Uuid::now_v7()
    } else {
        uuid::Builder::from_random_bytes(rng.random()).into_uuid()
    };
    id.to_string()
}

/// Within 15 percent.
fn expect_close(case: &Case, what: &str, said: f64, bytes: i64) {
    let rows = f64::from(u32::try_from(case.rows).unwrap());
    let found = f64::from(u32::try_from(bytes).unwrap()) / rows;
    let off = (said - found) / found * 100.0;
    let name = case.name;
    println!("{name}, {what}: said {said:.1}, found {found:.1} bytes a row ({off:+.1} %)");
    assert!(off.abs() <= 15.0, "{name}, {what}: {off:+.1} %");
}

#[tokio::test]
async fn an_inbox_on_postgresql_is_as_large_as_was_said() {
    for case in cases(200_000) {
        let Some(fixture) = OnPostgres::fresh_with(PostgresConfig::default()).await else {
            return;
        };
        fill(&fixture.store, &case).await;

        let sizes = "SELECT sum(pg_table_size(oid))::bigint, sum(pg_indexes_size(oid))::bigint
                     FROM pg_class
                     WHERE relnamespace = to_regnamespace($1)::oid AND relkind = 'r'
                       AND relname LIKE 'inbox%' AND pg_relation_size(oid) > 0";
        let (table, index): (i64, i64) = sqlx::query_as(sizes)
            .bind(&fixture.schema)
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
        let InboxSize { row, .. } = Postgres::inbox_size(case.load);
        expect_close(&case, "table", row.table, table);
        expect_close(&case, "index", row.index, index);
        let drop = format!("DROP SCHEMA {} CASCADE", fixture.schema);
        sqlx::raw_sql(sqlx::AssertSqlSafe(drop))
            .execute(&fixture.pool)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn an_inbox_on_sqlite_is_as_large_as_was_said() {
    for case in cases(100_000) {
        let fixture = OnSqlite::migrated().await;
        let bytes = async || -> i64 {
            let pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
            sqlx::query_scalar(pages)
                .fetch_one(&fixture.pool)
                .await
                .unwrap()
        };
        let before = bytes().await;
        fill(&fixture.store, &case).await;

        let InboxSize { row, .. } = Sqlite::inbox_size(case.load);
        let together = row.table + row.index;
        expect_close(&case, "together", together, bytes().await - before);
    }
}
