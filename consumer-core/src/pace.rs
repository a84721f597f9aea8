//! How long units of work take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A moving average, which tells how long it is worth to wait for a rival: its unit of work takes
/// about as long as one of ours. A claim that waits longer holds a connection for nothing, and in a
/// storm on one key all of them.
#[derive(Debug)]
pub(crate) struct Pace {
    micros: AtomicU32,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(500);

    pub(crate) fn new() -> Self {
        // So long as nothing is known, a claim waits for 100 ms.
        Self {
            micros: AtomicU32::new(25_000),
        }
    }

    /// A unit took so long.
    pub(crate) fn observe(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let before = self.micros.load(Ordering::Relaxed);
        // Of two units that end at once one may go uncounted: an average does not mind.
        self.micros
            .store(before - before / 8 + took / 8, Ordering::Relaxed);
    }

    /// How long a claim waits for a key that a rival holds.
    pub(crate) fn worth_waiting(&self) -> Duration {
        let average = Duration::from_micros(self.micros.load(Ordering::Relaxed).into());
        (average * 4).clamp(Self::SHORTEST, Self::LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_waits_about_as_long_as_units_take() {
        let pace = Pace::new();
        assert_eq!(pace.worth_waiting(), Duration::from_millis(100));
        for (took, wait) in [(1, 20), (30, 120), (60_000, 500), (0, 20)] {
            for _ in 0..200 {
                pace.observe(Duration::from_millis(took));
            }
            let waits = pace.worth_waiting().as_millis();
            assert!(
                waits.abs_diff(wait) <= 1,
                "{waits} ms for units of {took} ms"
            );
        }
    }

    #[test]
    fn the_longest_unit_does_no_harm() {
        let pace = Pace::new();
        for _ in 0..200 {
            pace.observe(Duration::MAX);
        }
        assert_eq!(pace.worth_waiting(), Duration::from_millis(500));
    }
}
