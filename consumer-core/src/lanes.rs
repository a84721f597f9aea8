//! Which deliveries wait, in what order, and which may run now.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use crate::delivery::{AssignmentId, Order};
use crate::flow::{Amount, Limit};

/// What must be handled in order, within a partition of a log.
///
/// Whatever is chosen, an event takes effect once, and a partition's committed offset covers settled
/// events only: those that are through ahead of their turn are waited for by the offset, and are
/// duplicates should the process crash meanwhile. So while one key's event fails and waits for its
/// next attempt, the offset stands still, the lag that the broker sees grows, and the other keys
/// go on. Memory holds what is unsettled, never what has run ahead; when what waits behind the
/// failing event has filled the partition's part of [`ConsumerConfig::in_flight`], the whole
/// partition waits for it, until it is settled or, its attempts exhausted, set aside.
///
/// A queue has an order of its own, which this does not change: message groups of a FIFO queue are
/// lanes, and a standard queue has none.
///
/// [`ConsumerConfig::in_flight`]: crate::ConsumerConfig::in_flight
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lanes {
    /// All of a partition, as the broker keeps it: a failing event holds back its partition.
    #[default]
    Partition,
    /// What has the same record key: a failing event holds back its key. Records without a key are
    /// kept in their partition's order with one another, since nothing says that they may not
    /// depend on each other. An empty key is a key.
    Key,
    /// Nothing: a failing event holds back none. For events whose effects commute.
    Unordered,
}

/// What deliveries must have in common to be handled in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey {
    /// All of an assignment.
    Assignment(AssignmentId),
    /// A group within an assignment: a FIFO message group, a record key.
    Group(AssignmentId, Bytes),
    /// Nothing: a lane of its own.
    Alone(AssignmentId),
}

impl LaneKey {
    /// The lane of what has that order and that record key in an assignment.
    pub(crate) fn of(
        assignment: AssignmentId,
        order: &Order,
        key: Option<&Bytes>,
        lanes: Lanes,
    ) -> Self {
        match (order, lanes, key) {
            (Order::Group(group), _, _) => Self::Group(assignment, group.clone()),
            (Order::None, _, _) | (Order::Assignment, Lanes::Unordered, _) => {
                Self::Alone(assignment)
            }
            (Order::Assignment, Lanes::Key, Some(key)) => Self::Group(assignment, key.clone()),
            (Order::Assignment, Lanes::Key | Lanes::Partition, _) => Self::Assignment(assignment),
        }
    }

    pub(crate) fn assignment(&self) -> AssignmentId {
        match self {
            Self::Assignment(id) | Self::Group(id, _) | Self::Alone(id) => *id,
        }
    }

    /// Whether more than one delivery can be in such a lane.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self, Self::Alone(_))
    }
}

/// Names a lane for as long as it lives; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(u64);

/// All lanes: plain data, driven by the runtime.
///
/// What a unit runs stays at the front of its lane until the unit ends, so nothing can overtake it
/// and nothing is lost with a unit that dies.
#[derive(Debug)]
pub(crate) struct LaneTable<T> {
    by_id: HashMap<LaneId, Lane<T>>,
    by_key: HashMap<LaneKey, LaneId>,
    ready: VecDeque<LaneId>,
    waiting: BTreeSet<(Instant, LaneId)>,
    /// How many items wait in ready lanes.
    ready_items: usize,
    /// How many lanes of each assignment run.
    running: HashMap<AssignmentId, usize>,
    /// What each assignment has in lanes that wait.
    held: HashMap<AssignmentId, Amount>,
    next_id: u64,
}

#[derive(Debug)]
struct Lane<T> {
    key: LaneKey,
    queue: VecDeque<Queued<T>>,
    state: State,
    /// The assignment is over: what still runs ends, and nothing follows.
    ended: bool,
    /// How often in a row it came back for reasons that are nobody's fault.
    setbacks: u32,
}

impl<T> Lane<T> {
    fn bytes(&self) -> usize {
        self.queue.iter().map(|queued| queued.bytes).sum()
    }
}

#[derive(Debug)]
struct Queued<T> {
    item: T,
    bytes: usize,
    /// The largest batch this may run in: halved when a batch fails and nobody knows why, one for
    /// an event that has failed.
    company: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// So many from the front are in a unit of work.
    Running(usize),
    Waiting(Instant),
}

/// What one unit of work is given.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    /// The items, those of one lane in order and side by side.
    pub(crate) items: Vec<T>,
    /// The lanes, and how many of the items each gave.
    pub(crate) lanes: Vec<(LaneId, usize)>,
    /// The batch was made small because an earlier, larger one had failed.
    pub(crate) split: bool,
}

/// How the rest of a lane goes on after a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// As before.
    Same,
    /// The event at this place behind the settled ones runs alone.
    Alone(usize),
    /// All that ran and came back run in batches of at most so many.
    AtMost(usize),
}

impl<T: Clone> LaneTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            ready_items: 0,
            running: HashMap::new(),
            held: HashMap::new(),
            next_id: 0,
        }
    }

    /// Puts an item at the end of its lane.
    pub(crate) fn push(&mut self, key: LaneKey, item: T, bytes: usize) {
        let queued = Queued {
            item,
            bytes,
            company: usize::MAX,
        };
        let known = self.by_key.get(&key).copied();
        if let Some(lane) = known.and_then(|id| self.by_id.get_mut(&id)) {
            lane.queue.push_back(queued);
            match lane.state {
                State::Ready => self.ready_items += 1,
                State::Waiting(_) => {
                    let held = self.held.entry(lane.key.assignment()).or_default();
                    held.messages += 1;
                    held.bytes += bytes;
                }
                State::Running(_) => {}
            }
            return;
        }
        let id = self.make(key, VecDeque::from([queued]), State::Ready);
        self.ready.push_back(id);
        self.ready_items += 1;
    }

    /// How many items could run now.
    pub(crate) fn ready_items(&self) -> usize {
        self.ready_items
    }

    /// Puts a lane first whose next event has not failed yet, if there is one: while all that is
    /// tried fails, what has not been tried tells more.
    pub(crate) fn untried_first(&mut self) {
        let untried = self.ready.iter().position(|id| {
            self.by_id.get(id).is_some_and(|lane| {
                let next = lane.queue.front();
                lane.setbacks == 0 && next.is_some_and(|next| next.company == usize::MAX)
            })
        });
        if let Some(id) = untried.and_then(|at| self.ready.remove(at)) {
            self.ready.push_front(id);
        }
    }

    /// Takes what waits, up to the limit, from as many lanes as it takes, each from its front.
    pub(crate) fn take(&mut self, limit: Limit) -> Option<Taken<T>> {
        let mut taken = Taken {
            items: Vec::new(),
            lanes: Vec::new(),
            split: false,
        };
        let mut most = limit.messages.max(1);
        let mut bytes = 0;
        let mut passed_over = Vec::new();
        while taken.items.len() < most && bytes < limit.bytes {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let Some(lane) = self.by_id.get_mut(&id) else {
                continue;
            };
            let mut count = 0;
            for queued in &lane.queue {
                let most_with_it = most.min(queued.company);
                let fits = taken.items.is_empty()
                    || (taken.items.len() < most_with_it && bytes + queued.bytes <= limit.bytes);
                if !fits {
                    break;
                }
                taken.split |= queued.company != usize::MAX;
                most = most_with_it;
                bytes += queued.bytes;
                taken.items.push(queued.item.clone());
                count += 1;
            }
            if count == 0 {
                passed_over.push(id);
                // What does not fit in company waits for the next batch, and others may fit yet;
                // but no batch looks through all lanes of a large consumer.
                if passed_over.len() > 16 {
                    break;
                }
                continue;
            }
            self.ready_items -= lane.queue.len();
            lane.state = State::Running(count);
            *self.running.entry(lane.key.assignment()).or_default() += 1;
            taken.lanes.push((id, count));
        }
        for id in passed_over.into_iter().rev() {
            self.ready.push_front(id);
        }
        (!taken.items.is_empty()).then_some(taken)
    }

    /// Keeps a lane from running until [`LaneTable::finish`], for something that belongs into it and
    /// does not come from it. `None` while it runs; else also when it was to go on, if it waited.
    pub(crate) fn occupy(&mut self, key: &LaneKey) -> Option<(LaneId, Option<Instant>)> {
        let known = self.by_key.get(key).copied();
        if let Some(id) = known
            && let Some(lane) = self.by_id.get_mut(&id)
        {
            let until = match lane.state {
                State::Running(_) => return None,
                State::Ready => {
                    self.ready.retain(|ready| *ready != id);
                    self.ready_items -= lane.queue.len();
                    None
                }
                State::Waiting(until) => {
                    self.waiting.remove(&(until, id));
                    Self::no_longer_held(&mut self.held, lane);
                    Some(until)
                }
            };
            lane.state = State::Running(0);
            *self.running.entry(key.assignment()).or_default() += 1;
            return Some((id, until));
        }
        let id = self.make(key.clone(), VecDeque::new(), State::Running(0));
        *self.running.entry(key.assignment()).or_default() += 1;
        Some((id, None))
    }

    fn make(&mut self, key: LaneKey, queue: VecDeque<Queued<T>>, state: State) -> LaneId {
        let id = LaneId(self.next_id);
        self.next_id += 1;
        if key.is_ordered() {
            self.by_key.insert(key.clone(), id);
        }
        let lane = Lane {
            key,
            queue,
            state,
            ended: false,
            setbacks: 0,
        };
        self.by_id.insert(id, lane);
        id
    }

    /// A unit has ended: so many from the lane's front are settled and leave. The rest goes on, at
    /// once or at a given time. If the assignment has ended meanwhile, the rest is returned.
    pub(crate) fn finish(
        &mut self,
        id: LaneId,
        settled: usize,
        company: Company,
        until: Option<Instant>,
    ) -> Vec<T> {
        let Some(lane) = self.by_id.get_mut(&id) else {
            return Vec::new();
        };
        let State::Running(ran) = lane.state else {
            return Vec::new();
        };
        if let Entry::Occupied(mut running) = self.running.entry(lane.key.assignment()) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        lane.queue.drain(..settled);
        if settled > 0 {
            lane.setbacks = 0;
        }
        match company {
            Company::Same => {}
            Company::Alone(at) => {
                if let Some(queued) = lane.queue.get_mut(at) {
                    queued.company = 1;
                }
            }
            Company::AtMost(most) => {
                for queued in lane.queue.iter_mut().take(ran - settled) {
                    queued.company = queued.company.min(most.max(1));
                }
            }
        }
        if lane.ended || lane.queue.is_empty() {
            return self.remove(id);
        }
        match until {
            Some(until) => {
                lane.state = State::Waiting(until);
                let held = self.held.entry(lane.key.assignment()).or_default();
                held.messages += lane.queue.len();
                held.bytes += lane.bytes();
                self.waiting.insert((until, id));
            }
            None => self.make_ready(id),
        }
        Vec::new()
    }

    /// A lane comes back for reasons that are nobody's fault: how often in a row by now.
    pub(crate) fn set_back(&mut self, id: LaneId) -> u32 {
        self.by_id.get_mut(&id).map_or(1, |lane| {
            lane.setbacks += 1;
            lane.setbacks
        })
    }

    /// Takes all items out of a lane that does not run, in order.
    pub(crate) fn remove(&mut self, id: LaneId) -> Vec<T> {
        let Some(lane) = self.by_id.remove(&id) else {
            return Vec::new();
        };
        if self.by_key.get(&lane.key) == Some(&id) {
            self.by_key.remove(&lane.key);
        }
        match lane.state {
            State::Ready => self.ready_items -= lane.queue.len(),
            State::Waiting(until) => {
                self.waiting.remove(&(until, id));
                Self::no_longer_held(&mut self.held, &lane);
            }
            State::Running(_) => {}
        }
        lane.queue.into_iter().map(|queued| queued.item).collect()
    }

    fn make_ready(&mut self, id: LaneId) {
        if let Some(lane) = self.by_id.get_mut(&id) {
            lane.state = State::Ready;
            self.ready_items += lane.queue.len();
            self.ready.push_back(id);
        }
    }

    /// When the next lane that waits may go on.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.waiting.first().map(|&(until, _)| until)
    }

    /// Lets the lanes go on whose time has come.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.waiting.first() {
            if until > now {
                break;
            }
            self.waiting.pop_first();
            if let Some(lane) = self.by_id.get(&id) {
                Self::no_longer_held(&mut self.held, lane);
            }
            self.make_ready(id);
        }
    }

    /// An assignment has ended: what has not begun is returned, what runs ends by itself.
    pub(crate) fn end(&mut self, assignment: AssignmentId) -> Vec<T> {
        self.drop_unbegun(|key| key.assignment() == assignment)
    }

    /// The consumer stops: as [`LaneTable::end`], for all.
    pub(crate) fn end_all(&mut self) -> Vec<T> {
        self.drop_unbegun(|_| true)
    }

    fn drop_unbegun(&mut self, mut which: impl FnMut(&LaneKey) -> bool) -> Vec<T> {
        let mut dropped = Vec::new();
        // In the order in which the lanes came, so that a run with the same seed is the same run.
        let ids: BTreeMap<LaneId, State> = (self.by_id.iter())
            .filter(|(_, lane)| which(&lane.key))
            .map(|(&id, lane)| (id, lane.state))
            .collect();
        for (id, state) in ids {
            if let State::Running(ran) = state {
                if let Some(lane) = self.by_id.get_mut(&id) {
                    lane.ended = true;
                    dropped.extend(lane.queue.drain(ran..).map(|queued| queued.item));
                    // A later assignment of the same name is another lane.
                    self.by_key.remove(&lane.key);
                }
            } else {
                dropped.extend(self.remove(id));
            }
        }
        dropped
    }

    /// Whether a lane of the assignment is in a unit of work.
    pub(crate) fn is_running(&self, assignment: AssignmentId) -> bool {
        self.running.contains_key(&assignment)
    }

    /// What an assignment has in lanes that wait for their time, and will not go on before.
    pub(crate) fn held(&self, assignment: AssignmentId) -> Amount {
        self.held.get(&assignment).copied().unwrap_or_default()
    }

    fn no_longer_held(held: &mut HashMap<AssignmentId, Amount>, lane: &Lane<T>) {
        let Entry::Occupied(mut entry) = held.entry(lane.key.assignment()) else {
            return;
        };
        let held = entry.get_mut();
        held.messages -= lane.queue.len();
        held.bytes -= lane.bytes();
        if held.messages == 0 {
            entry.remove();
        }
    }

    /// How a lane was made.
    pub(crate) fn key(&self, id: LaneId) -> Option<&LaneKey> {
        self.by_id.get(&id).map(|lane| &lane.key)
    }
}

#[cfg(test)]
mod tests;
