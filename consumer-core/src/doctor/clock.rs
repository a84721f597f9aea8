//! How far a database's clock is from ours.

use std::time::{Duration, Instant, SystemTime};

use crate::finding::Finding;
use crate::span::Span;

/// From here on the difference is worth a word.
const NOTABLE: Duration = Duration::from_secs(1);
/// And from here on events may be filed under a wrong day, or be taken for ones of the future.
const HARMFUL: Duration = Duration::from_mins(1);

/// Compares a database's clock with this machine's. Start it, ask the database for its time, and
/// finish it; what the question took counts as uncertainty.
#[derive(Clone, Copy, Debug)]
pub struct ClockProbe {
    started: Instant,
    at: SystemTime,
}

impl ClockProbe {
    /// Right before the database is asked.
    #[allow(
        clippy::disallowed_methods,
        reason = "it is this machine's clock that is looked at; nothing is decided by it"
    )]
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            at: SystemTime::now(),
        }
    }

    /// Right after the database has answered with its time.
    pub fn finish(self, database: SystemTime) -> Finding {
        difference(self.at, self.started.elapsed(), database)
    }
}

/// The database read its clock at some moment between question and answer.
fn difference(asked_at: SystemTime, took: Duration, database: SystemTime) -> Finding {
    let middle = asked_at + took / 2;
    let (apart, direction) = match database.duration_since(middle) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let at_least = apart.saturating_sub(took / 2);
    let what = format!(
        "the database's clock is {} {direction} this machine's (within {})",
        Span(apart),
        Span(took / 2)
    );
    let why = "the database's clock decides which days are remembered, while the times in event \
               ids are their producers': one of them is wrong";
    let to_do = "synchronise the clocks (NTP) of both machines, and look at the producers' as well";
    if at_least >= HARMFUL {
        Finding::problem(what, why, to_do)
    } else if at_least >= NOTABLE {
        Finding::warning(what, why, to_do)
    } else {
        Finding::ok(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_clock_may_differ_by_a_second_and_must_not_by_a_minute() {
        let asked = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_000);
        let quick = Duration::from_millis(2);
        for (seconds, level) in [
            (0.0, Level::Ok),
            (0.9, Level::Ok),
            (1.1, Level::Warning),
            (59.0, Level::Warning),
            (61.0, Level::Problem),
            (1e9, Level::Problem),
        ] {
            let by = Duration::from_secs_f64(seconds);
            for database in [asked + by, asked - by] {
                assert_eq!(difference(asked, quick, database).level, level, "{seconds}");
            }
        }
    }

    /// An answer that took long says little.
    #[test]
    fn what_the_question_took_is_not_the_clocks_fault() {
        let asked = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_000);
        let slow = Duration::from_secs(20);
        let database = asked + Duration::from_secs(19);
        assert_eq!(difference(asked, slow, database).level, Level::Ok);
        let database = asked + Duration::from_secs(90);
        assert_eq!(difference(asked, slow, database).level, Level::Problem);
    }
}
