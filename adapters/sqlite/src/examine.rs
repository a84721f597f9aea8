//! What a person should know about the file and the schema.

use oneffect_core::doctor;
use oneffect_core::{ConsumerId, Finding, Store, StoreError, Window, error_chain};

use crate::migrate::{SCHEMA_VERSION, current_version};
use crate::store::Sqlite;

impl Sqlite {
    pub(crate) async fn examine_all(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let is_migrated = match self.examine_file(&mut findings).await {
            Ok(is_migrated) => is_migrated,
            Err(error) => {
                findings.push(Finding::problem(
                    format!("the file cannot be written: {}", error_chain(&error)),
                    "no consumer can start",
                    "check its rights, its directory's, and whether another process is writing",
                ));
                return findings;
            }
        };
        if is_migrated {
            findings.extend(self.examine_consumers().await.unwrap_or_else(|error| {
                let what = format!("the schema cannot be read: {}", error_chain(&error));
                let why = "the consumers were not checked";
                vec![Finding::problem(
                    what,
                    why,
                    "restore the file from a backup",
                )]
            }));
        }
        findings
    }

    /// Tells whether there is a schema to go on with.
    async fn examine_file(&self, findings: &mut Vec<Finding>) -> Result<bool, StoreError> {
        // Begins as a writer, which only works where one can write.
        let mut transaction = self.begin_plain().await?;
        let version: String = sqlx::query_scalar("SELECT sqlite_version()")
            .fetch_one(&mut *transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut *transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&mut *transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        let busy_timeout: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
            .fetch_one(&mut *transaction)
            .await
            .map_err(StoreError::rolled_back)?;
        let found = current_version(&mut transaction)
            .await
            .map_err(StoreError::rolled_back);
        transaction.rollback().await;
        let found = found?;
        findings.push(Finding::ok(format!(
            "SQLite {version}, and the file can be written"
        )));
        findings.push(commits(synchronous));
        findings.push(journal_mode(&journal));
        findings.push(patience(busy_timeout));
        findings.push(schema_version(found));
        Ok(found == SCHEMA_VERSION)
    }

    async fn examine_consumers(&self) -> Result<Vec<Finding>, StoreError> {
        let consumers: Vec<(i32, String, String)> =
            sqlx::query_as(include_str!("queries/consumers.sql"))
                .fetch_all(self.pool())
                .await
                .map_err(StoreError::rolled_back)?;
        let window = self.window().await.unwrap_or(Window::Unlimited);
        let mut findings = Vec::new();
        for (id, name, days_from) in consumers {
            findings.push(doctor::days_from(&name, &days_from));
            let ages = self.read_duplicate_ages(ConsumerId(id)).await?;
            findings.push(doctor::duplicate_ages(&name, &ages, window));
        }
        Ok(findings)
    }
}

fn commits(synchronous: i64) -> Finding {
    let name = match synchronous {
        0 => "OFF",
        1 => "NORMAL",
        2 => "FULL",
        _ => "EXTRA",
    };
    let what = format!("PRAGMA synchronous is {name}");
    if synchronous >= 2 {
        Finding::ok(what)
    } else {
        Finding::problem(
            what,
            "a power failure takes back commits that the broker was told of, and their events are \
             lost: consumers refuse to start",
            "leave it at FULL, which this store sets",
        )
    }
}

fn journal_mode(journal: &str) -> Finding {
    let what = format!("PRAGMA journal_mode is {journal}");
    if journal.eq_ignore_ascii_case("wal") {
        Finding::ok(what)
    } else {
        Finding::warning(
            what,
            "readers stop the writer, and every commit is slower",
            "WAL does not work on network file systems: keep the file on a local disk",
        )
    }
}

fn patience(busy_timeout: i64) -> Finding {
    let what = format!("PRAGMA busy_timeout is {busy_timeout} ms");
    if busy_timeout >= 1000 {
        Finding::ok(what)
    } else {
        Finding::warning(
            what,
            "units fail, and are tried again, whenever another process writes for longer",
            "set `SqliteConfig::busy_timeout` to some seconds",
        )
    }
}

fn schema_version(found: i32) -> Finding {
    if found == SCHEMA_VERSION {
        return Finding::ok(format!("the schema is of version {found}"));
    }
    let (what, to_do) = match found {
        0 => (
            "there is no inbox in this file".to_owned(),
            "call `Sqlite::migrate` once",
        ),
        found if found < SCHEMA_VERSION => (
            format!("the schema is of version {found}, and this program needs {SCHEMA_VERSION}"),
            "call `Sqlite::migrate` once",
        ),
        found => (
            format!("the schema is of version {found}, and this program knows {SCHEMA_VERSION}"),
            "update this program",
        ),
    };
    Finding::problem(what, "consumers refuse to start", to_do)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneffect_core::Level;

    #[test]
    fn settings_that_lose_commits_are_problems() {
        for (synchronous, level) in [(0, Level::Problem), (1, Level::Problem), (2, Level::Ok)] {
            assert_eq!(commits(synchronous).level, level);
        }
        assert_eq!(journal_mode("delete").level, Level::Warning);
        assert_eq!(patience(0).level, Level::Warning);
    }
}
