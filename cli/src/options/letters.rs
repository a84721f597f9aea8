//! The command line of `oneffect dead-letters`.

use clap::{ArgAction, Args, Subcommand};
use oneffect_core::{DeadLetterKind, EventId, LetterFilter, LetterId, Tenant};
use time::format_description::well_known::Rfc3339;
use time::{Date, OffsetDateTime, PrimitiveDateTime, Time};

use super::{Agreed, help};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// What is set aside, oldest first
    #[command(after_help = help::LETTERS_LIST)]
    List {
        #[command(flatten)]
        which: Which,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Go on behind this one, the last of the page before
        #[arg(long, value_name = "ID")]
        after: Option<i64>,
    },
    /// One dead letter, whole
    #[command(after_help = help::LETTERS_SHOW)]
    Show {
        /// Its number
        #[arg(value_name = "ID")]
        id: i64,
        /// Print the payload alone, byte for byte
        #[arg(long, action = ArgAction::SetTrue, conflicts_with = "json")]
        payload: bool,
    },
    /// Have the consumers handle dead letters again
    #[command(after_help = help::LETTERS_REDRIVE)]
    Redrive(Redrive),
    /// Delete dead letters for good
    #[command(after_help = help::LETTERS_DISCARD)]
    Discard {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        agreed: Agreed,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) which: Which,
    /// As new events: also mismatches, and events whose day is forgotten
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) as_new: bool,
    /// Take it back of those that still wait for it
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = ["as_new", "wait"])]
    pub(crate) cancel: bool,
    /// Wait until the consumers have handled them, and say how it ended
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) agreed: Agreed,
}

/// Over the options that say which letters are meant.
const WHICH: &str = "Which dead letters";

/// Which letters are meant.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Those of these numbers
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    /// All there are, where nothing else says which
    #[arg(help_heading = WHICH, long, action = ArgAction::SetTrue)]
    all: bool,
    /// Those of this consumer
    #[arg(help_heading = WHICH, long, value_name = "NAME")]
    consumer: Option<String>,
    /// Those of this kind: poison, exhausted, mismatch, too_late, future,
    /// reply_too_large, rejected, crashed; may be repeated
    #[arg(help_heading = WHICH, long = "kind", value_name = "KIND", value_parser = kind, verbatim_doc_comment)]
    kinds: Vec<DeadLetterKind>,
    /// Those set aside at this time or later: 2026-12-01 or 2026-12-01T14:50:00Z
    #[arg(help_heading = WHICH, long, value_name = "TIME", value_parser = moment)]
    since: Option<OffsetDateTime>,
    /// Those set aside before this time
    #[arg(help_heading = WHICH, long, value_name = "TIME", value_parser = moment)]
    until: Option<OffsetDateTime>,
    /// Those whose error has this text in it, in upper or lower case
    #[arg(help_heading = WHICH, long, value_name = "TEXT")]
    error: Option<String>,
    /// Those of this record key
    #[arg(help_heading = WHICH, long, value_name = "KEY")]
    key: Option<String>,
    /// Those of this event id
    #[arg(help_heading = WHICH, long, value_name = "ID", value_parser = super::event_id)]
    event_id: Option<EventId>,
    /// Those of this tenant
    #[arg(help_heading = WHICH, long, value_name = "TENANT", value_parser = tenant)]
    tenant: Option<Tenant>,
    /// Those of this topic or queue
    #[arg(help_heading = WHICH, long, value_name = "NAME")]
    source: Option<String>,
}

impl Which {
    /// Whether it says which, in one way or another.
    pub(crate) fn is_said(&self) -> bool {
        self.all || self.filter() != LetterFilter::default()
    }

    /// Whether it names each letter that is meant.
    pub(crate) fn names_each(&self) -> bool {
        !self.ids.is_empty()
    }

    pub(crate) fn filter(&self) -> LetterFilter {
        let mut filter = LetterFilter::default();
        filter.consumer = self.consumer.as_deref().map(Into::into);
        filter.ids = self.ids.iter().copied().map(LetterId).collect();
        filter.kinds.clone_from(&self.kinds);
        filter.since = self.since.map(Into::into);
        filter.until = self.until.map(Into::into);
        filter.error = self.error.as_deref().map(Into::into);
        filter.key = self.key.clone().map(Into::into);
        filter.event_id.clone_from(&self.event_id);
        filter.tenant.clone_from(&self.tenant);
        filter.source = self.source.as_deref().map(Into::into);
        filter
    }
}

fn kind(text: &str) -> Result<DeadLetterKind, String> {
    let kinds = DeadLetterKind::ALL.map(DeadLetterKind::as_str).join(", ");
    DeadLetterKind::parse(text).ok_or_else(|| format!("one of {kinds}"))
}

fn tenant(text: &str) -> Result<Tenant, String> {
    Tenant::new(text).map_err(|error| error.to_string())
}

/// A day in UTC, or a moment with its offset.
fn moment(text: &str) -> Result<OffsetDateTime, String> {
    let day = time::macros::format_description!("[year]-[month]-[day]");
    if let Ok(date) = Date::parse(text, &day) {
        return Ok(PrimitiveDateTime::new(date, Time::MIDNIGHT).assume_utc());
    }
    OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|_| "write 2026-12-01 (in UTC) or 2026-12-01T14:50:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_day_in_utc_or_a_moment() {
        let day = moment("2026-12-01").unwrap();
        assert_eq!(day, moment("2026-12-01T00:00:00Z").unwrap());
        assert_eq!(day, moment("2026-12-01T01:00:00+01:00").unwrap());
        assert!(moment("yesterday").is_err());
    }
}
