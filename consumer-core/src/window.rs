//! The window, against the longest way a duplicate can take.

mod check;
mod reach;
mod size;

use std::fmt;
use std::time::Duration;

pub use check::WindowCheck;
pub use reach::{Longest, Reach, ReplayHorizon};
pub use size::{IdShape, InboxLoad, InboxSize, RowSize};

use crate::span::Span;

/// How long a settled event key is remembered, at least. It belongs to the inbox: to the database
/// schema, not to a consumer.
///
/// Keys of events with a day of their own are remembered for so long after *that day*, however late
/// the event came; all others for so long after they were settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// So many days.
    Days(u32),
    /// For ever: the store forgets nothing.
    Unlimited,
}

impl Window {
    /// How long that is; `None` when it has no end.
    pub fn length(self) -> Option<Duration> {
        match self {
            Self::Days(days) => Some(Duration::from_hours(u64::from(days) * 24)),
            Self::Unlimited => None,
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length() {
            Some(length) => Span(length).fmt(f),
            None => f.pad("unlimited"),
        }
    }
}
