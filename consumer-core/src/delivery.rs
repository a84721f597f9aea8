//! One handing-out of an event by a broker.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

/// One handing-out of an event; the same event may be delivered many times.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// Where it sits. Never an identity, unless the user opts in.
    pub position: Position,
    /// The assignment it came with; a settlement for one that has ended is refused.
    pub assignment: AssignmentId,
    /// The source's own mark, unique within the assignment; the settlement carries it back.
    pub tag: u64,
    /// What it must be handled in order with, as the source sees it.
    pub order: Order,
    /// The record key, where the broker has one.
    pub key: Option<Bytes>,
    /// The bytes the producer sent; `None` is a tombstone, which is not the same as no bytes.
    pub payload: Option<Bytes>,
    /// Headers or attributes, as they came.
    pub headers: Headers,
    /// When the broker says it was published. Only ever informative.
    pub published_at: Option<SystemTime>,
    /// How often the broker says it has handed this out, this time included.
    pub receive_count: Option<u32>,
    /// The id by which the broker itself drops repeats (SQS FIFO), where it has one.
    pub deduplication_id: Option<Box<str>>,
}

impl Delivery {
    /// A delivery with nothing optional; sources fill in what they know.
    pub fn new(
        position: Position,
        assignment: AssignmentId,
        tag: u64,
        payload: Option<Bytes>,
    ) -> Self {
        Self {
            position,
            assignment,
            tag,
            order: Order::Assignment,
            key: None,
            payload,
            headers: Headers::default(),
            published_at: None,
            receive_count: None,
            deduplication_id: None,
        }
    }

    /// What it takes in memory, roughly, in bytes: counted against the limit in flight.
    pub fn size(&self) -> usize {
        /// The struct itself, its allocations and its places in the runtime's tables.
        const OVERHEAD: usize = 512;
        OVERHEAD
            + self.payload.as_ref().map_or(0, Bytes::len)
            + self.key.as_ref().map_or(0, Bytes::len)
            + self.headers.size()
    }
}

/// One assignment of one part of a source to this process. A partition that is revoked and assigned
/// again gets a new one, so that work from before cannot settle anything now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssignmentId(pub u64);

/// What a source says a delivery must be kept in order with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// With everything of its assignment: a Kafka partition.
    Assignment,
    /// With its group: a FIFO message group.
    Group(Bytes),
    /// With nothing: a standard queue.
    None,
}

/// Where a delivery sits at its broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Position {
    /// In a log.
    Log {
        /// The topic.
        topic: Arc<str>,
        /// The partition's number.
        partition: i32,
        /// The record's offset.
        offset: i64,
    },
    /// In a queue.
    Queue {
        /// The queue's name.
        queue: Arc<str>,
        /// The broker's id of the message; a message sent twice has two.
        message_id: Box<str>,
    },
}

impl Position {
    /// The part of the source that it is in, as [`Assignment::name`](crate::Assignment::name) has
    /// it: `topic/partition`, or the queue.
    pub(crate) fn part(&self) -> String {
        match self {
            Self::Log {
                topic, partition, ..
            } => format!("{topic}/{partition}"),
            Self::Queue { queue, .. } => queue.as_ref().into(),
        }
    }

    /// The topic or queue.
    pub fn source(&self) -> &str {
        match self {
            Self::Log { topic, .. } => topic,
            Self::Queue { queue, .. } => queue,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log {
                topic,
                partition,
                offset,
            } => write!(f, "{topic}/{partition}/{offset}"),
            Self::Queue { queue, message_id } => write!(f, "{queue}/{message_id}"),
        }
    }
}

/// Headers (Kafka) or attributes (SQS), in the order they came; names may repeat, values may be null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Box<str>, Option<Bytes>)>);

impl Headers {
    /// Adds one behind the others.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Option<Bytes>) {
        self.0.push((name.into(), value));
    }

    /// The value of the last header of that name: the one added last overrides.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        let (_, value) = self.0.iter().rev().find(|(n, _)| &**n == name)?;
        value.as_ref()
    }

    /// All of them, repeated names included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Bytes>)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_ref()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn size(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.map_or(0, Bytes::len))
            .sum()
    }
}

impl<N: Into<Box<str>>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(
            headers
                .into_iter()
                .map(|(name, value)| (name.into(), Some(value.into())))
                .collect(),
        )
    }
}
