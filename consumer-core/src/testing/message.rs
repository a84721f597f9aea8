//! What a producer sends to a double, or to a broker under the contract suite.

use std::time::SystemTime;

use bytes::Bytes;

use crate::delivery::Headers;

/// A message to send.
///
/// ```
/// # use oneffect_core::testing::Message;
/// let message = Message::new(r#"{"amount_minor": 100}"#).header("event-id", "payment-1");
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Message {
    /// The record key. Logs only.
    pub key: Option<Bytes>,
    /// The bytes; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// Headers or attributes.
    pub headers: Headers,
    /// What the double says of when it was published; it knows no better. A broker under the
    /// contract suite has a clock of its own.
    pub published_at: Option<SystemTime>,
    /// The message group. FIFO queues only, where a message without one is in the empty group.
    pub group: Bytes,
    /// Handed on with the delivery. This double drops no repeats by it. Queues only.
    pub deduplication_id: Option<Box<str>>,
}

impl Message {
    /// A message with that payload.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: Some(payload.into()),
            ..Self::default()
        }
    }

    /// A message without a payload.
    pub fn tombstone() -> Self {
        Self::default()
    }

    /// Adds a header behind the others.
    #[must_use]
    pub fn header(mut self, name: impl Into<Box<str>>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, Some(value.into()));
        self
    }

    /// Adds a header without a value behind the others.
    #[must_use]
    pub fn null_header(mut self, name: impl Into<Box<str>>) -> Self {
        self.headers.push(name, None);
        self
    }

    /// Sets when it was published.
    #[must_use]
    pub fn published_at(mut self, time: SystemTime) -> Self {
        self.published_at = Some(time);
        self
    }

    /// Sets the record key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the message group.
    #[must_use]
    pub fn group(mut self, group: impl Into<Bytes>) -> Self {
        self.group = group.into();
        self
    }
}
