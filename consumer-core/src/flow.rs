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

/// Accounts for what each assignment has in flight.
///
/// Each assignment may hold an equal share of the limit; at its share it is paused, at half of it
/// resumed. So one lane that waits for a retry fills its own share and stalls nobody else's.
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

    /// What has to change since the last call.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let live = self
            .assignments
            .values()
            .filter(|load| !load.ended)
            .count()
            .max(1);
        let share = Limit {
            messages: (self.limit.messages / live).max(1),
            bytes: (self.limit.bytes / live).max(1),
        };
        let mut changes = Vec::new();
        for (&id, load) in self.assignments.iter_mut().filter(|(_, load)| !load.ended) {
            let full = load.messages >= share.messages || load.bytes >= share.bytes;
            let roomy = load.messages <= share.messages / 2 && load.bytes <= share.bytes / 2;
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

#[cfg(test)]
mod tests {
    use super::*;

    const A: AssignmentId = AssignmentId(1);
    const B: AssignmentId = AssignmentId(2);

    fn flow() -> Flow {
        let mut flow = Flow::new(Limit {
            messages: 8,
            bytes: 8000,
        });
        flow.assigned(A);
        flow.assigned(B);
        flow
    }

    #[test]
    fn an_assignment_is_paused_at_its_share_and_resumed_at_half_of_it() {
        let mut flow = flow();
        for _ in 0..4 {
            assert_eq!(flow.changes(), []);
            flow.add(A, 1);
        }
        assert_eq!(flow.changes(), [Change::Pause(A)]);
        flow.remove(A, 1);
        assert_eq!(flow.changes(), []);
        flow.remove(A, 1);
        assert_eq!(flow.changes(), [Change::Resume(A)]);
    }

    #[test]
    fn bytes_count_as_well() {
        let mut flow = flow();
        flow.add(B, 4000);
        assert_eq!(flow.changes(), [Change::Pause(B)]);
        flow.remove(B, 4000);
        assert_eq!(flow.changes(), [Change::Resume(B)]);
    }

    #[test]
    fn when_a_neighbour_goes_its_share_goes_to_the_others() {
        let mut flow = flow();
        for _ in 0..4 {
            flow.add(A, 1);
        }
        assert_eq!(flow.changes(), [Change::Pause(A)]);
        flow.ended(B);
        assert_eq!(flow.changes(), [Change::Resume(A)]);
        assert_eq!(flow.total(), (4, 4));
    }

    #[test]
    fn an_ended_assignment_is_told_nothing_more() {
        let mut flow = flow();
        for _ in 0..9 {
            flow.add(A, 1);
        }
        flow.ended(A);
        assert_eq!(flow.changes(), []);
        for _ in 0..9 {
            flow.remove(A, 1);
        }
        assert_eq!(flow.total(), (0, 0));
    }
}
