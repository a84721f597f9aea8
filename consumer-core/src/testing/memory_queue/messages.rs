//! What is in the queue, and who may receive it.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::Message;
use crate::delivery::AssignmentId;
use crate::source::{Settle, Settlement};

/// Everything that the sources of a queue share.
#[derive(Debug, Default)]
pub(super) struct Messages {
    stored: BTreeMap<u64, Stored>,
    last_message: u64,
    last_receipt: u64,
    last_reader: u64,
    pub(super) late_settlements: usize,
    pub(super) pauses: usize,
}

#[derive(Debug)]
struct Stored {
    message: Message,
    receive_count: u32,
    /// Of the latest receive, and whose that was; an older one is no longer good.
    receipt: Option<(AssignmentId, u64)>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hidden { until: Instant },
    With(AssignmentId),
}

/// One message as it was received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) id: u64,
    pub(super) receipt: u64,
    pub(super) receive_count: u32,
    pub(super) message: Message,
}

pub(super) fn message_id(id: u64) -> String {
    format!("message-{id}")
}

impl Messages {
    /// A source has one assignment for as long as it lives.
    pub(super) fn new_reader(&mut self) -> AssignmentId {
        self.last_reader += 1;
        AssignmentId(self.last_reader)
    }

    pub(super) fn push(&mut self, message: Message) -> u64 {
        self.last_message += 1;
        let stored = Stored {
            message,
            receive_count: 0,
            receipt: None,
            state: State::Hidden {
                until: Instant::now(),
            },
        };
        self.stored.insert(self.last_message, stored);
        self.last_message
    }

    pub(super) fn remaining(&self) -> usize {
        self.stored.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        let is_with_somebody = |stored: &&Stored| matches!(stored.state, State::With(_));
        self.stored.values().filter(is_with_somebody).count()
    }

    pub(super) fn receive(
        &mut self,
        reader: AssignmentId,
        fifo: bool,
        limit: usize,
    ) -> Vec<Received> {
        let now = Instant::now();
        // A group waits while any of its messages is invisible, also a later one.
        let waiting: BTreeSet<_> = self
            .stored
            .values()
            .filter(|stored| fifo && !stored.is_visible(now))
            .map(|stored| stored.message.group.clone())
            .collect();
        let free =
            |stored: &Stored| stored.is_visible(now) && !waiting.contains(&stored.message.group);
        let mut received = Vec::new();
        for (&id, stored) in self
            .stored
            .iter_mut()
            .filter(|(_, stored)| free(stored))
            .take(limit)
        {
            self.last_receipt += 1;
            stored.receipt = Some((reader, self.last_receipt));
            stored.receive_count += 1;
            stored.state = State::With(reader);
            received.push(Received {
                id,
                receipt: self.last_receipt,
                receive_count: stored.receive_count,
                message: stored.message.clone(),
            });
        }
        received
    }

    /// When a message becomes visible next that is not now.
    pub(super) fn next_visible(&self) -> Option<Instant> {
        let now = Instant::now();
        let hidden = self
            .stored
            .values()
            .filter_map(|stored| match stored.state {
                State::Hidden { until } => Some(until),
                State::With(_) => None,
            });
        hidden.filter(|until| *until > now).min()
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) {
        let receipt = Some((settlement.assignment, settlement.tag));
        let by_receipt = |(_, stored): &(&u64, &mut Stored)| stored.receipt == receipt;
        let Some((&id, stored)) = self.stored.iter_mut().find(by_receipt) else {
            self.late_settlements += 1;
            return;
        };
        match settlement.settle {
            Settle::Ack => {
                self.stored.remove(&id);
            }
            Settle::Release(delay) => {
                stored.state = State::Hidden {
                    until: Instant::now() + delay,
                };
            }
        }
    }

    pub(super) fn lapse(&mut self) {
        let until = Instant::now();
        for stored in self.stored.values_mut() {
            if matches!(stored.state, State::With(_)) {
                stored.state = State::Hidden { until };
            }
        }
    }

    /// Gives back all that a source holds.
    pub(super) fn give_back(&mut self, reader: AssignmentId, until: Instant) {
        for stored in self.stored.values_mut() {
            if stored.state == State::With(reader) {
                stored.state = State::Hidden { until };
            }
        }
    }
}

impl Stored {
    fn is_visible(&self, now: Instant) -> bool {
        matches!(self.state, State::Hidden { until } if until <= now)
    }
}
