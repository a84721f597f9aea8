//! A queue in memory, as SQS keeps one.

mod messages;
mod source;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::messages::Messages;
pub use self::source::MemoryQueueSource;
use super::message::Message;

/// A queue in memory; clones share it.
///
/// What a source has received is invisible to others while the source lives and has not settled it,
/// as if the source extended the visibility timeout in time; [`MemoryQueue::lapse`] plays one that
/// does not. A source that is dropped without being closed has crashed: what it held becomes
/// visible again after [`MemoryQueue::VISIBILITY`].
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: Arc<str>,
    fifo: bool,
    messages: Mutex<Messages>,
    changed: Notify,
}

impl MemoryQueue {
    /// How long what a crashed source held stays invisible.
    pub const VISIBILITY: std::time::Duration = std::time::Duration::from_secs(30);

    /// A standard queue: no order.
    pub fn standard(name: &str) -> Self {
        Self::new(name, false)
    }

    /// A FIFO queue: the messages of a group come in order, and none while an earlier one of its
    /// group is invisible.
    pub fn fifo(name: &str) -> Self {
        Self::new(name, true)
    }

    fn new(name: &str, fifo: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                name: name.into(),
                fifo,
                messages: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// A source that reads the queue once it is opened.
    pub fn source(&self) -> MemoryQueueSource {
        let reader = self.messages().new_reader();
        MemoryQueueSource::new(Arc::clone(&self.shared), reader)
    }

    /// Sends a message, and returns its message id.
    pub fn send(&self, message: Message) -> String {
        let id = self.messages().push(message);
        self.shared.changed.notify_waiters();
        messages::message_id(id)
    }

    /// How many messages are in the queue, visible or not.
    pub fn remaining(&self) -> usize {
        self.messages().remaining()
    }

    /// How many messages are with a source.
    pub fn in_flight(&self) -> usize {
        self.messages().in_flight()
    }

    /// Settlements that were refused: their receipt handle was no longer good.
    pub fn late_settlements(&self) -> usize {
        self.messages().late_settlements
    }

    /// How often a source was paused that was not.
    pub fn pauses(&self) -> usize {
        self.messages().pauses
    }

    /// Makes everything in flight visible at once, as when its visibility timeout passes. The
    /// receipt handles stay good until the messages are received again.
    pub fn lapse(&self) {
        self.messages().lapse();
        self.shared.changed.notify_waiters();
    }
}

impl MemoryQueue {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.shared.messages()
    }
}

impl Shared {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
