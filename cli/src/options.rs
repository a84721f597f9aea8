//! The command line.

#![allow(
    clippy::doc_markdown,
    reason = "these comments are what --help prints, which is no Markdown"
)]

pub(crate) mod doctor;
mod help;
pub(crate) mod letters;
pub(crate) mod window;

use clap::{ArgAction, Args, Parser, Subcommand};
use oneffect_core::EventId;

#[derive(Debug, Parser)]
#[command(name = "oneffect", version, about = help::ABOUT, long_about = help::LONG_ABOUT)]
#[command(after_help = help::CODES, after_long_help = help::EXAMPLES)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Common {
    /// postgres://USER@HOST/NAME, sqlite:FILE, or a SQLite file
    /// [env: ONEFFECT_DATABASE, then DATABASE_URL]
    #[arg(long, global = true, value_name = "URL", verbatim_doc_comment)]
    pub(crate) database: Option<String>,
    /// PostgreSQL: the schema of the inbox, where it is not the role's own
    /// [env: ONEFFECT_SCHEMA]
    #[arg(long, global = true, value_name = "NAME", verbatim_doc_comment)]
    pub(crate) schema: Option<String>,
    /// Print JSON, an object a line; the README lists its fields
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the inbox's tables, change them, or see where they stand
    #[command(subcommand, after_help = help::MIGRATE)]
    Migrate(Migrate),
    /// Check the database, the brokers, and that events are remembered for long enough
    #[command(after_help = help::DOCTOR)]
    Doctor(doctor::Doctor),
    /// How large an inbox becomes, before anyone chooses for how long it remembers
    #[command(after_help = help::WINDOW)]
    Window(window::Window),
    /// Everything that the database knows of an event
    #[command(after_help = help::INSPECT)]
    Inspect(Inspect),
    /// What the inbox holds, by days, and what it takes on the disk
    #[command(after_help = help::INBOX)]
    Inbox(Inbox),
    /// Look at the events that were set aside, have them handled again, or delete them
    #[command(subcommand, after_help = help::LETTERS)]
    DeadLetters(letters::DeadLetters),
    /// Forget what is old enough and make room for what comes, as every consumer does
    #[command(after_help = help::MAINTAIN)]
    Maintain,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Bring the schema to the version that this program works with
    #[command(after_help = help::MIGRATE_UP)]
    Up {
        /// Stop at this version
        #[arg(long, value_name = "VERSION")]
        to: Option<i32>,
    },
    /// Take the schema back to an older version; what the newer ones hold is deleted
    #[command(after_help = help::MIGRATE_DOWN)]
    Down {
        /// The version to end with; 0 removes everything
        #[arg(long, value_name = "VERSION")]
        to: i32,
        #[command(flatten)]
        agreed: Agreed,
    },
    /// Where the schema stands; exit code 3 unless it is at this program's version
    #[command(after_help = help::MIGRATE_STATUS)]
    Status,
    /// Print the SQL that `up` or `down` would run, and run nothing
    #[command(after_help = help::MIGRATE_SQL)]
    Sql {
        /// The version to begin with [default: the database's, which is looked up]
        #[arg(long, value_name = "VERSION")]
        from: Option<i32>,
        /// The version to end with [default: the one that this program works with]
        #[arg(long, value_name = "VERSION")]
        to: Option<i32>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Agreed {
    /// Do not ask
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Inbox {
    /// Have it remember so many days before today, 1 to 3650
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) set_window: Option<u32>,
    #[command(flatten)]
    pub(crate) agreed: Agreed,
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The event id, as the producer writes it: ids are compared byte by byte
    #[arg(value_name = "EVENT_ID")]
    pub(crate) id: String,
    /// Only of this consumer
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Only of this tenant; an empty one is that of events without
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
}

fn event_id(text: &str) -> Result<EventId, String> {
    EventId::new(text).map_err(|error| error.to_string())
}
