//! The database that a command works on.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use oneffect_core::{
    ConsumerConfig, DeadLetters as _, EventId, EventRecord, Finding, InboxReport, Letter,
    LetterFilter, LetterId, LetterSummary, Maintained, Migrations, RedriveAs, Requested, Source,
    Store as _, StoreError, doctor,
};
use oneffect_postgres::{Postgres, PostgresConfig, Statements};
use oneffect_sqlite::{Sqlite, SqliteConfig};

use crate::code::Unusable;
use crate::console::Console;
use crate::options::Common;

/// How long a database may be away before that is an error.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The same file, made where it is missing: of a URL, SQLite wants to be told.
fn creating(path: &str) -> String {
    if !path.starts_with("sqlite:") || path.contains("mode=") {
        return path.to_owned();
    }
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}mode=rwc")
}

/// Where a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Postgres { url: String, schema: Option<String> },
    Sqlite(String),
}

/// Without user and password, which are nobody's business on a screen.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres { url, schema } => {
                let rest = url.split_once("://").map_or(&**url, |(_, rest)| rest);
                let rest = rest.split(['?', '#']).next().unwrap_or_default();
                let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
                write!(f, "postgres://{rest}")?;
                schema
                    .iter()
                    .try_for_each(|schema| write!(f, " (schema {schema})"))
            }
            Self::Sqlite(path) => f.write_str(path),
        }
    }
}

impl Address {
    /// As `--database` says, or the environment.
    pub(crate) fn of(common: &Common, console: &Console) -> Result<Self, Unusable> {
        Self::given(common, console)?.ok_or_else(|| {
            Unusable(
                "no database: give --database postgres://USER@HOST/NAME or --database FILE, or set \
                 ONEFFECT_DATABASE or DATABASE_URL"
                    .to_owned(),
            )
        })
    }

    /// The same, where there may be none.
    pub(crate) fn given(common: &Common, console: &Console) -> Result<Option<Self>, Unusable> {
        let variable = |name| console.variable(name);
        let given = (common.database.clone())
            .or_else(|| variable("ONEFFECT_DATABASE"))
            .or_else(|| variable("DATABASE_URL"));
        let schema = common
            .schema
            .clone()
            .or_else(|| variable("ONEFFECT_SCHEMA"));
        given.map(|given| Self::read(given, schema)).transpose()
    }

    fn read(given: String, schema: Option<String>) -> Result<Self, Unusable> {
        if given.starts_with("postgres://") || given.starts_with("postgresql://") {
            return Ok(Self::Postgres { url: given, schema });
        }
        if schema.is_some() {
            return Err(Unusable(
                "--schema is for PostgreSQL: a SQLite file has no schemas".to_owned(),
            ));
        }
        let is_url = given
            .split_once("://")
            .is_some_and(|(scheme, _)| scheme != "sqlite");
        if is_url {
            let kind = given.split(':').next().unwrap_or_default();
            return Err(Unusable(format!(
                "there is no store for {kind}: --database takes postgres://.., sqlite:.. or a \
                 SQLite file"
            )));
        }
        Ok(Self::Sqlite(given))
    }

    /// A SQLite file that is not there is not made by looking at it.
    fn check_is_there(&self) -> Result<(), Unusable> {
        let Self::Sqlite(given) = self else {
            return Ok(());
        };
        let path = given.strip_prefix("sqlite:").unwrap_or(given);
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.split('?').next().unwrap_or(path);
        if Path::new(path).exists() {
            return Ok(());
        }
        Err(Unusable(format!(
            "there is no file {path}: check --database, or make it with `oneffect migrate up`"
        )))
    }

    /// Opens it; `migrate up` alone makes a file.
    pub(crate) async fn connect(&self, may_create: bool) -> anyhow::Result<Database> {
        if !may_create {
            self.check_is_there()?;
        }
        let opened = match self {
            Self::Postgres { url, schema } => {
                // Right behind every pooler, and nothing here is in a hurry.
                let mut config = PostgresConfig::default().statements(Statements::Unnamed);
                config.schema.clone_from(schema);
                let config = config.max_connections(2).acquire_timeout(PATIENCE);
                Postgres::connect_with(url, config)
                    .await
                    .map(Database::Postgres)
            }
            Self::Sqlite(path) => {
                let config = SqliteConfig::default().acquire_timeout(PATIENCE);
                let path = if may_create {
                    creating(path)
                } else {
                    path.clone()
                };
                Sqlite::open_with(&path, config).await.map(Database::Sqlite)
            }
        };
        opened
            .map_err(explained)
            .with_context(|| format!("cannot use the database {self}"))
    }

    /// Opens it, and sees that its schema is this program's.
    pub(crate) async fn open(&self) -> anyhow::Result<Database> {
        let database = self.connect(false).await?;
        let found = database.migrations().await?;
        let (version, known) = (found.version(), found.known);
        if version == known {
            return Ok(database);
        }
        Err(anyhow::anyhow!(match version {
            0 => format!(
                "there is no inbox in {self}: check --database and --schema, or make one with \
                 `oneffect migrate up`"
            ),
            version if version < known => format!(
                "the inbox in {self} is of version {version}, and this program works with version \
                 {known}: run `oneffect migrate up`"
            ),
            version => format!(
                "the inbox in {self} is of version {version}, made by a newer program; this one \
                 knows version {known}: use the newer `oneffect`"
            ),
        }))
    }
}

/// An open database.
#[derive(Debug)]
pub(crate) enum Database {
    Postgres(Postgres),
    Sqlite(Sqlite),
}

/// The same for each store.
macro_rules! on {
    ($database:expr, $store:ident => $body:expr) => {
        match $database {
            Database::Postgres($store) => $body,
            Database::Sqlite($store) => $body,
        }
        .map_err(explained)
    };
}

impl Database {
    pub(crate) async fn migrations(&self) -> anyhow::Result<Migrations> {
        on!(self, store => store.migrations().await)
    }

    pub(crate) async fn migrate(&self) -> anyhow::Result<()> {
        on!(self, store => store.migrate().await)
    }

    pub(crate) async fn migrate_to(&self, version: i32) -> anyhow::Result<()> {
        on!(self, store => store.migrate_to(version).await)
    }

    /// What the store and the sources see, and whether events are remembered for long enough.
    pub(crate) async fn examine(
        &self,
        sources: &mut [Box<dyn Source>],
        config: &ConsumerConfig,
    ) -> Vec<Finding> {
        match self {
            Self::Postgres(store) => doctor::examine(store, sources, config).await,
            Self::Sqlite(store) => doctor::examine(store, sources, config).await,
        }
    }

    pub(crate) async fn window_days(&self) -> anyhow::Result<u32> {
        on!(self, store => store.window_days().await)
    }

    pub(crate) async fn set_window_days(&self, days: u32) -> anyhow::Result<()> {
        on!(self, store => store.set_window_days(days).await)
    }

    pub(crate) async fn inbox(&self) -> anyhow::Result<InboxReport> {
        on!(self, store => store.inbox().await)
    }

    pub(crate) async fn maintain(&self) -> anyhow::Result<Maintained> {
        on!(self, store => store.maintain().await)
    }

    pub(crate) async fn list_letters(
        &self,
        filter: &LetterFilter,
    ) -> anyhow::Result<Vec<LetterSummary>> {
        on!(self, store => store.list_letters(filter).await)
    }

    pub(crate) async fn show_letter(&self, id: LetterId) -> anyhow::Result<Option<Letter>> {
        on!(self, store => store.show_letter(id).await)
    }

    pub(crate) async fn discard_letters(&self, filter: &LetterFilter) -> anyhow::Result<u64> {
        on!(self, store => store.discard_letters(filter).await)
    }

    pub(crate) async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> anyhow::Result<Requested> {
        on!(self, store => store.request_redrive(filter, redrive_as).await)
    }

    pub(crate) async fn cancel_redrive(&self, filter: &LetterFilter) -> anyhow::Result<u64> {
        on!(self, store => store.cancel_redrive(filter).await)
    }

    pub(crate) async fn inspect(&self, id: &EventId) -> anyhow::Result<Vec<EventRecord>> {
        on!(self, store => store.inspect(id).await)
    }
}

/// With what to do where the message is for programs.
fn explained(error: StoreError) -> anyhow::Error {
    let advice = match error {
        StoreError::RolledBack(_) => {
            "the database cannot be used now, and nothing was changed: try again"
        }
        StoreError::Indeterminate(_) => {
            "the answer to the commit was lost, and it may have happened: look, and try again"
        }
        StoreError::Busy
        | StoreError::HandlerEndedTransaction
        | StoreError::Misconfigured { .. }
        | _ => return error.into(),
    };
    anyhow::Error::from(error).context(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (given, shown) in [
            (
                "postgres://u:se@cret@h:5432/bank?password=secret",
                "postgres://h:5432/bank",
            ),
            ("postgresql://localhost/bank", "postgres://localhost/bank"),
            ("ledger.db", "ledger.db"),
        ] {
            let address = Address::read(given.to_owned(), None).unwrap();
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_database_of_ours_is_refused() {
        let error = Address::read("mysql://h/x".to_owned(), None).unwrap_err();
        assert!(error.to_string().contains("mysql"), "{error}");
        let error = Address::read("ledger.db".to_owned(), Some("s".to_owned())).unwrap_err();
        assert!(error.to_string().contains("--schema"), "{error}");
    }
}
