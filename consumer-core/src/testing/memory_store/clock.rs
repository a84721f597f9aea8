//! The database's clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::day::Day;

/// Follows tokio's time, from a moment that a test may set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    set_to: SystemTime,
    set_at: Instant,
}

impl Default for Clock {
    /// The time of day that it is when the database is made. From there on a paused clock decides.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the database's clock, and the ids of a user's tests are of today"
    )]
    fn default() -> Self {
        Self::at(SystemTime::now())
    }
}

impl Clock {
    pub(super) fn at(now: SystemTime) -> Self {
        Self {
            set_to: now,
            set_at: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.set_to + self.set_at.elapsed()
    }

    pub(super) fn today(&self) -> Day {
        Day::of(self.now())
    }

    /// How long ago something was; nothing, if the clock has gone back since.
    pub(super) fn since(&self, then: SystemTime) -> Duration {
        self.now().duration_since(then).unwrap_or_default()
    }
}
