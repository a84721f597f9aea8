//! The ways a duplicate can take.

use std::fmt;
use std::time::Duration;

use crate::span::Span;

/// A way that a duplicate can take, and how long after an event was first delivered it may still
/// come by it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reach {
    /// Its name, which a [`ReplayHorizon`] may take up: `topic transfers`.
    pub path: String,
    /// How long it can take.
    pub longest: Longest,
    /// How that was found out, or why it was not: `retention.ms of the topic`.
    pub found: String,
}

/// How long a way can take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Longest {
    /// So long.
    For(Duration),
    /// There is no end: what is kept for ever may be delivered again at any time.
    Unlimited,
    /// Nobody could say.
    Unknown,
}

impl Reach {
    /// A way that takes so long at most.
    pub fn lasting(path: impl Into<String>, longest: Duration, found: impl Into<String>) -> Self {
        Self::new(path, Longest::For(longest), found)
    }

    /// A way without an end.
    pub fn unlimited(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(path, Longest::Unlimited, why)
    }

    /// A way of which nobody could say how long it takes.
    pub fn unknown(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(path, Longest::Unknown, why)
    }

    fn new(path: impl Into<String>, longest: Longest, found: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            longest,
            found: found.into(),
        }
    }
}

impl fmt::Display for Longest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(length) => Span(*length).fmt(f),
            Self::Unlimited => f.pad("unlimited"),
            Self::Unknown => f.pad("unknown"),
        }
    }
}

/// How far back somebody outside of the broker may publish an event again: a webhook sender with
/// retries, an outbox with a backlog, an operator with an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayHorizon {
    /// Who. The name of one of the source's own ways speaks for that way instead.
    pub name: String,
    /// How long after its first publication.
    pub after: Duration,
}

impl ReplayHorizon {
    /// By whom, and how long after the first publication.
    pub fn new(name: impl Into<String>, after: Duration) -> Self {
        Self {
            name: name.into(),
            after,
        }
    }
}
