//! What happens with a batch whose unit has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug_span, error, info};

use super::{Driver, later};
use crate::consumer::item::{Fate, Item};
use crate::consumer::unit::{Again, Work};
use crate::health::Cause;
use crate::lanes::{Company, LaneId, LaneKey, Taken};
use crate::retry::Pause;
use crate::source::{Settle, Settlement};
use crate::stats::Stats;
use crate::store::Store;
use crate::telemetry::{BATCH, CONSUMER, SETTLE, SYSTEM, TARGET};

/// How deliveries leave without being settled.
#[derive(Clone, Copy, Debug)]
pub(super) enum LetGo {
    /// The broker is told to hand them out again.
    Release(Duration),
    /// Their assignment is over; the broker knows.
    Drop,
}

/// How long a late event waits before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl<S: Store, W: Work<S>> Driver<S, W> {
    /// A unit has committed: settles what it settled, and sends the rest on.
    pub(super) fn settle(&mut self, taken: &Taken<Arc<Item>>, fates: &[Fate]) {
        let system = self.source.system();
        let span = debug_span!(
            target: TARGET, SETTLE,
            { SYSTEM } = system, { CONSUMER } = &*self.name, { BATCH } = taken.items.len()
        );
        let _span = span.enter();
        let mut tally = Stats::default();
        let mut acks = Vec::with_capacity(taken.items.len());
        let mut from = 0;
        for &(lane, count) in &taken.lanes {
            let (items, fates) = (&taken.items[from..from + count], &fates[from..from + count]);
            from += count;
            // Within a lane nothing is settled behind what is not.
            let settled = fates.iter().take_while(|fate| fate.is_settled()).count();
            for (item, fate) in items.iter().zip(fates).take(settled) {
                self.acknowledge(item, fate, &mut acks, &mut tally);
            }
            self.without_room.remove(&lane);
            match fates.get(settled) {
                Some(Fate::NoRoom) => {
                    // It waits in memory, however it would wait otherwise: a release burns one of
                    // the broker's own deliveries.
                    self.without_room.insert(lane);
                    let until = Instant::now() + Pause::NoRoom.wait(1, &mut self.rng);
                    self.finish(lane, settled, Company::Same, Some(until));
                }
                Some(Fate::Unsure) => {
                    // In this process, whatever the source would have: it must be counted once.
                    self.finish(lane, settled, Company::Same, Some(later(LOOK_AGAIN)));
                }
                Some(Fate::Held { wait }) => self.go_on(lane, settled, Company::Same, Some(*wait)),
                Some(Fate::Failed { wait }) => {
                    self.go_on(lane, settled, Company::Alone(0), Some(*wait));
                }
                _ => self.go_on(lane, settled, Company::Same, None),
            }
        }
        self.source.settle(&acks);
        self.stats.update(|stats| {
            stats.applied += tally.applied;
            stats.duplicates += tally.duplicates;
            stats.rejected += tally.rejected;
            stats.dead_lettered += tally.dead_lettered;
            stats.mismatches += tally.mismatches;
            stats.too_late += tally.too_late;
            stats.future += tally.future;
            stats.oldest_duplicate = stats.oldest_duplicate.max(tally.oldest_duplicate);
            stats.late += tally.late;
            stats.in_flight -= tally.settled();
        });
    }

    /// Acknowledges a delivery and those that follow it. A follower of other content than its first
    /// has its own claim decide: most likely it is a mismatch.
    fn acknowledge(
        &mut self,
        item: &Arc<Item>,
        fate: &Fate,
        acks: &mut Vec<Settlement>,
        tally: &mut Stats,
    ) {
        let (followers, heir) = match item.followed_by() {
            Some(key) => self.keys.settle(key, |other| other.shares(item, fate)),
            None => (Vec::new(), None),
        };
        if let Some(heir) = heir {
            self.run_next(heir);
        }
        self.replay(item, fate, &followers);
        let followed = followers.len() as u64;
        // What follows an event in this process was sent again before that was settled.
        let (mut duplicates, mut age) = (followed, Duration::ZERO);
        match fate {
            Fate::Applied { .. } => tally.applied += 1,
            Fate::Rejected { .. } => tally.rejected += 1,
            Fate::DeadLettered => tally.dead_lettered += 1,
            Fate::Duplicate { age: known_for, .. } => {
                duplicates += 1;
                age = *known_for;
            }
            Fate::Failed { .. }
            | Fate::NoRoom
            | Fate::Held { .. }
            | Fate::NotBegun
            | Fate::Unsure => {
                duplicates += 1;
            }
            Fate::Mismatched => tally.mismatches += 1 + followed,
            Fate::TooLate => tally.too_late += 1 + followed,
            Fate::Future => tally.future += 1 + followed,
            Fate::Untimed => {}
        }
        if fate.leaves_no_trace() {
            // What follows it is like it, and as little a repeat of what was settled.
            tally.dead_lettered += 1 + followed;
            duplicates = 0;
        }
        if duplicates > 0 {
            tally.duplicates += duplicates;
            tally.oldest_duplicate = tally.oldest_duplicate.max(age);
            self.shop.pulse.duplicates(age, duplicates);
        }
        for item in followers.iter().chain([item]) {
            self.flow.remove(item.assignment(), item.bytes);
            if self.assignments.contains_key(&item.assignment()) {
                acks.push(Settlement {
                    assignment: item.assignment(),
                    tag: item.delivery.tag,
                    settle: Settle::Ack,
                });
            } else {
                tally.late += 1;
            }
        }
    }

    /// Tells the handler of duplicates, before they are acknowledged: a crash in between tells it
    /// again, and forgets nobody.
    fn replay(&self, item: &Item, fate: &Fate, followers: &[Arc<Item>]) {
        if let Fate::Duplicate { settled, .. } = fate {
            self.shop.replay(item, settled);
        }
        if followers.is_empty() {
            return;
        }
        if let Some(settled) = fate.outcome() {
            for follower in followers {
                self.shop.replay(follower, &settled);
            }
        }
    }

    /// Says once that there is no room for another dead letter, and once that there is again.
    pub(super) fn tell_room(&mut self) {
        if !self.without_room.is_empty() {
            let lanes = &self.lanes;
            (self.without_room).retain(|lane| lanes.key(*lane).is_some());
        }
        let (bound, stand) = (self.config.dead_letters.letters, self.without_room.len());
        let was = self.health.snapshot().has(Cause::DeadLettersFull);
        if stand > 0 && !was {
            error!(target: TARGET, consumer = %self.name, bound, "there is no room for another dead letter: lanes stand still until letters are redriven or discarded (`oneffect dead-letters`), or the bound is raised; nothing is dropped");
            let detail = format!("{bound} letters are set aside: redrive or discard some");
            self.health.raise(Cause::DeadLettersFull, detail);
        } else if stand == 0 && was {
            info!(target: TARGET, consumer = %self.name, "there is room for dead letters again");
            self.health.clear(Cause::DeadLettersFull);
        }
    }

    /// A follower has become the first of its key.
    fn run_next(&mut self, heir: Arc<Item>) {
        if self.stop.is_some() {
            self.let_go(vec![heir], LetGo::Release(Duration::ZERO));
        } else {
            self.lanes.push(heir.lane(), Arc::clone(&heir), heir.bytes);
        }
    }

    /// The rest of a lane goes on: at once, after a wait in memory, or through the broker.
    fn go_on(&mut self, lane: LaneId, settled: usize, company: Company, wait: Option<Duration>) {
        let wait = wait.filter(|wait| !wait.is_zero());
        let ordered = self.lanes.key(lane).is_none_or(LaneKey::is_ordered);
        self.finish(lane, settled, company, wait.map(later));
        if let Some(wait) = wait.filter(|wait| *wait > self.source.longest_hold(ordered)) {
            let items = self.lanes.remove(lane);
            self.let_go(items, LetGo::Release(wait));
        }
    }

    /// A unit's part in a lane has ended, or that of a redrive. What is left of a lane that has no future, since its
    /// assignment or the consumer ends, leaves.
    pub(super) fn finish(
        &mut self,
        lane: LaneId,
        settled: usize,
        company: Company,
        until: Option<Instant>,
    ) {
        let left = self.lanes.finish(lane, settled, company, until);
        let how = if self.stop.is_some() {
            LetGo::Release(Duration::ZERO)
        } else {
            LetGo::Drop
        };
        self.let_go(left, how);
    }

    /// A whole batch comes back, for reasons that are no event's: it waits in this process, however
    /// it would wait otherwise, since a release burns one of the broker's own deliveries.
    pub(super) fn put_back(&mut self, taken: &Taken<Arc<Item>>, again: Option<Again>) {
        let half = taken.items.len() / 2;
        let (most, pause) = match again {
            // The circuit says when there is another try.
            Some(Again::Outage | Again::Elsewhere) if self.circuit.is_open() => (None, None),
            Some(Again::Outage | Again::Elsewhere) => (None, Some(Pause::Outage)),
            // `None`: the unit died. If an event did that, smaller batches find it.
            Some(Again::Contention) | None => (Some(half), Some(Pause::Contention)),
            Some(Again::Busy) if half > 0 => (Some(half), None),
            Some(Again::Busy) => (Some(1), Some(Pause::Busy)),
            Some(Again::Indeterminate) => (None, Some(Pause::Contention)),
            Some(Again::Unexplained) => (Some(half), None),
            Some(Again::Excused(_) | Again::TimedOut(_)) => (None, None),
        };
        let culprit = match again {
            Some(Again::TimedOut(at)) => Some(at),
            _ => None,
        };
        let mut from = 0;
        for &(lane, count) in &taken.lanes {
            let company = match culprit.and_then(|at| at.checked_sub(from)) {
                Some(at) if at < count => Company::Alone(at),
                _ => most.map_or(Company::Same, Company::AtMost),
            };
            from += count;
            let in_a_row = self.lanes.set_back(lane);
            let until = match again {
                Some(Again::Excused(wait)) => Some(later(wait)),
                _ => pause.map(|pause| Instant::now() + pause.wait(in_a_row, &mut self.rng)),
            };
            self.finish(lane, 0, company, until);
        }
        self.stats.update(|stats| stats.put_back += 1);
    }

    /// Deliveries leave unsettled, and with them those that follow them, unless another assignment
    /// brought them: then the oldest of those takes its place.
    pub(super) fn let_go(&mut self, items: Vec<Arc<Item>>, how: LetGo) {
        let mut leaving = Vec::new();
        for item in items {
            if let Some(key) = item.followed_by() {
                match how {
                    LetGo::Release(_) => leaving.extend(self.keys.leave(key)),
                    LetGo::Drop => {
                        if let Some(heir) = self.keys.promote(key) {
                            self.lanes.push(heir.lane(), Arc::clone(&heir), heir.bytes);
                        }
                    }
                }
            }
            leaving.push(item);
        }
        self.leave(&leaving, how);
    }

    /// Takes deliveries off the books.
    pub(super) fn leave(&mut self, items: &[Arc<Item>], how: LetGo) {
        if items.is_empty() {
            return;
        }
        for item in items {
            self.flow.remove(item.assignment(), item.bytes);
        }
        let count = items.len() as u64;
        match how {
            LetGo::Drop => self.stats.update(|stats| {
                stats.dropped += count;
                stats.in_flight -= count;
            }),
            LetGo::Release(wait) => {
                let releases: Vec<_> = (items.iter())
                    .map(|item| Settlement {
                        assignment: item.assignment(),
                        tag: item.delivery.tag,
                        settle: Settle::Release(wait),
                    })
                    .collect();
                self.source.settle(&releases);
                self.stats.update(|stats| {
                    stats.released += count;
                    stats.in_flight -= count;
                });
            }
        }
    }
}
