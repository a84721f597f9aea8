//! `oneffect migrate`.

use oneffect_core::Migrations;
use oneffect_postgres::Postgres;
use oneffect_sqlite::Sqlite;
use serde::Serialize;

use crate::code::{Code, Unusable};
use crate::console::Console;
use crate::database::{Address, Database};
use crate::options::{Common, Migrate};
use crate::text;

pub(super) async fn run(
    migrate: &Migrate,
    common: &Common,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let address = Address::of(common, console)?;
    match migrate {
        Migrate::Up { to } => up(*to, &address, common.json, console).await,
        Migrate::Down { to, agreed } => down(*to, agreed.yes, &address, common.json, console).await,
        Migrate::Status => status(&address, common.json, console).await,
        Migrate::Sql { from, to } => sql(*from, *to, &address, common.json, console).await,
    }
}

async fn up(
    to: Option<i32>,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let database = address.connect(true).await?;
    let before = database.migrations().await?;
    let working = console.working("migrating, and waiting for whoever uses the tables");
    match to {
        None => database.migrate().await?,
        Some(to) if to < before.version() => {
            return Err(Unusable(format!(
                "the schema is of version {} already: to take it back use `oneffect migrate down`",
                before.version()
            ))
            .into());
        }
        Some(to) => database.migrate_to(to).await?,
    }
    drop(working);
    moved(&before, &database, address, json, console).await
}

async fn down(
    to: i32,
    yes: bool,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let database = address.connect(false).await?;
    let before = database.migrations().await?;
    let version = before.version();
    if to > version {
        return Err(Unusable(format!(
            "the schema is of version {version}: to bring it to {to} use `oneffect migrate up`"
        ))
        .into());
    }
    if to < version {
        let lost = match to {
            ..1 => "the whole inbox with its dead letters",
            _ => "what the newer versions hold",
        };
        console.confirm(
            yes,
            &format!(
                "This takes the schema in {address} from version {version} back to {to} and \
                 deletes {lost}; an event that is forgotten takes effect again when it is \
                 delivered again."
            ),
        )?;
    }
    let working = console.working("migrating, and waiting for whoever uses the tables");
    database.migrate_to(to).await?;
    drop(working);
    moved(&before, &database, address, json, console).await
}

#[derive(Serialize)]
struct Moved {
    from: i32,
    to: i32,
}

async fn moved(
    before: &Migrations,
    database: &Database,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let moved = Moved {
        from: before.version(),
        to: database.migrations().await?.version(),
    };
    if json {
        console.print_json(&moved)?;
    } else if moved.from == moved.to {
        console.print(format_args!("{address}: at version {} already\n", moved.to))?;
    } else {
        console.print(format_args!(
            "{address}: from version {} to {}\n",
            moved.from, moved.to
        ))?;
    }
    Ok(Code::Fine)
}

#[derive(Serialize)]
struct Status {
    /// The schema's version; 0 where there is none.
    version: i32,
    /// The version that this program works with.
    known: i32,
    /// `current`, `behind` or `ahead`.
    state: &'static str,
    applied: Vec<Applied>,
}

#[derive(Serialize)]
struct Applied {
    version: i32,
    at: String,
}

async fn status(address: &Address, json: bool, console: &mut Console) -> anyhow::Result<Code> {
    let migrations = address.connect(false).await?.migrations().await?;
    let (version, known) = (migrations.version(), migrations.known);
    let (state, code, advice) = match version.cmp(&known) {
        std::cmp::Ordering::Equal => ("current", Code::Fine, ""),
        std::cmp::Ordering::Less => ("behind", Code::Problems, ": run `oneffect migrate up`"),
        std::cmp::Ordering::Greater => (
            "ahead",
            Code::Problems,
            ": a newer program made it; use the newer `oneffect`",
        ),
    };
    let applied = migrations.applied.iter().map(|migrated| Applied {
        version: migrated.version,
        at: text::moment(migrated.at),
    });
    let status = Status {
        version,
        known,
        state,
        applied: applied.collect(),
    };
    if json {
        console.print_json(&status)?;
        return Ok(code);
    }
    let shown = if code == Code::Fine {
        console.good(state)
    } else {
        console.bad(state)
    };
    console.print(format_args!(
        "{address}: version {version} of {known}, {shown}{advice}\n"
    ))?;
    for Applied { version, at } in status.applied {
        console.print(format_args!("  version {version} since {at}\n"))?;
    }
    Ok(code)
}

#[derive(Serialize)]
struct Script {
    from: i32,
    to: i32,
    sql: String,
}

async fn sql(
    from: Option<i32>,
    to: Option<i32>,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let from = match from {
        Some(from) => from,
        None => address.connect(false).await?.migrations().await?.version(),
    };
    let (to, sql) = match address {
        Address::Postgres { schema, .. } => {
            let to = to.unwrap_or(oneffect_postgres::SCHEMA_VERSION);
            (to, Postgres::migration_script(schema.as_deref(), from, to)?)
        }
        Address::Sqlite(_) => {
            let to = to.unwrap_or(oneffect_sqlite::SCHEMA_VERSION);
            (to, Sqlite::migration_script(from, to)?)
        }
    };
    if json {
        console.print_json(&Script { from, to, sql })?;
    } else {
        console.print(sql)?;
    }
    Ok(Code::Fine)
}
