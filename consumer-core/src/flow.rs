//! How much may be in flight, and who is paused when it is too much.

use std::collections::BTreeMap;

use crate::delivery::AssignmentId;

/// A limit on what is in flight, in messages and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Messages.
    pub messages: usize,
    /// Bytes: payloads, keys, headers, and 512 bytes for each message.
    pub bytes: usize,
}

/// So many messages, so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// Accounts for what each assignment has in flight.
///
/// Half of the limit is common: whoever comes first has it, since what a broker hands out comes in
/// long runs of one partition, and a run must not stop the reading of all that is behind it. The
/// other half is shared out evenly. Once the common half is used up, an assignment is paused that
/// has its share, so a lane that waits for a retry stalls nobody else's. What is paused goes on when
/// half of what it lacked is there again.
#[derive(Debug)]
pub(crate) struct Flow {
    limit: Limit,
    assignments: BTreeMap<AssignmentId, Load>,
}

#[derive(Debug, Default)]
struct Load {
    messages: usize,
    bytes: usize,
    paused: bool,
    /// It has ended; only what still runs is accounted for.
    ended: bool,
}

/// What the source is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Pause(AssignmentId),
    Resume(AssignmentId),
}

impl Flow {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            assignments: BTreeMap::new(),
        }
    }

    pub(crate) fn assigned(&mut self, id: AssignmentId) {
        self.assignments.entry(id).or_default();
    }

    /// The assignment has ended; it is forgotten once nothing of it is in flight.
    pub(crate) fn ended(&mut self, id: AssignmentId) {
        if let Some(load) = self.assignments.get_mut(&id) {
            load.ended = true;
        }
        self.forget(id);
    }

    pub(crate) fn add(&mut self, id: AssignmentId, bytes: usize) {
        let load = self.assignments.entry(id).or_default();
        load.messages += 1;
        load.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, id: AssignmentId, bytes: usize) {
        if let Some(load) = self.assignments.get_mut(&id) {
            load.messages = load.messages.saturating_sub(1);
            load.bytes = load.bytes.saturating_sub(bytes);
        }
        self.forget(id);
    }

    fn forget(&mut self, id: AssignmentId) {
        if self
            .assignments
            .get(&id)
            .is_some_and(|load| load.ended && load.messages == 0)
        {
            self.assignments.remove(&id);
        }
    }

    /// What has to change since the last call. `held` tells what of an assignment waits for a retry,
    /// and makes no room before its time, however much else is settled.
    pub(crate) fn changes(&mut self, held: impl Fn(AssignmentId) -> Amount) -> Vec<Change> {
        let live = self.assignments.values().filter(|load| !load.ended).count();
        let mut messages = Room::new(self.limit.messages, live);
        let mut bytes = Room::new(self.limit.bytes, live);
        for (&id, load) in &self.assignments {
            if load.ended {
                messages.common_used += load.messages;
                bytes.common_used += load.bytes;
            } else {
                let held = held(id);
                messages.take(load.messages, held.messages);
                bytes.take(load.bytes, held.bytes);
            }
        }
        let mut changes = Vec::new();
        for (&id, load) in self.assignments.iter_mut().filter(|(_, load)| !load.ended) {
            let full = messages.is_full(load.messages) || bytes.is_full(load.bytes);
            let roomy = messages.is_roomy(load.messages) && bytes.is_roomy(load.bytes);
            if full && !load.paused {
                load.paused = true;
                changes.push(Change::Pause(id));
            } else if roomy && load.paused {
                load.paused = false;
                changes.push(Change::Resume(id));
            }
        }
        changes
    }

    /// Messages and bytes in flight.
    pub(crate) fn total(&self) -> (usize, usize) {
        self.assignments
            .values()
            .fold((0, 0), |(messages, bytes), load| {
                (messages + load.messages, bytes + load.bytes)
            })
    }
}

/// One of the limit's two measures, divided.
#[derive(Debug)]
struct Room {
    share: usize,
    common: usize,
    common_used: usize,
    /// Of that, what waits for a retry.
    common_held: usize,
}

impl Room {
    fn new(limit: usize, assignments: usize) -> Self {
        let share = (limit / 2 / assignments.max(1)).max(1);
        Self {
            share,
            common: limit.saturating_sub(share * assignments),
            common_used: 0,
            common_held: 0,
        }
    }

    fn take(&mut self, load: usize, held: usize) {
        self.common_used += load.saturating_sub(self.share);
        self.common_held += held.min(load).saturating_sub(self.share);
    }

    fn is_full(&self, load: usize) -> bool {
        load >= self.share && self.common_used >= self.common
    }

    fn is_roomy(&self, load: usize) -> bool {
        let moves = self.common_used - self.common_held;
        // For little room nothing is resumed: reading starts with a fetch, and the next pause
        // throws away what is left of it.
        let room = self.common.saturating_sub(self.common_held);
        load <= self.share / 2 || (room > self.common / 8 && moves <= room / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AssignmentId = AssignmentId(1);
    const B: AssignmentId = AssignmentId(2);

    /// Half of it common, and a quarter for each.
    fn flow() -> Flow {
        let mut flow = Flow::new(Limit {
            messages: 16,
            bytes: 16_000,
        });
        flow.assigned(A);
        flow.assigned(B);
        flow
    }

    fn none(_: AssignmentId) -> Amount {
        Amount::default()
    }

    fn add(flow: &mut Flow, id: AssignmentId, messages: usize) {
        (0..messages).for_each(|_| flow.add(id, 1));
    }

    fn remove(flow: &mut Flow, id: AssignmentId, messages: usize) {
        (0..messages).for_each(|_| flow.remove(id, 1));
    }

    #[test]
    fn one_alone_may_have_all_of_the_common_half_and_leaves_the_other_its_share() {
        let mut flow = flow();
        add(&mut flow, A, 11);
        assert_eq!(flow.changes(none), []);
        add(&mut flow, A, 1);
        assert_eq!(flow.changes(none), [Change::Pause(A)]);
        add(&mut flow, B, 3);
        assert_eq!(flow.changes(none), []);
        add(&mut flow, B, 1);
        assert_eq!(flow.changes(none), [Change::Pause(B)]);
        assert_eq!(flow.total(), (16, 16));
    }

    #[test]
    fn what_is_paused_goes_on_when_half_of_the_common_half_is_free() {
        let mut flow = flow();
        add(&mut flow, A, 12);
        assert_eq!(flow.changes(none), [Change::Pause(A)]);
        remove(&mut flow, A, 3);
        assert_eq!(flow.changes(none), []);
        remove(&mut flow, A, 1);
        assert_eq!(flow.changes(none), [Change::Resume(A)]);
    }

    #[test]
    fn what_is_paused_goes_on_when_half_of_its_share_is_free_though_the_other_keeps_the_rest() {
        let mut flow = flow();
        add(&mut flow, A, 12);
        add(&mut flow, B, 4);
        assert_eq!(flow.changes(none), [Change::Pause(A), Change::Pause(B)]);
        remove(&mut flow, B, 1);
        assert_eq!(flow.changes(none), []);
        remove(&mut flow, B, 1);
        assert_eq!(flow.changes(none), [Change::Resume(B)]);
    }

    #[test]
    fn bytes_count_as_well() {
        let mut flow = flow();
        flow.add(B, 12_000);
        assert_eq!(flow.changes(none), [Change::Pause(B)]);
        flow.remove(B, 12_000);
        assert_eq!(flow.changes(none), [Change::Resume(B)]);
    }

    /// One key of many fails for minutes, and the others of its partition are done.
    #[test]
    fn what_waits_for_a_retry_does_not_keep_the_rest_of_its_assignment_paused() {
        let mut flow = flow();
        let ten = |id| match id {
            A => Amount {
                messages: 10,
                bytes: 10,
            },
            _ => Amount::default(),
        };
        add(&mut flow, A, 12);
        assert_eq!(flow.changes(ten), [Change::Pause(A)]);
        remove(&mut flow, A, 1);
        assert_eq!(flow.changes(ten), [Change::Resume(A)]);
    }

    #[test]
    fn what_waits_for_a_retry_and_leaves_hardly_any_room_keeps_its_assignment_paused() {
        let mut flow = flow();
        let eleven = |_| Amount {
            messages: 11,
            bytes: 11,
        };
        add(&mut flow, A, 12);
        assert_eq!(flow.changes(eleven), [Change::Pause(A)]);
        remove(&mut flow, A, 1);
        assert_eq!(flow.changes(eleven), []);
        assert_eq!(flow.changes(none), []);
    }

    #[test]
    fn when_a_neighbour_goes_its_share_goes_to_the_others() {
        let mut flow = flow();
        add(&mut flow, A, 10);
        add(&mut flow, B, 6);
        assert_eq!(flow.changes(none), [Change::Pause(A), Change::Pause(B)]);
        remove(&mut flow, B, 6);
        flow.ended(B);
        assert_eq!(flow.changes(none), [Change::Resume(A)]);
        assert_eq!(flow.total(), (10, 10));
    }

    #[test]
    fn an_ended_assignment_is_told_nothing_more() {
        let mut flow = flow();
        add(&mut flow, A, 20);
        flow.ended(A);
        assert_eq!(flow.changes(none), []);
        remove(&mut flow, A, 20);
        assert_eq!(flow.total(), (0, 0));
    }

    /// However small the limit, everybody can go on one by one.
    #[test]
    fn a_limit_of_one_lets_each_have_one() {
        let mut flow = Flow::new(Limit {
            messages: 1,
            bytes: 1,
        });
        flow.assigned(A);
        flow.assigned(B);
        flow.add(A, 100);
        assert_eq!(flow.changes(none), [Change::Pause(A)]);
        flow.add(B, 100);
        assert_eq!(flow.changes(none), [Change::Pause(B)]);
        flow.remove(A, 100);
        assert_eq!(flow.changes(none), [Change::Resume(A)]);
    }
}
