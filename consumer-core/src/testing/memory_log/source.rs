//! One member of the group.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{Instant, Timeout, sleep_until, timeout};

use super::Shared;
use super::group::{MemberId, Notice};
use crate::delivery::AssignmentId;
use crate::source::{Revocation, Settlement, Source, SourceError, SourceEvent};
use crate::window::Reach;

/// A source of a [`MemoryLog`](super::MemoryLog).
#[derive(Debug)]
pub struct MemoryLogSource {
    shared: Arc<Shared>,
    member: MemberId,
    draining: Vec<Draining>,
    said_connected: bool,
    stopped: bool,
    /// When the watermarks are committed next.
    commit_at: Option<Instant>,
    reaches: Vec<Reach>,
}

/// Assignments that end when the runtime has let go of them, or by the deadline.
#[derive(Debug)]
struct Draining {
    assignments: Vec<AssignmentId>,
    drained: Pin<Box<Timeout<oneshot::Receiver<Infallible>>>>,
}

impl MemoryLogSource {
    /// The most deliveries of one event.
    const BATCH: usize = 100;

    pub(super) fn new(shared: Arc<Shared>, member: MemberId) -> Self {
        Self {
            shared,
            member,
            draining: Vec::new(),
            said_connected: false,
            stopped: false,
            commit_at: None,
            reaches: Vec::new(),
        }
    }

    /// Sets what it says of how long a duplicate may still come from it. By default it has no such
    /// way.
    #[must_use]
    pub fn reaching(mut self, reaches: impl IntoIterator<Item = Reach>) -> Self {
        self.reaches = reaches.into_iter().collect();
        self
    }

    /// Its place in the group, by which a test moves partitions.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Ends what has been let go of; ready when that was anything.
    fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = Vec::new();
        self.draining.retain_mut(|draining| {
            let pending = draining.drained.as_mut().poll(cx).is_pending();
            if !pending {
                done.append(&mut draining.assignments);
            }
            pending
        });
        if done.is_empty() {
            return Poll::Pending;
        }
        for assignment in done {
            self.shared.group().let_go(self.member, assignment);
        }
        self.shared.changed.notify_waiters();
        Poll::Ready(())
    }

    /// The runtime may have let go of something since `next` was last polled.
    fn catch_up(&mut self) {
        let _ = self.poll_drained(&mut Context::from_waker(Waker::noop()));
    }

    fn commit(&mut self) {
        self.commit_at = None;
        self.shared.group().commit(self.member, |_| true);
    }

    fn event(&mut self) -> Option<SourceEvent> {
        if !self.said_connected {
            self.said_connected = true;
            return Some(SourceEvent::Connected(true));
        }
        if let Some(event) = self.notice() {
            return Some(event);
        }
        if self.stopped {
            return None;
        }
        let deliveries = self.shared.group().take(self.member, Self::BATCH);
        (!deliveries.is_empty()).then_some(SourceEvent::Deliveries(deliveries))
    }

    /// What has happened to the assignments, as many as fit in one event.
    fn notice(&mut self) -> Option<SourceEvent> {
        let mut group = self.shared.group();
        let notices = group.notices(self.member)?;
        let mut assigned = Vec::new();
        while let Some(Notice::Assigned(assignment)) = notices.front() {
            assigned.push(assignment.clone());
            notices.pop_front();
        }
        if !assigned.is_empty() {
            return Some(SourceEvent::Assigned(assigned));
        }
        let Some(&Notice::Revoked(_, deadline)) = notices.front() else {
            return None;
        };
        let mut revoked = Vec::new();
        while let Some(&Notice::Revoked(assignment, other)) = notices.front()
            && other == deadline
        {
            revoked.push(assignment);
            notices.pop_front();
        }
        drop(group);
        let (revocation, drained) = Revocation::new(revoked.clone(), deadline);
        self.draining.push(Draining {
            assignments: revoked,
            drained: Box::pin(timeout(deadline, drained)),
        });
        Some(SourceEvent::Revoked(revocation))
    }
}

#[async_trait]
impl Source for MemoryLogSource {
    fn system(&self) -> &'static str {
        "memory"
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.shared.group().join(self.member);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    async fn horizon(&mut self) -> Vec<Reach> {
        self.reaches.clone()
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        let shared = Arc::clone(&self.shared);
        loop {
            // It hears every change from here on, also before it is first polled.
            let changed = shared.changed.notified();
            self.catch_up();
            if let Some(event) = self.event() {
                return Ok(event);
            }
            let commit_at = self.commit_at;
            tokio::select! {
                () = changed => {}
                () = poll_fn(|cx| self.poll_drained(cx)) => {}
                () = sleep_until(commit_at.unwrap_or_else(Instant::now)), if commit_at.is_some() => {
                    self.commit();
                }
            }
        }
    }

    fn settle(&mut self, settlements: &[Settlement]) {
        self.catch_up();
        for settlement in settlements {
            self.shared.group().settle(self.member, settlement);
        }
        let due = *self
            .commit_at
            .get_or_insert_with(|| Instant::now() + self.shared.commit_interval);
        if due <= Instant::now() {
            self.commit();
        }
    }

    fn pause(&mut self, assignment: AssignmentId) {
        self.shared.group().pause(self.member, assignment, true);
    }

    fn resume(&mut self, assignment: AssignmentId) {
        self.shared.group().pause(self.member, assignment, false);
        self.shared.changed.notify_waiters();
    }

    fn longest_hold(&self, _ordered: bool) -> Duration {
        Duration::MAX
    }

    fn stop_receiving(&mut self) {
        self.stopped = true;
    }

    async fn close(mut self: Box<Self>, _deadline: Duration) -> Result<(), SourceError> {
        self.catch_up();
        self.commit();
        Ok(())
    }
}

impl Drop for MemoryLogSource {
    fn drop(&mut self) {
        self.shared.group().leave(self.member);
        self.shared.changed.notify_waiters();
    }
}
