//! What a person should know about the server, the schema and the role.

use std::time::{Duration, SystemTime};

use oneffect_core::doctor::{self, ClockProbe};
use oneffect_core::{ConsumerId, Finding, Store, StoreError, Window, error_chain};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::migrate::{SCHEMA_VERSION, current_version};
use crate::store::Postgres;
use crate::transaction::heard;

/// Our tables, and what a consumer does with them.
const TABLES: &[(&str, &str)] = &[
    ("oneffect_migration", "SELECT"),
    ("consumer", "SELECT INSERT"),
    ("inbox", "SELECT INSERT UPDATE DELETE"),
    ("inbox_open", "SELECT INSERT UPDATE DELETE"),
    ("inbox_floor", "SELECT UPDATE"),
    ("inbox_period", "SELECT INSERT DELETE"),
    ("retry", "SELECT INSERT UPDATE DELETE"),
    ("dead_letter", "SELECT INSERT UPDATE"),
    ("duplicate_age", "SELECT INSERT UPDATE"),
];

impl Postgres {
    pub(crate) async fn examine_all(&self) -> Vec<Finding> {
        let mut findings = vec![self.examine_pooler().await];
        let is_migrated = match self.examine_server(&mut findings).await {
            Ok(is_migrated) => is_migrated,
            Err(error) => {
                findings.push(Finding::problem(
                    format!("the database cannot be asked: {}", error_chain(&error)),
                    "no consumer can start",
                    "check URL, credentials and network",
                ));
                return findings;
            }
        };
        findings.push(self.examine_pooling().await);
        findings.push(self.examine_clock().await);
        if !is_migrated {
            return findings;
        }
        for part in [self.examine_rights().await, self.examine_consumers().await] {
            findings.extend(part.unwrap_or_else(|error| {
                let what = format!("the schema cannot be read: {}", error_chain(&error));
                let why = "the role's rights and the consumers were not checked";
                vec![Finding::problem(
                    what,
                    why,
                    "check the role's rights and its search_path",
                )]
            }));
        }
        findings
    }

    /// Whether a pooler stands before the server, and whether the store works right behind it.
    async fn examine_pooler(&self) -> Finding {
        match self.pooler().await {
            Ok(report) if report.is_right() => Finding::ok(report.to_string()),
            Ok(report) => {
                Finding::problem(report.to_string(), "no consumer starts", report.advice())
            }
            Err(error) => Finding::warning(
                format!(
                    "whether there is a pooler cannot be told: {}",
                    error_chain(&error)
                ),
                "statements of other clients might run in place of ours",
                "try again",
            ),
        }
    }

    /// Tells whether there is a schema to go on with.
    async fn examine_server(&self, findings: &mut Vec<Finding>) -> Result<bool, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let row = heard!(
            transaction,
            "an examination",
            sqlx::query(include_str!("queries/examine.sql"))
                .bind(self.schema())
                .persistent(false)
                .fetch_one(&mut *transaction)
        )
        .map_err(StoreError::rolled_back)?;
        findings.extend(server(&row).map_err(StoreError::rolled_back)?);
        let schema: Option<String> = row.try_get("schema").map_err(StoreError::rolled_back)?;
        let has_versions = row
            .try_get("is_migrated")
            .map_err(StoreError::rolled_back)?;
        let version = if has_versions {
            let version = heard!(
                transaction,
                "an examination",
                current_version(&mut transaction)
            );
            version.map_err(StoreError::rolled_back)?
        } else {
            0
        };
        transaction.rollback().await;
        findings.push(schema_version(version, schema.as_deref()));
        Ok(version == SCHEMA_VERSION)
    }

    async fn examine_pooling(&self) -> Finding {
        match self.pooler().await {
            Ok(report) if report.is_right() => Finding::ok(report.to_string()),
            Ok(report) => Finding::problem(
                "connections and statements do not fit together",
                report.to_string(),
                "as said there: consumers refuse to start",
            ),
            Err(error) => Finding::warning(
                format!("a pooler cannot be looked for: {}", error_chain(&error)),
                "one that hands out connections by transaction would go unnoticed",
                "two more connections are needed for a moment: see max_connections",
            ),
        }
    }

    async fn examine_clock(&self) -> Finding {
        let answer = async {
            let mut transaction = self.begin_plain().await?;
            // The first statement of a transaction waits for its turn; this one does not.
            let probe = ClockProbe::start();
            let seconds: f64 = heard!(
                transaction,
                "an examination",
                sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::float8")
                    .persistent(false)
                    .fetch_one(&mut *transaction)
            )
            .map_err(StoreError::rolled_back)?;
            let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let finding = probe.finish(SystemTime::UNIX_EPOCH + since);
            transaction.rollback().await;
            Ok::<_, StoreError>(finding)
        };
        answer.await.unwrap_or_else(|error| {
            Finding::warning(
                format!(
                    "the database does not tell its time: {}",
                    error_chain(&error)
                ),
                "whether its clock differs from this machine's was not checked",
                "try again",
            )
        })
    }

    async fn examine_rights(&self) -> Result<Vec<Finding>, StoreError> {
        let (names, privileges): (Vec<&str>, Vec<&str>) = TABLES.iter().copied().unzip();
        let mut transaction = self.begin_plain().await?;
        let rows = heard!(
            transaction,
            "an examination",
            sqlx::query(include_str!("queries/examine_rights.sql"))
                .bind(names)
                .bind(privileges)
                .persistent(false)
                .fetch_all(&mut *transaction)
        )
        .map_err(StoreError::rolled_back)?;
        transaction.rollback().await;
        let mut findings = Vec::new();
        for row in rows {
            findings.extend(rights(&row).map_err(StoreError::rolled_back)?);
        }
        if findings.is_empty() {
            findings.push(Finding::ok("the role may read and write all of our tables"));
        }
        Ok(findings)
    }

    async fn examine_consumers(&self) -> Result<Vec<Finding>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let consumers: Vec<(i32, String)> = heard!(
            transaction,
            "an examination",
            sqlx::query_as(include_str!("queries/consumers.sql"))
                .persistent(false)
                .fetch_all(&mut *transaction)
        )
        .map_err(StoreError::rolled_back)?;
        transaction.rollback().await;
        let window = self.window().await.unwrap_or(Window::Unlimited);
        let mut findings = Vec::new();
        for (id, name) in consumers {
            let ages = self.read_duplicate_ages(ConsumerId(id)).await?;
            findings.push(doctor::duplicate_ages(&name, &ages, window));
        }
        Ok(findings)
    }
}

/// The server's settings, as this role and session have them.
fn server(row: &PgRow) -> sqlx::Result<Vec<Finding>> {
    let text = |column| row.try_get::<String, _>(column);
    let is = |column| row.try_get::<bool, _>(column);
    let name = format!("PostgreSQL {}, as role {}", text("version")?, text("role")?);
    let mut findings = vec![if is("is_standby")? || is("is_read_only")? {
        Finding::problem(
            format!("{name}: takes no writes"),
            "it is a standby, or default_transaction_read_only is on: every unit of work fails",
            "connect to the primary",
        )
    } else {
        Finding::ok(name)
    }];
    let encoding = text("encoding")?;
    if encoding != "UTF8" {
        findings.push(Finding::problem(
            format!("the database is in {encoding}"),
            "it keeps texts of any producer, which only UTF8 can hold",
            "create the database with ENCODING 'UTF8'",
        ));
    }
    findings.push(commits(&text("synchronous_commit")?, is("has_standbys")?));
    if !is("syncs")? {
        findings.push(Finding::problem(
            "fsync is off",
            "a crash of the machine takes back commits that the broker was told of, or leaves the \
             database unreadable",
            "set fsync = on, unless this is a test",
        ));
    }
    Ok(findings)
}

fn commits(synchronous_commit: &str, has_standbys: bool) -> Finding {
    let what = format!("synchronous_commit is {synchronous_commit}");
    match (synchronous_commit, has_standbys) {
        ("off", _) => Finding::problem(
            what,
            "a crash of the server takes back commits that the broker was told of, and their \
             events are lost: consumers refuse to start",
            "set it to on for this role: ALTER ROLE .. SET synchronous_commit = on",
        ),
        ("local", true) => Finding::warning(
            what,
            "there are synchronous standbys, and commits do not wait for them: a failover takes \
             back effects and their inbox rows together, and the broker does not know",
            "set it to on, or set the group's offsets back after a failover",
        ),
        _ => Finding::ok(what),
    }
}

fn schema_version(found: i32, schema: Option<&str>) -> Finding {
    let schema = schema.unwrap_or("(none in the search_path)");
    if found == SCHEMA_VERSION {
        return Finding::ok(format!("schema {schema} is of version {found}"));
    }
    let (what, to_do) = match found {
        0 => (
            format!("there is no inbox in schema {schema}"),
            "call `Postgres::migrate` once, with a role that may create tables; or set the \
             search_path",
        ),
        found if found < SCHEMA_VERSION => (
            format!(
                "schema {schema} is of version {found}, and this program needs {SCHEMA_VERSION}"
            ),
            "call `Postgres::migrate` once, with a role that may change tables",
        ),
        found => (
            format!(
                "schema {schema} is of version {found}, and this program knows {SCHEMA_VERSION}"
            ),
            "update this program",
        ),
    };
    Finding::problem(what, "consumers refuse to start", to_do)
}

/// What the role lacks on one table.
fn rights(row: &PgRow) -> sqlx::Result<Option<Finding>> {
    let name: &str = row.try_get("name")?;
    if !row.try_get::<bool, _>("is_there")? {
        return Ok(Some(Finding::problem(
            format!("table {name} is not there"),
            "consumers fail",
            "somebody has removed it: restore it from a backup",
        )));
    }
    let lacking: Vec<String> = row.try_get("lacking")?;
    Ok((!lacking.is_empty()).then(|| {
        let lacking = lacking.join(", ");
        Finding::problem(
            format!("the role lacks {lacking} on table {name}"),
            "units of work fail",
            format!("GRANT {lacking} ON {name} TO the role"),
        )
    }))
}
