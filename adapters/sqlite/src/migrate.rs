//! The schema and its versions.

mod script;
mod status;

use oneffect_core::StoreError;
use sqlx::SqliteConnection;

use crate::blame::{is_busy, is_outage};
use crate::store::Sqlite;
use crate::transaction::Transaction;

/// The version of the schema that this program works with.
pub const SCHEMA_VERSION: i32 = 4;

struct Migration {
    /// What it makes, and what its way down starts from.
    version: i32,
    up: &'static str,
    down: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        up: include_str!("../migrations/0001_inbox.up.sql"),
        down: include_str!("../migrations/0001_inbox.down.sql"),
    },
    Migration {
        version: 2,
        up: include_str!("../migrations/0002_dead_letter.up.sql"),
        down: include_str!("../migrations/0002_dead_letter.down.sql"),
    },
    Migration {
        version: 3,
        up: include_str!("../migrations/0003_crash_guard.up.sql"),
        down: include_str!("../migrations/0003_crash_guard.down.sql"),
    },
    Migration {
        version: 4,
        up: include_str!("../migrations/0004_duplicate_ages.up.sql"),
        down: include_str!("../migrations/0004_duplicate_ages.down.sql"),
    },
];

const KEEP_COUNT: &str = "\
CREATE TABLE IF NOT EXISTS oneffect_migration (
    version    INTEGER PRIMARY KEY,
    applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
) STRICT";

impl Sqlite {
    /// Brings the schema to the version that this program works with. Does nothing where it has
    /// that version, and never runs by itself.
    ///
    /// Any number of processes may call it at once: one works, the others wait. All is one
    /// transaction, so a process that is killed leaves nothing half done.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the database refuses (clashing names) or holds a newer
    /// schema; [`StoreError::RolledBack`] when it cannot be written now.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.run(SCHEMA_VERSION, false).await
    }

    /// Brings the schema to some version, back if need be. **Going back forgets**: version 0 is an
    /// empty schema, without inbox and dead letters.
    ///
    /// # Errors
    /// As [`Sqlite::migrate`]; also for a version that this program does not know.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn migrate_to(&self, version: i32) -> Result<(), StoreError> {
        check_known(version)?;
        self.run(version, true).await
    }

    async fn run(&self, to: i32, back: bool) -> Result<(), StoreError> {
        let mut transaction = Transaction::begin(self.pool()).await.map_err(failed)?;
        let from = prepare(&mut transaction).await.map_err(failed)?;
        if from > SCHEMA_VERSION || (from > to && !back) {
            return Err(StoreError::misconfigured(format!(
                "the schema is of version {from}, made by a newer program; this one knows version \
                 {SCHEMA_VERSION}"
            )));
        }
        apply(&mut transaction, from, to).await.map_err(failed)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }
}

fn check_known(version: i32) -> Result<(), StoreError> {
    if (0..=SCHEMA_VERSION).contains(&version) {
        return Ok(());
    }
    Err(StoreError::misconfigured(format!(
        "this program knows the versions 0 to {SCHEMA_VERSION} of the schema, and not {version}"
    )))
}

async fn apply(transaction: &mut Transaction, from: i32, to: i32) -> sqlx::Result<()> {
    for statements in statements(from, to) {
        // From our own files, and numbers.
        let statements = sqlx::AssertSqlSafe(statements);
        sqlx::raw_sql(statements)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}

/// What leads from one version to another, with what notes it.
fn statements(from: i32, to: i32) -> Vec<String> {
    let up = MIGRATIONS.iter();
    let up = up.filter(|migration| (from + 1..=to).contains(&migration.version));
    let up = up.map(|Migration { version, up, .. }| {
        format!("{up}\nINSERT INTO oneffect_migration (version) VALUES ({version});\n")
    });
    let down = MIGRATIONS.iter().rev();
    let down = down.filter(|migration| (to + 1..=from).contains(&migration.version));
    let down = down.map(|Migration { version, down, .. }| {
        format!("{down}\nDELETE FROM oneffect_migration WHERE version = {version};\n")
    });
    let mut statements: Vec<_> = up.chain(down).collect();
    if to == 0 && from > 0 {
        statements.push("DROP TABLE oneffect_migration;\n".to_owned());
    }
    statements
}

/// Finds out where the schema stands.
async fn prepare(transaction: &mut Transaction) -> sqlx::Result<i32> {
    execute(transaction, KEEP_COUNT).await?;
    current_version(transaction).await
}

/// 0 where there is none.
pub(crate) async fn current_version(connection: &mut SqliteConnection) -> sqlx::Result<i32> {
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = 'oneffect_migration'")
            .fetch_one(&mut *connection)
            .await?;
    if tables == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM oneffect_migration")
        .fetch_one(connection)
        .await
}

async fn execute(transaction: &mut Transaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut **transaction).await?;
    Ok(())
}

fn failed(error: sqlx::Error) -> StoreError {
    if is_outage(&error) || is_busy(&error) {
        return StoreError::rolled_back(error);
    }
    StoreError::Misconfigured {
        message: "the schema cannot be migrated; nothing was changed".into(),
        cause: Some(error.into()),
    }
}
