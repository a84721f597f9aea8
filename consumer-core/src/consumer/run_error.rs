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
