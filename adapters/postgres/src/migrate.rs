//! The schema and its versions.

mod script;
mod status;

use std::time::Duration;

use oneffect_core::StoreError;
use sqlx::PgConnection;

use crate::blame::is_outage;
use crate::partitions::create_missing;
use crate::store::Postgres;
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
        version: 4,
        up: include_str!("../migrations/0004_duplicate_ages.up.sql"),
        down: include_str!("../migrations/0004_duplicate_ages.down.sql"),
    },
];

const TAKE_TURNS: &str = "SELECT pg_catalog.pg_advisory_xact_lock(7811054412018253)";

const KEEP_COUNT: &str = "\
CREATE TABLE IF NOT EXISTS oneffect_migration (
    version    int         PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)";

impl Postgres {
    /// Brings the schema to the version that this program works with. Does nothing where it has
    /// that version, and never runs by itself.
    ///
    /// Any number of processes may call it at once: one works, the others wait. All is one
    /// transaction, so a process that is killed leaves nothing half done. Waits for locks as long as
    /// it has to: when tables change, call it while few consumers run.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the database refuses (rights, clashing names) or holds a
    /// newer schema; [`StoreError::RolledBack`] when it cannot be reached.
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
    /// As [`Postgres::migrate`]; also for a version that this program does not know.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn migrate_to(&self, version: i32) -> Result<(), StoreError> {
        check_known(version)?;
        self.run(version, true).await
    }

    async fn run(&self, to: i32, back: bool) -> Result<(), StoreError> {
        // No deadlines: a rival may take as long as it needs.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 0; \
                     SET LOCAL statement_timeout = 0; \
                     SET LOCAL idle_in_transaction_session_timeout = '1min'";
        let mut transaction = Transaction::begin(self.connections(), begin, Duration::ZERO).await?;
        let from = self.prepare(&mut transaction).await.map_err(failed)?;
        if from > SCHEMA_VERSION || (from > to && !back) {
            return Err(StoreError::misconfigured(format!(
                "the schema is of version {from}, made by a newer program; this one knows version \
                 {SCHEMA_VERSION}"
            )));
        }
        apply(&mut transaction, from, to).await.map_err(failed)?;
        if from < 1 && to >= 1 {
            self.prepare_inbox(&mut transaction).await.map_err(failed)?;
        }
        transaction.commit().await
    }

    /// Waits for its turn, and finds out where the schema stands.
    async fn prepare(&self, transaction: &mut Transaction) -> sqlx::Result<i32> {
        // The lock ends with the transaction, so it works behind a pooler. All schemas share it:
        // the name of one that does not exist yet cannot be asked for. Nothing may look for the
        // schema before the lock is there, not even by way of the search_path: the server remembers
        // that it was not there, and would fail to create what a rival has created meanwhile.
        execute(transaction, TAKE_TURNS).await?;
        let search_path = sqlx::AssertSqlSafe(self.config().search_path());
        sqlx::raw_sql(search_path)
            .execute(&mut **transaction)
            .await?;
        if let Some(schema) = self.schema() {
            // A plain name: the config has seen to it.
            let create = sqlx::AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
            sqlx::raw_sql(create).execute(&mut **transaction).await?;
        }
        execute(transaction, KEEP_COUNT).await?;
        current_version(transaction).await
    }

    /// A new inbox, with nothing in it.
    async fn prepare_inbox(&self, transaction: &mut Transaction) -> sqlx::Result<()> {
        let days = i32::try_from(self.config().window_days).unwrap_or(i32::MAX);
        sqlx::query(include_str!("queries/first_window.sql"))
            .bind(days)
            .persistent(false)
            .execute(&mut **transaction)
            .await?;
        create_missing(transaction, &[]).await?;
        Ok(())
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

/// Only where the table is.
pub(crate) async fn current_version(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM oneffect_migration")
        .persistent(false)
        .fetch_one(connection)
        .await
}

async fn execute(transaction: &mut Transaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut **transaction).await?;
    Ok(())
}

fn failed(error: sqlx::Error) -> StoreError {
    if is_outage(&error) {
        return StoreError::rolled_back(error);
    }
    StoreError::Misconfigured {
        message: "the schema cannot be migrated; nothing was changed".into(),
        cause: Some(error.into()),
    }
}
