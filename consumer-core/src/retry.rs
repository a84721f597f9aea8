//! When a failed event runs again, and when it has failed often enough.

use std::time::Duration;

use rand::Rng;

/// As good as for ever. Clocks overflow not far beyond the longest durations there are.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

/// Exponential backoff with jitter, and a limit.
///
/// The wait before attempt `n + 1` is drawn evenly from `d` to `2 d`, where `d` is `base` doubled
/// `n - 1` times, at most `cap`. The lower bound is what makes a promise possible: with the
/// defaults the last attempt fails no sooner than 15 minutes after the first, so that an outage of
/// something the handler needs does not turn a stream into dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySchedule {
    /// The shortest wait after the first failed attempt. Default 250 ms.
    pub base: Duration,
    /// Where doubling ends. Default 5 minutes.
    pub cap: Duration,
    /// After so many charged attempts the event is set aside. Default 14.
    pub max_attempts: u32,
}

impl Default for RetrySchedule {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(250),
            cap: Duration::from_mins(5),
            max_attempts: 14,
        }
    }
}

impl RetrySchedule {
    /// Sets [`RetrySchedule::base`].
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets [`RetrySchedule::cap`].
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets [`RetrySchedule::max_attempts`].
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// How long to wait after so many failed attempts.
    pub(crate) fn wait(&self, failed: u32, rng: &mut impl Rng) -> Duration {
        let shortest = self.shortest_wait(failed).min(LONGEST_WAIT / 2);
        shortest + shortest.mul_f64(rng.random::<f64>())
    }

    fn shortest_wait(&self, failed: u32) -> Duration {
        let doublings = failed.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// The least time from the first failed attempt to the last.
    pub fn shortest_total(&self) -> Duration {
        (1..self.max_attempts).map(|n| self.shortest_wait(n)).sum()
    }

    /// The most time that is waited between the first attempt and the last, attempts aside.
    pub fn longest_total(&self) -> Duration {
        let waits = (1..self.max_attempts).map(|n| self.shortest_wait(n));
        waits
            .fold(Duration::ZERO, Duration::saturating_add)
            .saturating_mul(2)
    }
}

/// What came back for reasons that are nobody's fault waits as well, without being charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A database is away: back off further each time, up to 5 s.
    Outage,
    /// Two transactions got in each other's way: a moment, so that they do not meet again.
    Contention,
    /// There is no room for another dead letter, until a person sees to it.
    NoRoom,
    /// Somebody else holds the key, and may hold it for as long as a handler takes.
    Busy,
}

impl Pause {
    /// How long, when it is the n-th time in a row: from half of the pause to all of it.
    pub(crate) fn wait(self, in_a_row: u32, rng: &mut impl Rng) -> Duration {
        let doubled = |base: u64, cap: u64| {
            Duration::from_millis(base.saturating_mul(1 << in_a_row.min(16)).min(cap))
        };
        let most = match self {
            Self::Outage => doubled(100, 5_000),
            Self::Contention => doubled(10, 1_000),
            Self::NoRoom => Duration::from_secs(10),
            Self::Busy => Duration::from_secs(1),
        };
        most / 2 + (most / 2).mul_f64(rng.random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    #[test]
    fn the_default_schedule_takes_at_least_a_quarter_of_an_hour() {
        assert!(RetrySchedule::default().shortest_total() >= Duration::from_mins(15));
    }

    proptest::proptest! {
        #[test]
        fn a_wait_lies_between_its_bound_and_twice_that(failed in 1u32..200, seed: u64) {
            let schedule = RetrySchedule::default();
            let wait = schedule.wait(failed, &mut StdRng::seed_from_u64(seed));
            let shortest = schedule.shortest_wait(failed);
            assert!(wait >= shortest && wait <= shortest * 2);
            assert!(wait <= schedule.cap * 2);
        }
    }
}
