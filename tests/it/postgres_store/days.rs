//! Partitions, the floor and the open period, on a server of each version that there is.

mod barrier;
mod interrupted;
mod midnight;
mod missing;
mod window;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oneffect_core::testing::store_contract::{Fixture, ageless};
use oneffect_core::{
    Begin, Claim, ConsumerId, Day, EventKey, Late, Maintained, Store, Unit, Verdict,
};
use oneffect_postgres::{Isolation, Postgres, PostgresConfig, PostgresUnit};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{DUPLICATE, fresh_verdict, key};
use crate::store_contract::postgres::OnServer;
use crate::support::until;

/// Writes the tests for each server.
macro_rules! on_each_server {
    ($($test:ident)+) => {
        mod on_postgres {
            $(#[tokio::test] async fn $test() { super::$test::<0>().await; })+
        }
        mod on_postgres_18 {
            $(#[tokio::test] async fn $test() { super::$test::<18>().await; })+
        }
    };
}
use on_each_server;

/// A database whose clock stands at noon of a day, with its partitions; or the end of the test when
/// there is no server.
macro_rules! on_day {
    ($server:ident, $day:expr) => {
        match OnServer::<$server>::fresh_with(PostgresConfig::default()).await {
            Some(fixture) => {
                super::set_day(&fixture, $day).await;
                super::maintain(&fixture.store).await;
                fixture
            }
            None => return,
        }
    };
}
use on_day;

const DAY: Duration = Duration::from_hours(24);
const ISOLATIONS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// Later than any that a database has seen by its own clock.
#[allow(
    clippy::disallowed_methods,
    reason = "where the clock that is set later is now"
)]
pub(super) fn some_day() -> Day {
    Day::of(SystemTime::now()).plus(30)
}

fn midnight_of(day: Day) -> SystemTime {
    UNIX_EPOCH + DAY * u32::try_from(day.number()).unwrap()
}

pub(super) async fn set_day<const SERVER: u8>(fixture: &OnServer<SERVER>, day: Day) {
    fixture.set_clock(midnight_of(day) + DAY / 2).await;
}

/// Rounds until nothing is left to do.
pub(super) async fn maintain(store: &Postgres) -> Maintained {
    let mut all = store.maintain().await.unwrap();
    for _ in 0..100 {
        if !all.postponed {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let next = store.maintain().await.unwrap();
        all.created += next.created;
        all.dropped += next.dropped;
        all.doubled += next.doubled;
        (all.floor, all.postponed) = (next.floor, next.postponed);
    }
    panic!("something always has to wait: {all:?}")
}

/// A UUID of version 7 at that time.
fn uuid_at(time: SystemTime, number: u64) -> EventKey {
    let millis = time.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let hex = format!("{millis:012x}");
    key(&format!(
        "{}-{}-7000-8000-{number:012x}",
        &hex[..8],
        &hex[8..]
    ))
}

pub(super) fn of_day(day: Day, number: u64) -> EventKey {
    uuid_at(midnight_of(day) + DAY / 2, number)
}

async fn begin(store: &Postgres, consumer: ConsumerId, late: Late) -> PostgresUnit {
    let mut begin = Begin::new(consumer);
    begin.claim_wait = Duration::from_secs(30);
    begin.late = late;
    store.begin(begin).await.unwrap()
}

/// Claims and commits.
async fn claim(
    store: &Postgres,
    consumer: ConsumerId,
    late: Late,
    claims: &[Claim],
) -> Vec<Verdict> {
    let mut unit = begin(store, consumer, late).await;
    let verdicts = unit.claim(claims).await.unwrap();
    unit.commit().await.unwrap();
    ageless(verdicts)
}

fn is_fresh(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Fresh(_))
}

/// Partitions of both tables, by their names; and tables that look like one.
async fn partitions<const SERVER: u8>(fixture: &OnServer<SERVER>) -> Vec<String> {
    let sql = "SELECT relname::text FROM pg_class
               WHERE relnamespace = to_regnamespace($1)::oid AND relkind = 'r'
                 AND relname ~ '^inbox_(open_)?[0-9]{8}$' ORDER BY relname";
    let names = sqlx::query_scalar(sql).bind(&fixture.schema);
    names.fetch_all(&fixture.pool).await.unwrap()
}

/// What a partition of that day is called.
fn partition(parent: &str, day: Day) -> String {
    format!("{parent}_{}", day.to_string().replace('-', ""))
}

/// A store as another process would have it, with a session of its own kind.
async fn another<const SERVER: u8>(
    fixture: &OnServer<SERVER>,
    connections: u32,
    isolation: Isolation,
    zone: &str,
) -> Postgres {
    let options: PgConnectOptions = fixture.url.parse().unwrap();
    let options = options.application_name(&fixture.schema).options([
        ("search_path", fixture.schema.as_str()),
        ("TimeZone", zone),
        ("DateStyle", "German"),
    ]);
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .unwrap();
    let config = PostgresConfig::default().isolation(isolation);
    Postgres::from_pool_with(pool, config).unwrap()
}

pub(super) async fn run<const SERVER: u8>(fixture: &OnServer<SERVER>, sql: impl Into<String>) {
    let sql = AssertSqlSafe(sql.into());
    sqlx::raw_sql(sql).execute(&fixture.pool).await.unwrap();
}

async fn effects_by_number<const SERVER: u8>(fixture: &OnServer<SERVER>) -> Vec<(String, i64)> {
    let sql =
        "SELECT convert_from(effect, 'UTF8'), count(*) FROM effect GROUP BY effect ORDER BY 1";
    sqlx::query_as(sql).fetch_all(&fixture.pool).await.unwrap()
}

async fn write_effect(connection: &mut PgConnection, key: &EventKey) {
    OnServer::<0>::write_effect(connection, &key.id.to_string()).await;
}
