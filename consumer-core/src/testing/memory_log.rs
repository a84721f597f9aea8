//! A log in memory: a topic of partitions, and the group that reads it.

mod group;
mod source;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use self::group::Group;
pub use self::group::MemberId;
pub use self::source::MemoryLogSource;
use super::message::Message;

/// A topic in memory and its one consumer group; clones share it.
///
/// Partitions move as Kafka's cooperative protocol moves them. When a source joins or leaves, the
/// group balances itself; a test can also move them by hand ([`MemoryLog::revoke`],
/// [`MemoryLog::assign`], [`MemoryLog::lose`]), and what it revokes stays with nobody until it is
/// assigned or the group changes.
///
/// A source that is dropped without being closed has crashed: what it had not committed is
/// delivered again.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commit_interval: Duration,
    group: Mutex<Group>,
    changed: Notify,
}

impl MemoryLog {
    /// A topic with partitions 0 to `partitions - 1`, whose sources commit at once.
    pub fn new(topic: &str, partitions: i32) -> Self {
        Self::with_commit_interval(topic, partitions, Duration::ZERO)
    }

    /// A topic whose sources commit only so often: one that crashes has handled events again whose
    /// settlement was not committed yet.
    pub fn with_commit_interval(topic: &str, partitions: i32, commit_interval: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                commit_interval,
                group: Mutex::new(Group::new(topic, partitions)),
                changed: Notify::new(),
            }),
        }
    }

    /// A source that joins the group when it is opened.
    pub fn source(&self) -> MemoryLogSource {
        let member = self.group().new_member();
        MemoryLogSource::new(Arc::clone(&self.shared), member)
    }

    /// Adds a record to a partition, and returns its offset.
    pub fn produce(&self, partition: i32, message: Message) -> i64 {
        let offset = self.group().partition(partition).push(message);
        self.shared.changed.notify_waiters();
        offset
    }

    /// Leaves a gap in the offsets, as transaction markers and compaction do.
    pub fn skip_offsets(&self, partition: i32, offsets: i64) {
        self.group().partition(partition).skip(offsets);
    }

    /// The committed offset of a partition: the next one that a new owner reads.
    pub fn committed(&self, partition: i32) -> i64 {
        self.group().partition(partition).committed
    }

    /// The offset behind the last record of a partition.
    pub fn end(&self, partition: i32) -> i64 {
        self.group().partition(partition).end
    }

    /// Which member owns a partition, until it has let go of it.
    pub fn owner(&self, partition: i32) -> Option<MemberId> {
        self.group().partition(partition).owner()
    }

    /// Settlements that were refused because their assignment had ended.
    pub fn late_settlements(&self) -> usize {
        self.group().late_settlements
    }

    /// How often an assignment was paused that was not.
    pub fn pauses(&self) -> usize {
        self.group().pauses
    }

    /// Takes a partition from its member, which may first finish what runs. Nothing happens when
    /// the member does not have it.
    pub fn revoke(&self, member: MemberId, partition: i32, deadline: Duration) {
        self.change(|group| group.revoke(member, partition, deadline));
    }

    /// Gives a partition to a member. Another that has it is asked to let go of it first, within
    /// 30 seconds.
    pub fn assign(&self, member: MemberId, partition: i32) {
        self.change(|group| group.move_to(partition, member));
    }

    /// Takes a partition from its member at once, as from one that was silent for too long: nothing
    /// that it settles counts any more. Nothing happens when the member does not have it.
    pub fn lose(&self, member: MemberId, partition: i32) {
        self.change(|group| group.lose(member, partition));
    }

    fn change(&self, change: impl FnOnce(&mut Group)) {
        change(&mut self.group());
        self.shared.changed.notify_waiters();
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        self.shared.group()
    }
}

impl Shared {
    fn group(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
