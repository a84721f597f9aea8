//! SQLite: the file, its settings, its schema.

use oneffect_core::{DaysFrom, Level, Store, doctor};
use oneffect_sqlite::{Sqlite, SqliteConfig};

use super::finding;
use crate::store_contract::sqlite::OnSqlite;

#[tokio::test]
async fn a_file_that_is_fit_says_so() {
    let fixture = OnSqlite::migrated().await;
    fixture.store.open("ledger", DaysFrom::Id).await.unwrap();

    let findings = fixture.store.examine().await;

    assert_eq!(doctor::worst(&findings), Level::Ok, "{findings:#?}");
    for part in [
        "synchronous is FULL",
        "journal_mode is wal",
        "busy_timeout",
        "no duplicates of consumer ledger",
    ] {
        finding(&findings, part);
    }
}

#[tokio::test]
async fn a_file_without_a_schema_says_what_to_call() {
    let fixture = OnSqlite::unmigrated().await;
    let findings = fixture.store.examine().await;
    let missing = finding(&findings, "there is no inbox");
    assert_eq!(missing.level, Level::Problem);
    assert!(missing.to_do.contains("Sqlite::migrate"), "{missing}");
}

#[tokio::test]
async fn a_file_that_another_process_writes_for_too_long_cannot_be_written() {
    let fixture = OnSqlite::migrated().await;
    let path = fixture.path.to_str().unwrap();
    let config = SqliteConfig::default().busy_timeout(std::time::Duration::from_millis(50));
    let other = Sqlite::open_with(path, config).await.unwrap();
    let mut writer = fixture.pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut *writer)
        .await
        .unwrap();

    let findings = other.examine().await;
    assert_eq!(
        finding(&findings, "cannot be written").level,
        Level::Problem
    );

    sqlx::raw_sql("ROLLBACK")
        .execute(&mut *writer)
        .await
        .unwrap();
    let findings = other.examine().await;
    assert_eq!(
        finding(&findings, "busy_timeout is 50 ms").level,
        Level::Warning
    );
}
