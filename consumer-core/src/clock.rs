//! The time of day, where it counts: by the database's clock, as far as it is known.

use std::time::SystemTime;

use tokio::time::Instant;

/// A clock that follows tokio's time from a known moment on, so that a test can pause it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    set_to: SystemTime,
    set_at: Instant,
}

/// This process's own clock, which is only asked here, and decides nothing where the database's is
/// known.
impl Default for Clock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn default() -> Self {
        Self::at(SystemTime::now())
    }
}

impl Clock {
    /// A clock that shows this time now.
    pub(crate) fn at(now: SystemTime) -> Self {
        Self {
            set_to: now,
            set_at: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.set_to + self.set_at.elapsed()
    }
}
