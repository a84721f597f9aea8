//! Whether what is late is one straggler, or all there is.
//!
//! A late event is set aside, and that is right for a repeat that comes after its time. Where the
//! consumer lags behind its stream by more than the inbox remembers, every event is late, none of
//! them was ever handled, and setting them aside one by one would be the wrong answer ten thousand
//! times. The two differ in their company: around a straggler, what was sent at the same time as the
//! rest of the stream is young.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::day::Day;
use crate::delivery::AssignmentId;

/// So many deliveries in a row that are all old are a backlog, and no stragglers.
const COMPANY: usize = 16;

/// How long a late event without enough company waits for it. A source that has more hands it out
/// within that time; where there is no more, it is no backlog.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was received last, by assignment: each has a lag of its own.
#[derive(Debug, Default)]
pub(super) struct LagGuard {
    received: Mutex<BTreeMap<AssignmentId, VecDeque<Day>>>,
}

/// What a late event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Others of its assignment are young, or there are no others.
    Straggler,
    /// All the others are as old, but they are few yet: look again.
    Unsure,
    /// All of the last deliveries are as old.
    Backlog {
        /// The day on which the youngest of them was sent.
        youngest: Day,
    },
}

impl LagGuard {
    /// Takes note of when deliveries were sent, as far as that is known: by the broker's timestamp,
    /// which is what lag is measured by, else by the event's own day.
    pub(super) fn received(&self, sent: impl IntoIterator<Item = (AssignmentId, Option<Day>)>) {
        let mut received = self.lock();
        for (assignment, day) in sent {
            let Some(day) = day else { continue };
            let last = received.entry(assignment).or_default();
            if last.len() == COMPANY {
                last.pop_front();
            }
            last.push_back(day);
        }
    }

    /// Forgets an assignment that has ended.
    pub(super) fn ended(&self, assignment: AssignmentId) {
        self.lock().remove(&assignment);
    }

    /// What to make of a late event that has been here for so long. `floor` is the first day that
    /// will still be remembered when an event that is received now comes again.
    pub(super) fn judge(&self, assignment: AssignmentId, floor: Day, here: Duration) -> Finding {
        let received = self.lock();
        let last = received.get(&assignment);
        let Some(youngest) = last.and_then(|last| last.iter().max()) else {
            // Nothing is known of when anything was sent.
            return Finding::Straggler;
        };
        let enough = last.is_some_and(|last| last.len() == COMPANY);
        if *youngest >= floor || (!enough && here >= PATIENCE) {
            Finding::Straggler
        } else if enough {
            let youngest = *youngest;
            Finding::Backlog { youngest }
        } else {
            Finding::Unsure
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AssignmentId, VecDeque<Day>>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lag that is longer than the inbox remembers, with the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    /// A delivery of the backlog.
    pub(super) position: String,
    /// When the youngest of the last deliveries was sent.
    pub(super) youngest: Day,
    /// By the database's clock.
    pub(super) today: Day,
    /// The first day that is remembered.
    pub(super) floor: Day,
    /// For how long an event may be repeated by our own retries.
    pub(super) horizon: Duration,
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            youngest,
            today,
            floor,
            horizon,
        } = self;
        let days = |from: &Day, to: &Day| to.number() - from.number();
        let minutes = horizon.as_secs().div_ceil(60);
        write!(
            f,
            "today is {today}, by the database's clock; the inbox remembers {} days, from {floor} \
             on; a failed event may run again for {minutes} minutes; the last {COMPANY} deliveries \
             up to {position} were sent on {youngest} or before, a lag of {} days at least",
            days(floor, today),
            days(youngest, today),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AssignmentId = AssignmentId(1);
    const B: AssignmentId = AssignmentId(2);
    const FLOOR: Day = Day::from_number(100);

    fn received(guard: &LagGuard, assignment: AssignmentId, days: impl IntoIterator<Item = i32>) {
        let days = days.into_iter();
        guard.received(days.map(|day| (assignment, Some(Day::from_number(day)))));
    }

    fn judged(guard: &LagGuard, assignment: AssignmentId) -> Finding {
        guard.judge(assignment, FLOOR, Duration::ZERO)
    }

    #[test]
    fn a_late_event_among_young_ones_is_a_straggler() {
        let guard = LagGuard::default();
        received(&guard, A, [90; 15]);
        assert_eq!(judged(&guard, A), Finding::Unsure);
        received(&guard, A, [101]);
        assert_eq!(judged(&guard, A), Finding::Straggler);
        received(&guard, A, [90; 15]);
        assert_eq!(judged(&guard, A), Finding::Straggler);
    }

    #[test]
    fn old_deliveries_in_a_row_are_a_backlog() {
        let guard = LagGuard::default();
        received(&guard, A, [101]);
        received(&guard, A, (80..100).chain([70]));
        let youngest = Day::from_number(99);
        assert_eq!(judged(&guard, A), Finding::Backlog { youngest });
    }

    #[test]
    fn each_assignment_has_its_own_lag() {
        let guard = LagGuard::default();
        received(&guard, A, [90; 16]);
        received(&guard, B, [101; 16]);
        assert_eq!(judged(&guard, B), Finding::Straggler);
        assert!(matches!(judged(&guard, A), Finding::Backlog { .. }));
        guard.ended(A);
        assert_eq!(judged(&guard, A), Finding::Straggler);
    }

    #[test]
    fn a_few_late_events_and_nothing_else_are_waited_with_and_then_set_aside() {
        let guard = LagGuard::default();
        received(&guard, A, [90; 15]);
        assert_eq!(judged(&guard, A), Finding::Unsure);
        assert_eq!(guard.judge(A, FLOOR, PATIENCE), Finding::Straggler);
        received(&guard, A, [90]);
        assert!(matches!(
            guard.judge(A, FLOOR, PATIENCE),
            Finding::Backlog { .. }
        ));
    }

    #[test]
    fn the_arithmetic_is_told() {
        let lag = Lag {
            position: "t/0@7".into(),
            youngest: Day::from_number(20_768),
            today: Day::from_number(20_788),
            floor: Day::from_number(20_780),
            horizon: Duration::from_secs(61),
        };
        assert_eq!(
            lag.to_string(),
            "today is 2026-12-01, by the database's clock; the inbox remembers 8 days, from \
             2026-11-23 on; a failed event may run again for 2 minutes; the last 16 deliveries up \
             to t/0@7 were sent on 2026-11-11 or before, a lag of 20 days at least"
        );
    }
}
