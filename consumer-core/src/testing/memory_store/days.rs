//! What is remembered, and for how long.

use std::ops::Bound;

use super::database::{InboxKey, InboxRow, State};
use crate::claim::Claim;
use crate::clock::Clock;
use crate::day::Day;
use crate::event_key::EventKey;
use crate::store::{Late, Maintained, Verdict};

/// The window of PostgreSQL and SQLite.
const WINDOW_DAYS: u32 = 8;

/// How far the inbox remembers.
#[derive(Debug)]
pub(super) struct Memory {
    window_days: u32,
    /// The first day that is still remembered; only ever raised.
    floor: Day,
    /// The last day that was compared with the one before it.
    audited: Day,
}

impl Default for Memory {
    fn default() -> Self {
        let today = Day::of(Clock::default().now());
        Self {
            window_days: WINDOW_DAYS,
            floor: floor(today, WINDOW_DAYS),
            audited: today.plus(-1),
        }
    }
}

impl Memory {
    /// Takes effect with the next round of maintenance.
    pub(super) fn set_window(&mut self, days: u32) {
        self.window_days = days;
    }

    pub(super) fn window_days(&self) -> u32 {
        self.window_days
    }

    pub(super) fn floor(&self) -> Day {
        self.floor
    }

    /// Where the inbox keeps an event, or why it is not to be looked for.
    pub(super) fn place(&self, claim: &Claim, late: Late, today: Day) -> Result<Place, Verdict> {
        let day = claim.day_within(late, self.floor, today)?;
        Ok(day.map_or(Place::Open, Place::Day))
    }
}

/// Where an event's row stands, as a real inbox has two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// With the events of its own day. The same key under another day is another row.
    Day(Day),
    /// With the events that have none, or whose day is forgotten.
    Open,
}

fn floor(today: Day, window_days: u32) -> Day {
    today.plus(-i32::try_from(window_days).unwrap_or(i32::MAX))
}

impl State {
    /// Raises the floor, forgets what is below it, and looks for keys that came under two days.
    pub(super) fn maintain(&mut self) -> Maintained {
        let today = Day::of(self.clock.now());
        let floor = floor(today, self.memory.window_days).max(self.memory.floor);
        let mut maintained = Maintained {
            floor: Some(floor),
            window_days: Some(self.memory.window_days),
            now: Some(self.clock.now()),
            doubled: self.audit(today.plus(-1)),
            ..Maintained::default()
        };
        self.memory.floor = floor;
        let before = self.inbox.len();
        self.inbox.retain(|(_, _, place), row| match place {
            Place::Day(day) => *day >= floor,
            Place::Open => Day::of(row.recorded_at) >= floor,
        });
        maintained.dropped = (before - self.inbox.len()) as u64;
        maintained
    }

    /// Compares the days that have closed since the last time each with the one before it.
    fn audit(&mut self, last_closed: Day) -> u64 {
        let closed = |day| self.memory.audited < day && day <= last_closed;
        let doubled = (self.inbox.keys()).filter(|(consumer, key, place)| match place {
            Place::Day(day) if closed(*day) => {
                let before = (*consumer, key.clone(), Place::Day(day.plus(-1)));
                self.inbox.contains_key(&before)
            }
            Place::Day(_) | Place::Open => false,
        });
        let doubled = doubled.count() as u64;
        self.memory.audited = last_closed.max(self.memory.audited);
        doubled
    }

    /// The row of a key, under whatever day.
    pub(super) fn find(&self, consumer: &str, key: &EventKey) -> Option<&InboxRow> {
        let consumer = self.consumers.get(consumer)?.id;
        let (first, last) = (Place::Day(Day::from_number(i32::MIN)), Place::Open);
        let of = |place| -> InboxKey { (consumer, key.clone(), place) };
        let range = (Bound::Included(of(first)), Bound::Included(of(last)));
        Some(self.inbox.range(range).next()?.1)
    }
}
