//! What the poll thread and the runtime's task share.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use oneffect_core::{
    Assignment, AssignmentId, Delivery, Position, Settle, Settlement, SourceError, SourceEvent,
    Watermark,
};
use tokio::sync::Notify;

use crate::commit::{Commits, Refused};
use crate::record::Record;

/// How much may wait for the runtime. Small: the runtime takes what there is at once, and what it
/// holds itself it counts itself.
const READY_MESSAGES: usize = 1000;
const READY_BYTES: usize = 4 << 20;

/// The poll thread writes events, the runtime's task reads them; settlements, pauses and the wish to
/// stop go the other way.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Tells the runtime's task that there is something to read.
    news: Notify,
    /// What to wake, once it runs.
    poll_thread: OnceLock<Thread>,
    /// Some assignment's pause was changed.
    pauses_changed: AtomicBool,
    closing: AtomicBool,
    /// Held while a commit is on its way, and taken before `state`, never after it.
    commits: Mutex<Refused>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold_commits(&self) -> Commits<'_> {
        Commits(self.commits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says which thread to wake: the calling one.
    pub(crate) fn this_is_the_poll_thread(&self) {
        let _ = self.poll_thread.set(std::thread::current());
    }

    pub(crate) fn wake_poll_thread(&self) {
        if let Some(thread) = self.poll_thread.get() {
            thread.unpark();
        }
    }

    /// Hands an event to the runtime, ahead of all deliveries that wait for it.
    pub(crate) fn tell(&self, event: SourceEvent) {
        self.lock().control.push_back(event);
        self.news.notify_one();
    }

    /// Tells the runtime that deliveries wait for it.
    pub(crate) fn delivered(&self) {
        self.news.notify_one();
    }

    /// Ends the source's stream. Only the first reason counts.
    pub(crate) fn fail(&self, error: SourceError) {
        let mut state = self.lock();
        if !mem::replace(&mut state.failed, true) {
            state.failure = Some(error);
        }
        drop(state);
        self.news.notify_one();
    }

    pub(crate) async fn next(&self) -> Result<SourceEvent, SourceError> {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            // A notification that comes in between is kept for this call; one that is given to a
            // call that is dropped is passed on.
            self.news.notified().await;
        }
    }

    fn take(&self) -> Option<Result<SourceEvent, SourceError>> {
        let mut state = self.lock();
        if let Some(event) = state.control.pop_front() {
            return Some(Ok(event));
        }
        if !state.ready.is_empty() {
            let was_full = state.is_full();
            state.ready_bytes = 0;
            let ready = mem::take(&mut state.ready);
            drop(state);
            if was_full {
                self.wake_poll_thread();
            }
            return Some(Ok(SourceEvent::Deliveries(ready)));
        }
        state.failure.take().map(Err)
    }

    pub(crate) fn settle(&self, settlements: &[Settlement]) -> Late {
        let mut state = self.lock();
        let before = state.late;
        for settlement in settlements {
            match (
                state.owned.get_mut(&settlement.assignment),
                settlement.settle,
            ) {
                (Some(owned), Settle::Ack) => owned.watermark.settled(settlement.tag),
                // Kafka hands it out again when the partition is next assigned: the watermark does
                // not move past it.
                (Some(_), Settle::Release(_)) => {}
                (None, _) => state.late += 1,
            }
        }
        Late {
            now: state.late - before,
            total: state.late,
        }
    }

    pub(crate) fn set_paused(&self, id: AssignmentId, paused: bool) {
        if let Some(owned) = self.lock().owned.get_mut(&id) {
            owned.pause_wanted = paused;
        }
        self.look_at_pauses();
        self.wake_poll_thread();
    }

    /// Has the poll thread compare what is paused with what should be.
    pub(crate) fn look_at_pauses(&self) {
        self.pauses_changed.store(true, Ordering::Release);
    }

    pub(crate) fn take_pauses_changed(&self) -> bool {
        self.pauses_changed.swap(false, Ordering::AcqRel)
    }

    /// From now on no deliveries are handed out.
    pub(crate) fn stop_receiving(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.ready.clear();
        state.ready_bytes = 0;
        drop(state);
        self.look_at_pauses();
        self.wake_poll_thread();
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake_poll_thread();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

/// Settlements that came after their assignment had ended, and were refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) now: u64,
    pub(crate) total: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// What goes ahead of deliveries: assignments, revocations, connection.
    control: VecDeque<SourceEvent>,
    ready: Vec<Delivery>,
    ready_bytes: usize,
    failure: Option<SourceError>,
    failed: bool,
    stopped: bool,
    owned: HashMap<AssignmentId, Owned>,
    ids: HashMap<Arc<str>, HashMap<i32, AssignmentId>>,
    late: u64,
}

/// A partition that is ours.
#[derive(Debug)]
struct Owned {
    topic: Arc<str>,
    partition: i32,
    watermark: Watermark,
    /// What the group's coordinator is known to hold; `None` until we have told it.
    committed: Option<i64>,
    pause_wanted: bool,
    paused: bool,
}

/// An offset to commit: the next one to read.
#[derive(Clone, Debug)]
pub(crate) struct Offset {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) next: i64,
}

/// Partitions to pause and to resume.
#[derive(Debug, Default)]
pub(crate) struct PauseChanges {
    pub(crate) pause: Vec<(Arc<str>, i32)>,
    pub(crate) resume: Vec<(Arc<str>, i32)>,
}

impl State {
    /// A partition is ours from now on.
    pub(crate) fn assign(&mut self, topic: &str, partition: i32) -> Assignment {
        /// Ids are unique in the process, so that two sources of one consumer cannot clash.
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = AssignmentId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let known = self
            .ids
            .get_key_value(topic)
            .map(|(topic, _)| Arc::clone(topic));
        let topic = known.unwrap_or_else(|| topic.into());
        let partitions = self.ids.entry(Arc::clone(&topic)).or_default();
        if let Some(forgotten) = partitions.insert(partition, id) {
            self.owned.remove(&forgotten);
        }
        let name = format!("{topic}/{partition}").into();
        self.owned.insert(
            id,
            Owned {
                topic,
                partition,
                watermark: Watermark::default(),
                committed: None,
                pause_wanted: false,
                paused: false,
            },
        );
        Assignment { id, name }
    }

    /// The assignment of a partition, if it is ours.
    pub(crate) fn id(&self, topic: &str, partition: i32) -> Option<AssignmentId> {
        self.ids.get(topic)?.get(&partition).copied()
    }

    pub(crate) fn ids(&self) -> Vec<AssignmentId> {
        self.owned.keys().copied().collect()
    }

    /// Drops what of these assignments waits for the runtime: it is not begun any more.
    pub(crate) fn drop_ready(&mut self, ids: &[AssignmentId]) {
        self.ready
            .retain(|delivery| !ids.contains(&delivery.assignment));
        self.ready_bytes = self.ready.iter().map(Delivery::size).sum();
    }

    /// Ends assignments, and says what is left to commit for them. From here on nothing of theirs
    /// can be settled.
    pub(crate) fn end(&mut self, ids: &[AssignmentId]) -> Vec<Offset> {
        self.drop_ready(ids);
        let mut left = Vec::new();
        for id in ids {
            let Some(owned) = self.owned.remove(id) else {
                continue;
            };
            if let Some(partitions) = self.ids.get_mut(&owned.topic) {
                partitions.remove(&owned.partition);
            }
            left.extend(owned.uncommitted());
        }
        left
    }

    /// Puts a record where the runtime finds it. Dropped if its partition is not ours (it was on its
    /// way when that ended) or if the source is stopping: either way it is delivered again.
    pub(crate) fn deliver(&mut self, topic: &str, record: Record) {
        let Some(id) = self.id(topic, record.partition).filter(|_| !self.stopped) else {
            return;
        };
        let Some(owned) = self.owned.get_mut(&id) else {
            return;
        };
        let tag = owned.watermark.delivered(record.offset);
        let position = Position::Log {
            topic: Arc::clone(&owned.topic),
            partition: record.partition,
            offset: record.offset,
        };
        let mut delivery = Delivery::new(position, id, tag, record.payload);
        delivery.key = record.key;
        delivery.headers = record.headers;
        delivery.published_at = record.published_at;
        self.ready_bytes += delivery.size();
        self.ready.push(delivery);
    }

    /// Whether the runtime is behind: no more is to be read until it has caught up.
    pub(crate) fn is_full(&self) -> bool {
        self.ready.len() >= READY_MESSAGES || self.ready_bytes >= READY_BYTES
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Offsets that have moved since they were last committed.
    pub(crate) fn uncommitted(&self) -> Vec<Offset> {
        self.owned.values().filter_map(Owned::uncommitted).collect()
    }

    /// These are committed. Whoever says so holds the right to commit, so their assignments are
    /// those that they were taken from.
    pub(crate) fn committed(&mut self, offsets: &[Offset]) {
        for offset in offsets {
            let id = self.id(&offset.topic, offset.partition);
            if let Some(owned) = id.and_then(|id| self.owned.get_mut(&id)) {
                owned.committed = Some(offset.next);
            }
        }
    }

    /// Whether a partition is to be paused, and is not yet.
    pub(crate) fn awaits_pause(&self) -> bool {
        let mut owned = self.owned.values();
        !self.stopped && owned.any(|owned| owned.pause_wanted && !owned.paused)
    }

    /// What is to be paused and resumed, marked as done.
    pub(crate) fn pause_changes(&mut self, wanted: Wanted) -> PauseChanges {
        let mut changes = PauseChanges::default();
        for owned in self.owned.values_mut() {
            let pause = match wanted {
                _ if self.stopped => true,
                Wanted::Paused => true,
                Wanted::Resumed => owned.pause_wanted && owned.paused,
                Wanted::All => owned.pause_wanted,
            };
            if pause == owned.paused {
                continue;
            }
            owned.paused = pause;
            let partition = (Arc::clone(&owned.topic), owned.partition);
            if pause {
                changes.pause.push(partition);
            } else {
                changes.resume.push(partition);
            }
        }
        changes
    }
}

/// Which pauses are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All partitions'.
    Paused,
    /// Those that the runtime wants.
    All,
    /// Those of them that are already.
    Resumed,
}

impl Owned {
    fn uncommitted(&self) -> Option<Offset> {
        let next = self.watermark.offset()?;
        (self.committed != Some(next)).then(|| Offset {
            topic: Arc::clone(&self.topic),
            partition: self.partition,
            next,
        })
    }
}
