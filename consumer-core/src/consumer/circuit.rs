//! The circuit: when nothing of a consumer succeeds, it backs off as a whole.

use std::time::Duration;

use rand::Rng;
use tokio::task;
use tokio::time::Instant;

use crate::event_key::EventKey;

/// So many units have to fail in a row, at least; or as many as can run at once, if that is more.
const FAILURES: u32 = 5;

/// The longest wait before a probe is drawn from zero to this, doubled with each probe that fails.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A probe that finds a duplicate has not called the handler. So many in a row, and what follows
/// will hardly call it either.
const SILENT_PROBES: u32 = 16;

/// Plain data, driven by the runtime.
///
/// Closed, it lets all workers run. It opens when unit after unit has failed and none has succeeded
/// in between, and then lets no unit begin but a probe: one unit with one event, after a wait with
/// full jitter, so that the processes of a group do not come back on one tick. A success closes it:
/// one worker to begin with, and twice as many after each unit.
#[derive(Debug)]
pub(super) struct Circuit {
    workers: usize,
    /// For how long an outage excuses the events that it fails.
    patience: Duration,
    row: Row,
    state: State,
}

/// What has failed since something last succeeded.
#[derive(Debug, Default)]
struct Row {
    /// Units in which an event failed.
    failures: u32,
    /// Units that found something to be away.
    outages: u32,
    first: Option<EventKey>,
    /// More than one event has failed: that is hardly the events' own fault.
    several: bool,
}

#[derive(Debug)]
enum State {
    Closed {
        /// How many may run at once.
        units: usize,
        /// Where the wait goes on if it opens again before all workers run.
        level: u32,
    },
    Open(Open),
}

#[derive(Debug)]
struct Open {
    since: Instant,
    level: u32,
    probe: Probe,
    silent: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Wait(Instant),
    May,
    Runs(task::Id),
}

/// What a unit that has ended says about the rest of the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence<'e> {
    /// A handler has done its work, and the store has taken it.
    Success,
    /// The store answered, and no handler was called.
    Silence,
    /// This event failed, and nothing else of the unit succeeded.
    Failure(&'e EventKey),
    /// The store or something else that the handler needs is known to be away.
    Outage,
    /// Nothing: two units were in each other's way.
    Nothing,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened {
        failures: u32,
    },
    /// It stays open.
    StillOpen,
    Closed {
        after: Duration,
        failures: u32,
    },
}

impl Circuit {
    pub(super) fn new(workers: usize, patience: Duration) -> Self {
        Self {
            workers,
            patience,
            row: Row::default(),
            state: State::Closed {
                units: workers,
                level: 0,
            },
        }
    }

    /// Lets the next probe begin once its time has come.
    pub(super) fn tick(&mut self, now: Instant) {
        if let State::Open(open) = &mut self.state
            && let Probe::Wait(until) = open.probe
            && until <= now
        {
            open.probe = Probe::May;
        }
    }

    /// When [`Circuit::tick`] has something to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        if let State::Open(open) = &self.state
            && let Probe::Wait(until) = open.probe
        {
            return Some(until);
        }
        None
    }

    /// How many more units may begin while so many run.
    pub(super) fn room(&self, running: usize) -> usize {
        match &self.state {
            State::Closed { units, .. } => units.saturating_sub(running),
            State::Open(open) if open.probe == Probe::May => {
                self.workers.saturating_sub(running).min(1)
            }
            State::Open(_) => 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether an event that fails now is not to be blamed: others fail as it does.
    pub(super) fn excuses(&self, now: Instant) -> bool {
        match &self.state {
            State::Open(open) => self.row.several && now < open.since + self.patience,
            State::Closed { .. } => false,
        }
    }

    /// A unit begins: in an open circuit it is the probe.
    pub(super) fn begins(&mut self, unit: task::Id) {
        if let State::Open(open) = &mut self.state {
            open.probe = Probe::Runs(unit);
        }
    }

    /// Nothing is left that could fail. Answers whether it was open.
    pub(super) fn forget(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.row = Row::default();
            self.state = State::Closed { units: 1, level: 0 };
        }
        was_open
    }

    /// A unit has ended. `stuck` tells whether nothing else runs and yet events wait.
    pub(super) fn ended(
        &mut self,
        unit: task::Id,
        evidence: Evidence<'_>,
        stuck: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Change> {
        match evidence {
            Evidence::Success => self.row = Row::default(),
            // What was away is back.
            Evidence::Silence => self.row.outages = 0,
            Evidence::Failure(event) => self.row.failed(event),
            Evidence::Outage => self.row.outages = self.row.outages.saturating_add(1),
            Evidence::Nothing => {}
        }
        match &mut self.state {
            State::Closed { units, level } => {
                if matches!(evidence, Evidence::Success | Evidence::Silence) {
                    *units = (*units * 2).min(self.workers);
                }
                if *units == self.workers {
                    *level = 0;
                }
                let level = *level;
                if !(evidence.is_failure() && self.row.tells(self.workers, stuck)) {
                    return None;
                }
                let failures = self.row.total();
                self.state = State::Open(Open {
                    since: now,
                    level,
                    probe: Probe::Wait(now + wait(level, rng)),
                    silent: 0,
                    failures,
                });
                Some(Change::Opened { failures })
            }
            State::Open(open) => {
                open.ended(unit, evidence, now, rng);
                let silence = evidence == Evidence::Silence;
                let closes = evidence == Evidence::Success
                    || (silence && (self.row.failures == 0 || open.silent >= SILENT_PROBES));
                if !closes {
                    return Some(Change::StillOpen);
                }
                let change = Change::Closed {
                    after: now - open.since,
                    failures: open.failures,
                };
                self.row = Row::default();
                self.state = State::Closed {
                    units: 1,
                    level: open.level,
                };
                Some(change)
            }
        }
    }
}

impl Open {
    fn ended(&mut self, unit: task::Id, evidence: Evidence<'_>, now: Instant, rng: &mut impl Rng) {
        let failed = evidence.is_failure();
        self.failures = self.failures.saturating_add(u32::from(failed));
        if self.probe != Probe::Runs(unit) {
            return;
        }
        self.silent = if evidence == Evidence::Silence {
            self.silent + 1
        } else {
            0
        };
        self.probe = if failed {
            self.level = self.level.saturating_add(1);
            Probe::Wait(now + wait(self.level, rng))
        } else {
            // It has not told; another may.
            Probe::May
        };
    }
}

impl Evidence<'_> {
    fn is_failure(self) -> bool {
        matches!(self, Self::Failure(_) | Self::Outage)
    }
}

impl Row {
    fn failed(&mut self, event: &EventKey) {
        self.failures = self.failures.saturating_add(1);
        match &self.first {
            None => self.first = Some(event.clone()),
            Some(first) => self.several |= first != event,
        }
    }

    fn total(&self) -> u32 {
        self.failures.saturating_add(self.outages)
    }

    /// Whether the consumer as a whole is failing. One event that fails again and again says
    /// nothing about the others, unless they wait for it and nothing else runs.
    fn tells(&self, workers: usize, stuck: bool) -> bool {
        let enough = FAILURES.max(u32::try_from(workers).unwrap_or(u32::MAX));
        self.outages >= enough || (self.total() >= enough && (self.several || stuck))
    }
}

/// Full jitter: anything from nothing to the bound.
fn wait(level: u32, rng: &mut impl Rng) -> Duration {
    let bound = FIRST_WAIT
        .saturating_mul(1 << level.min(16))
        .min(LONGEST_WAIT);
    bound.mul_f64(rng.random::<f64>())
}

#[cfg(test)]
mod tests;
