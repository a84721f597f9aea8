//! PostgreSQL: settings, rights, versions.

use std::time::Duration;

use oneffect_core::{DaysFrom, DuplicateAges, Level, Store, doctor};
use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::finding;
use crate::store_contract::postgres::OnPostgres;
use crate::support::unique;

macro_rules! fixture {
    ($how:ident) => {
        match OnPostgres::$how(PostgresConfig::default()).await {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

/// The same database with another setting for its sessions.
async fn with_setting(fixture: &OnPostgres, name: &str, value: &str) -> Postgres {
    let options = fixture.store.pool().connect_options();
    let options = PgConnectOptions::clone(&options).options([(name, value)]);
    let pool = PgPoolOptions::new().max_connections(2);
    Postgres::from_pool(pool.connect_with(options).await.unwrap())
}

#[tokio::test]
async fn a_database_that_is_fit_says_so() {
    let fixture = fixture!(fresh_with);
    let store = &fixture.store;
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut ages = DuplicateAges::default();
    ages.record(Duration::from_hours(2));
    store.note_duplicate_ages(consumer, &ages).await.unwrap();

    let findings = store.examine().await;

    for part in [
        "as role",
        "synchronous_commit is on",
        "the database's clock",
        "connections are sessions of their own",
        "of version",
        "may read and write all of our tables",
        "duplicates of consumer ledger came within 2 h",
    ] {
        assert_eq!(finding(&findings, part).level, Level::Ok, "{findings:#?}");
    }
    // The servers of tests do not sync, and it does not go unnoticed.
    let others = findings
        .iter()
        .filter(|finding| !finding.what.contains("fsync"));
    let others: Vec<_> = others.cloned().collect();
    assert_eq!(doctor::worst(&others), Level::Ok, "{others:#?}");
}

#[tokio::test]
async fn settings_that_lose_commits_or_take_none_are_problems() {
    let fixture = fixture!(fresh_with);
    for (name, value, part) in [
        ("synchronous_commit", "off", "synchronous_commit is off"),
        ("default_transaction_read_only", "on", "takes no writes"),
    ] {
        let findings = with_setting(&fixture, name, value).await.examine().await;
        assert_eq!(
            finding(&findings, part).level,
            Level::Problem,
            "{findings:#?}"
        );
    }
}

#[tokio::test]
async fn a_schema_that_is_missing_or_of_another_version_is_a_problem() {
    let fixture = fixture!(unmigrated);
    let findings = fixture.store.examine().await;
    let missing = super::problems(&findings);
    let said = missing
        .iter()
        .any(|finding| finding.to_do.contains("Postgres::migrate"));
    assert!(said, "{findings:#?}");

    fixture.store.migrate().await.unwrap();
    let newer = "INSERT INTO oneffect_migration (version) VALUES (99)";
    sqlx::raw_sql(newer).execute(&fixture.pool).await.unwrap();
    let findings = fixture.store.examine().await;
    assert_eq!(finding(&findings, "of version 99").level, Level::Problem);
}

#[tokio::test]
async fn a_database_that_is_away_is_a_problem_and_no_error() {
    let fixture = fixture!(fresh_with);
    let options = fixture.store.pool().connect_options();
    let options = PgConnectOptions::clone(&options).port(1).host("127.0.0.1");
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    let away = Postgres::from_pool(pool.connect_lazy_with(options));

    let findings = away.examine().await;

    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(finding(&findings, "cannot be asked").level, Level::Problem);
}

#[tokio::test]
async fn a_role_without_rights_is_told_which() {
    let fixture = fixture!(fresh_with);
    let (schema, role) = (&fixture.schema, unique("role"));
    let grant = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'secret';
         GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
         GRANT INSERT, UPDATE, DELETE ON {schema}.retry TO {role}"
    );
    run(&fixture.pool, grant).await;
    let as_role = || {
        let set = format!("SET ROLE {role}");
        let options = fixture.store.pool().connect_options();
        let pool = PgPoolOptions::new().max_connections(2);
        let pool = pool.after_connect(move |connection, _| {
            let set = sqlx::AssertSqlSafe(set.clone());
            Box::pin(async move { sqlx::raw_sql(set).execute(connection).await.map(|_| ()) })
        });
        Postgres::from_pool(pool.connect_lazy_with(PgConnectOptions::clone(&options)))
    };

    let findings = as_role().examine().await;
    let lacking = finding(&findings, "on table inbox");
    assert_eq!(lacking.level, Level::Problem);
    assert!(lacking.what.contains("INSERT, UPDATE, DELETE"), "{lacking}");
    let retry = findings
        .iter()
        .any(|finding| finding.what.contains("table retry"));
    assert!(!retry, "{findings:#?}");

    let all =
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}");
    run(&fixture.pool, all).await;
    let findings = as_role().examine().await;
    let enough = finding(&findings, "may read and write all of our tables");
    assert_eq!(enough.level, Level::Ok);

    run(
        &fixture.pool,
        format!("DROP OWNED BY {role}; DROP ROLE {role}"),
    )
    .await;
}

async fn run(pool: &PgPool, sql: String) {
    let sql = sqlx::AssertSqlSafe(sql);
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
}
