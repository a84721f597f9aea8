//! How long to wait after failures in a row.

use std::time::Duration;

use rand::Rng;

/// Doubles from the shortest wait to the longest, with jitter, so that the processes that failed
/// together do not come back together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The wait after so many failures in a row: from a half to the whole of the doubled wait.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let longest = self
            .shortest
            .saturating_mul(1 << doublings)
            .min(self.longest);
        longest.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        let backoff = Backoff {
            shortest: Duration::from_millis(100),
            longest: Duration::from_secs(1),
        };
        for (failures, longest) in [(1, 100), (2, 200), (4, 800), (5, 1000), (u32::MAX, 1000)] {
            let longest = Duration::from_millis(longest);

            let wait = backoff.after(failures);

            assert!(
                wait >= longest / 2 && wait <= longest,
                "{failures}: {wait:?}"
            );
        }
    }
}
