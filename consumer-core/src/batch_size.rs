//! How many events a unit of work takes.

use std::time::Duration;

/// Finds the size of a batch by itself: it doubles while units are quick, up to the limit, and
/// shrinks when handlers are slow, so that a unit takes about a second at most. A transaction that
/// stays open for long holds its keys and its rows for as long, and a stop has to wait for it.
#[derive(Debug)]
pub(crate) struct BatchSize {
    now: usize,
    limit: usize,
}

impl BatchSize {
    const UNIT: Duration = Duration::from_secs(1);

    pub(crate) fn new(limit: usize) -> Self {
        Self { now: 1, limit }
    }

    pub(crate) fn get(&self) -> usize {
        self.now
    }

    /// A unit of so many events took so long.
    pub(crate) fn observe(&mut self, events: usize, took: Duration) {
        let events = u128::try_from(events.max(1)).unwrap_or(1);
        let fits = (Self::UNIT.as_nanos() * events)
            .checked_div(took.as_nanos())
            .and_then(|fits| usize::try_from(fits).ok())
            .unwrap_or(usize::MAX);
        self.now = fits.min(self.now.saturating_mul(2)).clamp(1, self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_units_are_quick_and_stops_at_the_limit() {
        let mut size = BatchSize::new(500);
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 500, 500] {
            size.observe(size.get(), Duration::from_millis(1));
            assert_eq!(size.get(), expected);
        }
    }

    #[test]
    fn a_slow_handler_runs_in_small_batches() {
        let mut size = BatchSize::new(500);
        for _ in 0..10 {
            size.observe(
                size.get(),
                Duration::from_millis(100) * u32::try_from(size.get()).unwrap(),
            );
        }
        assert_eq!(size.get(), 10);
        size.observe(10, Duration::from_mins(1));
        assert_eq!(size.get(), 1);
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let mut size = BatchSize::new(500);
        size.observe(1, Duration::ZERO);
        assert_eq!(size.get(), 2);
    }
}
