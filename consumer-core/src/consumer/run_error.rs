//! Why a consumer ended otherwise than asked.

use std::fmt;
use std::process::ExitCode;

use crate::handler::one_line;
use crate::source::SourceError;
use crate::store::StoreError;
use crate::window::WindowCheck;

/// Why a consumer did not start, or did not end in good order. Nothing is lost or doubled by any
/// of these.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An option that cannot work.
    #[error("the consumer's configuration cannot work: {0}")]
    Config(String),
    /// The source could not start, or cannot go on.
    #[error("the source cannot be used")]
    Source(#[source] SourceError),
    /// The store could not start, or must not go on.
    #[error("the store cannot be used")]
    Store(#[source] StoreError),
    /// The consumer lags behind its source by more than the inbox remembers. What it receives is too
    /// late to tell whether it took effect before, and setting all of it aside would be wrong: it is
    /// a backlog, most likely never handled.
    ///
    /// It ends, and does not just pause, since no waiting mends it: the lag only grows, a person has
    /// to choose, and the choice is a setting, which takes a start. A consumer that stands still and
    /// looks alive is what goes unnoticed until the next retention has passed. In a group the others
    /// follow, as the partition comes to them; they lose no event by it.
    #[error(
        "the backlog is older than the inbox remembers, and nothing of it was set aside: {0}; to \
         handle it as events that never took effect, start with \
         `late(LatePolicy::ProcessAsNewUntil(..))`; to leave it out, move the group's offsets, or \
         purge the queue; `oneffect doctor` says how long the window has to be from now on"
    )]
    Lagging(String),
    /// Duplicates may come after their events are forgotten, and take effect again.
    #[error(
        "duplicates may come after their events are forgotten, and would take effect again:\n{0}\n\
         remember events for longer, have the broker keep them for a shorter time, or say \
         `accept_short_window` and why"
    )]
    ShortWindow(Box<WindowCheck>),
    /// The stop took longer than its deadline: what still ran was aborted, and will be delivered
    /// again.
    #[error(
        "the stop took longer than its deadline: {aborted} deliveries were given up unfinished"
    )]
    DrainDeadline {
        /// Deliveries whose unit of work was aborted.
        aborted: usize,
    },
}

impl RunError {
    /// What the process should exit with: 2 when a person must change something before it can
    /// work, 3 when the drain deadline passed or the source did not close cleanly, 1 for what
    /// broke while running (start again). A consumer that was stopped in good order returns `Ok`: 0.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Lagging(_)
            | Self::ShortWindow(_)
            | Self::Source(SourceError::Misconfigured { .. })
            | Self::Store(StoreError::Misconfigured { .. } | StoreError::HandlerEndedTransaction) => {
                ExitCode::from(2)
            }
            Self::DrainDeadline { .. } | Self::Source(SourceError::Unclean { .. }) => {
                ExitCode::from(3)
            }
            Self::Source(_) | Self::Store(_) => ExitCode::FAILURE,
        }
    }
}

/// The error and its causes, as a person reads them.
impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(self))
    }
}
