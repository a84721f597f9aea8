//! Who owns which partition, and how far it is settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Message;
use crate::delivery::{AssignmentId, Delivery, Position};
use crate::source::{Assignment, Settle, Settlement};

/// One source's place in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(u64);

#[derive(Debug)]
pub(super) struct Group {
    topic: Arc<str>,
    partitions: Vec<Partition>,
    members: BTreeMap<MemberId, Member>,
    last_member: u64,
    last_assignment: u64,
    pub(super) late_settlements: usize,
    pub(super) pauses: usize,
}

#[derive(Debug)]
pub(super) struct Partition {
    records: BTreeMap<i64, Message>,
    pub(super) end: i64,
    pub(super) committed: i64,
    held: Option<(MemberId, AssignmentId)>,
    /// Its member has been asked to let go of it.
    revoking: bool,
    /// Who gets it once its member has let go of it.
    next: Option<MemberId>,
}

/// A source that has joined.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// What its source has yet to say.
    pub(super) notices: VecDeque<Notice>,
    assignments: BTreeMap<AssignmentId, Held>,
    /// Whose turn it is, so that no partition starves another.
    last_served: Option<AssignmentId>,
}

#[derive(Debug)]
pub(super) enum Notice {
    Assigned(Assignment),
    Revoked(AssignmentId, Duration),
}

#[derive(Debug)]
struct Held {
    partition: usize,
    /// Behind the last record that was handed out.
    position: i64,
    unsettled: BTreeSet<i64>,
    paused: bool,
}

impl Held {
    fn watermark(&self) -> i64 {
        self.unsettled.first().copied().unwrap_or(self.position)
    }
}

impl Partition {
    pub(super) fn push(&mut self, message: Message) -> i64 {
        let offset = self.end;
        self.records.insert(offset, message);
        self.end += 1;
        offset
    }

    pub(super) fn skip(&mut self, offsets: i64) {
        self.end += offsets;
    }

    pub(super) fn owner(&self) -> Option<MemberId> {
        self.held.map(|(member, _)| member)
    }

    /// Whose it will be when all moves are done.
    fn destination(&self) -> Option<MemberId> {
        if self.revoking {
            self.next
        } else {
            self.owner()
        }
    }
}

impl Group {
    pub(super) fn new(topic: &str, partitions: i32) -> Self {
        let partition = || Partition {
            records: BTreeMap::new(),
            end: 0,
            committed: 0,
            held: None,
            revoking: false,
            next: None,
        };
        Self {
            topic: topic.into(),
            partitions: (0..partitions).map(|_| partition()).collect(),
            members: BTreeMap::new(),
            last_member: 0,
            last_assignment: 0,
            late_settlements: 0,
            pauses: 0,
        }
    }

    pub(super) fn partition(&mut self, partition: i32) -> &mut Partition {
        &mut self.partitions[index(partition)]
    }

    pub(super) fn new_member(&mut self) -> MemberId {
        self.last_member += 1;
        MemberId(self.last_member)
    }

    pub(super) fn join(&mut self, member: MemberId) {
        self.members.entry(member).or_default();
        self.balance();
    }

    pub(super) fn leave(&mut self, member: MemberId) {
        let Some(left) = self.members.remove(&member) else {
            return;
        };
        for partition in &mut self.partitions {
            partition.next.take_if(|next| *next == member);
        }
        for held in left.assignments.values() {
            self.free(held.partition);
        }
        self.balance();
    }

    /// Gives free partitions to whom has the fewest, then evens out, moving as few as it can.
    fn balance(&mut self) {
        loop {
            let load = |member: &MemberId| {
                let theirs = self
                    .partitions
                    .iter()
                    .filter(|p| p.destination() == Some(*member));
                theirs.count()
            };
            let Some(least) = self.members.keys().copied().min_by_key(load) else {
                return;
            };
            let Some(most) = self.members.keys().copied().max_by_key(load) else {
                return;
            };
            let free = self
                .partitions
                .iter()
                .position(|p| p.destination().is_none());
            let moved = if load(&most) > load(&least) + 1 {
                self.partitions
                    .iter()
                    .rposition(|p| p.destination() == Some(most))
            } else {
                None
            };
            let Some(partition) = free.or(moved) else {
                return;
            };
            self.move_index_to(partition, least);
        }
    }

    pub(super) fn move_to(&mut self, partition: i32, member: MemberId) {
        if self.members.contains_key(&member) {
            self.move_index_to(index(partition), member);
        }
    }

    fn move_index_to(&mut self, partition: usize, member: MemberId) {
        const DEADLINE: Duration = Duration::from_secs(30);
        match self.partitions[partition].owner() {
            None => self.grant(partition, member),
            Some(holder) if holder == member && !self.partitions[partition].revoking => {}
            Some(_) => self.begin_revocation(partition, DEADLINE, Some(member)),
        }
    }

    pub(super) fn revoke(&mut self, member: MemberId, partition: i32, deadline: Duration) {
        if self.partition(partition).owner() == Some(member) {
            self.begin_revocation(index(partition), deadline, None);
        }
    }

    fn begin_revocation(&mut self, partition: usize, deadline: Duration, next: Option<MemberId>) {
        let partition = &mut self.partitions[partition];
        partition.next = next;
        let Some((holder, assignment)) = partition.held else {
            return;
        };
        if std::mem::replace(&mut partition.revoking, true) {
            return;
        }
        if let Some(member) = self.members.get_mut(&holder) {
            member
                .notices
                .push_back(Notice::Revoked(assignment, deadline));
        }
    }

    pub(super) fn lose(&mut self, member: MemberId, partition: i32) {
        let Some((holder, assignment)) = self.partition(partition).held else {
            return;
        };
        if holder == member {
            self.end_assignment(member, assignment);
            if let Some(member) = self.members.get_mut(&member) {
                member
                    .notices
                    .push_back(Notice::Revoked(assignment, Duration::ZERO));
            }
        }
    }

    /// Ends an assignment that its source has let go of: commits, and passes the partition on.
    pub(super) fn let_go(&mut self, member: MemberId, assignment: AssignmentId) {
        self.commit(member, |id| id == assignment);
        self.end_assignment(member, assignment);
    }

    fn end_assignment(&mut self, member: MemberId, assignment: AssignmentId) {
        let member = self.members.get_mut(&member);
        let held = member.and_then(|member| member.assignments.remove(&assignment));
        if let Some(held) = held {
            self.free(held.partition);
        }
    }

    fn free(&mut self, partition: usize) {
        self.partitions[partition].held = None;
        self.partitions[partition].revoking = false;
        if let Some(next) = self.partitions[partition].next.take() {
            self.grant(partition, next);
        }
    }

    fn grant(&mut self, partition: usize, to: MemberId) {
        let Some(member) = self.members.get_mut(&to) else {
            return;
        };
        self.last_assignment += 1;
        let id = AssignmentId(self.last_assignment);
        let name = format!("{}/{partition}", self.topic).into();
        let partition_state = &mut self.partitions[partition];
        partition_state.held = Some((to, id));
        let held = Held {
            partition,
            position: partition_state.committed,
            unsettled: BTreeSet::new(),
            paused: false,
        };
        member.assignments.insert(id, held);
        member
            .notices
            .push_back(Notice::Assigned(Assignment { id, name }));
    }

    pub(super) fn notices(&mut self, member: MemberId) -> Option<&mut VecDeque<Notice>> {
        Some(&mut self.members.get_mut(&member)?.notices)
    }

    pub(super) fn pause(&mut self, member: MemberId, assignment: AssignmentId, pause: bool) {
        let Some(member) = self.members.get_mut(&member) else {
            return;
        };
        let Some(held) = member.assignments.get_mut(&assignment) else {
            return;
        };
        self.pauses += usize::from(pause && !held.paused);
        held.paused = pause;
    }

    pub(super) fn settle(&mut self, member: MemberId, settlement: &Settlement) {
        let member = self.members.get_mut(&member);
        let held = member.and_then(|member| member.assignments.get_mut(&settlement.assignment));
        match (held, settlement.settle) {
            (None, _) => self.late_settlements += 1,
            (Some(held), Settle::Ack) => {
                let known =
                    i64::try_from(settlement.tag).is_ok_and(|tag| held.unsettled.remove(&tag));
                assert!(known, "{settlement:?} settles what is not in flight");
            }
            // A log cannot hand out one record again: it comes when the partition comes back.
            (Some(_), Settle::Release(_)) => {}
        }
    }

    /// Commits the watermarks of a member's assignments, all or some.
    pub(super) fn commit(&mut self, member: MemberId, which: impl Fn(AssignmentId) -> bool) {
        let Some(member) = self.members.get(&member) else {
            return;
        };
        for (_, held) in member.assignments.iter().filter(|(id, _)| which(**id)) {
            self.partitions[held.partition].committed = held.watermark();
        }
    }

    /// The next records of one partition, whose turn it is.
    pub(super) fn take(&mut self, member: MemberId, limit: usize) -> Vec<Delivery> {
        let Some(member) = self.members.get_mut(&member) else {
            return Vec::new();
        };
        let has_work = |(_, held): &(&AssignmentId, &Held)| {
            let partition = &self.partitions[held.partition];
            let has_more = partition.records.range(held.position..).next().is_some();
            has_more && !held.paused && !partition.revoking
        };
        let last = member.last_served;
        let mut ready = member
            .assignments
            .iter()
            .filter(has_work)
            .map(|(id, _)| *id);
        let mut later = ready.clone().filter(|id| Some(*id) > last);
        let Some(id) = later.next().or_else(|| ready.next()) else {
            return Vec::new();
        };
        member.last_served = Some(id);
        let Some(held) = member.assignments.get_mut(&id) else {
            return Vec::new();
        };

        let records = self.partitions[held.partition]
            .records
            .range(held.position..);
        let mut deliveries = Vec::new();
        for (&offset, message) in records.take(limit) {
            let position = Position::Log {
                topic: Arc::clone(&self.topic),
                partition: i32::try_from(held.partition).unwrap_or(i32::MAX),
                offset,
            };
            let payload = message.payload.clone();
            let mut delivery = Delivery::new(position, id, offset.unsigned_abs(), payload);
            delivery.key.clone_from(&message.key);
            delivery.headers.clone_from(&message.headers);
            delivery.published_at = message.published_at;
            held.unsettled.insert(offset);
            held.position = offset + 1;
            deliveries.push(delivery);
        }
        deliveries
    }
}

fn index(partition: i32) -> usize {
    usize::try_from(partition).unwrap_or(usize::MAX)
}
