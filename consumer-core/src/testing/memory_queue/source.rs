//! A reader of the queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::messages::{Received, message_id};
use super::{MemoryQueue, Shared};
use crate::delivery::{AssignmentId, Delivery, Order, Position};
use crate::source::{Assignment, Settlement, Source, SourceError, SourceEvent};
use crate::window::Reach;

/// A source of a [`MemoryQueue`].
#[derive(Debug)]
pub struct MemoryQueueSource {
    shared: Arc<Shared>,
    assignment: AssignmentId,
    said: Said,
    paused: bool,
    stopped: bool,
}

/// What the runtime has been told already.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Connected,
    Assigned,
}

impl MemoryQueueSource {
    /// The most deliveries of one event, as of one receive.
    const BATCH: usize = 10;

    pub(super) fn new(shared: Arc<Shared>, assignment: AssignmentId) -> Self {
        Self {
            shared,
            assignment,
            said: Said::Nothing,
            paused: false,
            stopped: false,
        }
    }

    fn event(&mut self) -> Option<SourceEvent> {
        match self.said {
            Said::Nothing => {
                self.said = Said::Connected;
                return Some(SourceEvent::Connected(true));
            }
            Said::Connected => {
                self.said = Said::Assigned;
                return Some(SourceEvent::Assigned(vec![Assignment {
                    id: self.assignment,
                    name: Arc::clone(&self.shared.name),
                }]));
            }
            Said::Assigned => {}
        }
        if self.paused || self.stopped {
            return None;
        }
        let received =
            self.shared
                .messages()
                .receive(self.assignment, self.shared.fifo, Self::BATCH);
        let deliveries: Vec<_> = received
            .into_iter()
            .map(|received| self.delivery(received))
            .collect();
        (!deliveries.is_empty()).then_some(SourceEvent::Deliveries(deliveries))
    }

    fn delivery(&self, received: Received) -> Delivery {
        let position = Position::Queue {
            queue: Arc::clone(&self.shared.name),
            message_id: message_id(received.id).into(),
        };
        let message = received.message;
        let mut delivery =
            Delivery::new(position, self.assignment, received.receipt, message.payload);
        delivery.headers = message.headers;
        delivery.published_at = message.published_at;
        delivery.receive_count = Some(received.receive_count);
        delivery.order = if self.shared.fifo {
            Order::Group(message.group)
        } else {
            Order::None
        };
        delivery.deduplication_id = message.deduplication_id;
        delivery
    }
}

#[async_trait]
impl Source for MemoryQueueSource {
    fn system(&self) -> &'static str {
        "memory"
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// What nobody outlives comes again no later.
    async fn horizon(&mut self) -> Vec<Reach> {
        Vec::new()
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        let shared = Arc::clone(&self.shared);
        loop {
            // It hears every change from here on, also before it is first polled.
            let changed = shared.changed.notified();
            if let Some(event) = self.event() {
                return Ok(event);
            }
            let visible_at = shared.messages().next_visible();
            tokio::select! {
                () = changed => {}
                () = sleep_until(visible_at.unwrap_or_else(Instant::now)), if visible_at.is_some() => {}
            }
        }
    }

    fn settle(&mut self, settlements: &[Settlement]) {
        for settlement in settlements {
            self.shared.messages().settle(settlement);
        }
        self.shared.changed.notify_waiters();
    }

    fn pause(&mut self, _assignment: AssignmentId) {
        if !std::mem::replace(&mut self.paused, true) {
            self.shared.messages().pauses += 1;
        }
    }

    fn resume(&mut self, _assignment: AssignmentId) {
        self.paused = false;
    }

    fn longest_hold(&self, ordered: bool) -> Duration {
        if ordered {
            Duration::from_mins(1)
        } else {
            Duration::ZERO
        }
    }

    fn stop_receiving(&mut self) {
        self.stopped = true;
    }

    async fn close(self: Box<Self>, _deadline: Duration) -> Result<(), SourceError> {
        self.shared
            .messages()
            .give_back(self.assignment, Instant::now());
        Ok(())
    }
}

impl Drop for MemoryQueueSource {
    fn drop(&mut self) {
        let until = Instant::now() + MemoryQueue::VISIBILITY;
        self.shared.messages().give_back(self.assignment, until);
        self.shared.changed.notify_waiters();
    }
}
