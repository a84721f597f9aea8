//! What a consumer has done so far, in numbers that add up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A snapshot. At every moment
/// `deliveries = applied + duplicates + rejected + dead_lettered + released + dropped + in_flight`;
/// everything below `in_flight` stands outside of that sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Deliveries taken over from the source.
    pub deliveries: u64,
    /// Events whose effect this consumer committed.
    pub applied: u64,
    /// Deliveries of events that were settled before, or with another delivery.
    pub duplicates: u64,
    /// Events that the handler refused for good.
    pub rejected: u64,
    /// Events set aside.
    pub dead_lettered: u64,
    /// Deliveries given back to the broker, to come again.
    pub released: u64,
    /// Deliveries let go of because their assignment ended; the next owner gets them.
    pub dropped: u64,
    /// Deliveries waiting or running.
    pub in_flight: u64,
    /// Of the dead-lettered, those whose event key was settled before, by an event of other content:
    /// see [`Fingerprint`](crate::Fingerprint).
    pub mismatches: u64,
    /// Of the dead-lettered, those whose day is forgotten: see [`LatePolicy`](crate::LatePolicy).
    pub too_late: u64,
    /// Of the dead-lettered, those whose day lies too far ahead to be true.
    pub future: u64,
    /// Event keys that maintenance found settled under two days, whose effect may have happened
    /// twice. Anything but 0 is an incident: see
    /// [`Consumer::producer_repeats_time`](crate::Consumer::producer_repeats_time).
    pub doubled: u64,
    /// How old the oldest duplicate was, from the first recording of its event on.
    pub oldest_duplicate: Duration,
    /// Attempts charged to events.
    pub attempts_charged: u64,
    /// Units of work that were run.
    pub units: u64,
    /// Units that had to run again, with savepoints.
    pub second_runs: u64,
    /// Batches that came back for reasons that are nobody's fault: outage, contention, a busy key.
    pub put_back: u64,
    /// Times that nothing succeeded any more and the consumer backed off as a whole: see
    /// [`ConsumerConfig::outage_patience`](crate::ConsumerConfig::outage_patience).
    pub circuit_opened: u64,
    /// Units that ended after their assignment had: what they committed stands, and is settled by
    /// the next owner as a duplicate.
    pub late: u64,
    /// Times that an assignment was paused because its share of the limit was in flight.
    pub pauses: u64,
    /// The most bytes that were in flight.
    pub peak_bytes: u64,
    /// Dead letters that were redriven, and are gone.
    pub redriven: u64,
    /// Redrives that failed.
    pub redrives_failed: u64,
    /// Whether the source takes part in its group.
    pub connected: bool,
}

impl Stats {
    /// Whether the numbers add up.
    pub fn balanced(&self) -> bool {
        self.deliveries
            == self.applied
                + self.duplicates
                + self.rejected
                + self.dead_lettered
                + self.released
                + self.dropped
                + self.in_flight
    }

    /// Deliveries that are settled for good.
    pub fn settled(&self) -> u64 {
        self.applied + self.duplicates + self.rejected + self.dead_lettered
    }
}

/// Looks at a running consumer's numbers; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StatsHandle(Arc<Mutex<Stats>>);

impl StatsHandle {
    /// The numbers of this moment.
    pub fn snapshot(&self) -> Stats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change of several numbers, seen whole or not at all.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut stats);
        debug_assert!(stats.balanced(), "the numbers do not add up: {stats:?}");
    }
}
