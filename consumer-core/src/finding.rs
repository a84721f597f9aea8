//! What an examination finds.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and may not always; or it could not be checked.
    Warning,
    /// Events will be lost, doubled or stuck, or the consumer will not start.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at, and what it is: `synchronous_commit is on`.
    pub what: String,
    /// Why that matters; may be empty where all is well.
    pub why: String,
    /// What to do about it; empty where nothing is to be done.
    pub to_do: String,
}

impl Finding {
    /// Nothing is to be done.
    pub fn ok(what: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            what: what.into(),
            why: String::new(),
            to_do: String::new(),
        }
    }

    /// Something that is worth a look.
    pub fn warning(
        what: impl Into<String>,
        why: impl Into<String>,
        to_do: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            what: what.into(),
            why: why.into(),
            to_do: to_do.into(),
        }
    }

    /// Something that must change.
    pub fn problem(
        what: impl Into<String>,
        why: impl Into<String>,
        to_do: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            ..Self::warning(what, why, to_do)
        }
    }
}

/// `warning: synchronous_commit is local`, and on the lines below why, and what to do.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        write!(f, "{level}: {}", self.what)?;
        for more in [&self.why, &self.to_do] {
            for line in more.lines() {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}
