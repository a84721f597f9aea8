//! Whether a unit sets savepoints from the start.

use std::sync::atomic::{AtomicU32, Ordering};

/// A unit without savepoints is the cheaper one, until a handler must be undone: then the whole
/// unit runs twice. A consumer whose units keep needing that starts with savepoints, and stops
/// once they have not been needed for a while.
#[derive(Debug, Default)]
pub(crate) struct Caution(AtomicU32);

impl Caution {
    /// What a second run adds. Two within this many units make a consumer cautious.
    const STEP: u32 = 16;

    pub(crate) fn advises_savepoints(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::STEP
    }

    /// A unit has ended; `undone` tells whether a handler's writes had to be undone in it.
    pub(crate) fn observe(&self, undone: bool) {
        // A lost update between two workers only moves the change by a unit or two.
        let now = self.0.load(Ordering::Relaxed);
        let next = if undone {
            (now + Self::STEP).min(4 * Self::STEP)
        } else {
            now.saturating_sub(1)
        };
        self.0.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_second_run_is_an_accident_and_two_are_a_habit() {
        let caution = Caution::default();
        caution.observe(true);
        assert!(!caution.advises_savepoints());
        caution.observe(true);
        assert!(caution.advises_savepoints());
    }

    #[test]
    fn a_habit_wears_off() {
        let caution = Caution::default();
        (0..10).for_each(|_| caution.observe(true));
        (0..64).for_each(|_| caution.observe(false));
        assert!(!caution.advises_savepoints());
    }

    #[test]
    fn rare_second_runs_never_make_a_habit() {
        let caution = Caution::default();
        for unit in 0..1000 {
            caution.observe(unit % 20 == 0);
            assert!(!caution.advises_savepoints());
        }
    }
}
