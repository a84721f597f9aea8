//! Events set aside, whole, with the reason.

mod bounds;

use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use self::bounds::{Cut, DeadLetterBounds};

use crate::delivery::{AssignmentId, Delivery, Headers, Order, Position};
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::store::Settled;

/// An event that was set aside with all that is needed to look at it and to send it through again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// What makes it unique within the consumer: a digest of kind, event key and, where one is
    /// taken, fingerprint; or, without a readable event key, of kind, position and content.
    pub source_key: [u8; 32],
    /// Why it is here.
    pub kind: DeadLetterKind,
    /// Its event key, if it had a readable one.
    pub event: Option<EventKey>,
    /// The fingerprint of its content, where one is taken.
    pub fingerprint: Option<Fingerprint16>,
    /// Of a mismatch: the fingerprint of the event that its key was settled with.
    pub settled_fingerprint: Option<Fingerprint16>,
    /// Where it was.
    pub position: Position,
    /// What it had to be handled in order with, as the source saw it.
    pub order: Order,
    /// The record key.
    pub key: Option<Bytes>,
    /// The raw bytes; `None` for a tombstone.
    pub payload: Option<Bytes>,
    /// The headers as they came, repeated names included.
    pub headers: Headers,
    /// The broker's own deduplication id, where it has one.
    pub deduplication_id: Option<Box<str>>,
    /// What of it was too large to be kept.
    pub cut: Cut,
    /// When the broker says it was published.
    pub published_at: Option<SystemTime>,
    /// Attempts charged.
    pub attempts: u32,
    /// The error and its causes, outermost first, a line each.
    pub error: String,
}

/// Why an event was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterKind {
    /// It cannot be read: no usable event id, or bytes that do not decode.
    Poison,
    /// It failed as often as the retry schedule allows.
    Exhausted,
    /// Its event key was settled before, by an event of other content.
    Mismatch,
    /// Its day is forgotten: whether it was settled before, nobody can say.
    TooLate,
    /// Its day lies too far ahead to be true.
    Future,
    /// Its handler's reply is too large to be stored, or cannot be serialised.
    ReplyTooLarge,
    /// Process after process ended while it handled this event and nothing else.
    Crashed,
    /// Its handler refused it for good, and the consumer keeps such events
    /// ([`Consumer::set_aside_rejected`](crate::Consumer::set_aside_rejected)).
    Rejected,
}

impl DeadLetterKind {
    /// As stores and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Poison => "poison",
            Self::Exhausted => "exhausted",
            Self::Mismatch => "mismatch",
            Self::TooLate => "too_late",
            Self::Future => "future",
            Self::ReplyTooLarge => "reply_too_large",
            Self::Crashed => "crashed",
            Self::Rejected => "rejected",
        }
    }

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Poison,
        Self::Exhausted,
        Self::Mismatch,
        Self::TooLate,
        Self::Future,
        Self::ReplyTooLarge,
        Self::Crashed,
        Self::Rejected,
    ];

    /// The kind that is spelt so; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl DeadLetter {
    /// Error texts are cut to this many bytes, so that a letter stays readable and bounded.
    pub const MAX_ERROR_LEN: usize = 8 * 1024;

    /// A dead letter of this delivery.
    pub fn new(
        delivery: &Delivery,
        event: Option<EventKey>,
        kind: DeadLetterKind,
        attempts: u32,
        error: &str,
    ) -> Self {
        Self {
            source_key: Self::source_key(delivery, event.as_ref(), kind),
            kind,
            event,
            fingerprint: None,
            settled_fingerprint: None,
            position: delivery.position.clone(),
            order: delivery.order.clone(),
            deduplication_id: delivery.deduplication_id.clone(),
            cut: Cut::default(),
            key: delivery.key.clone(),
            payload: delivery.payload.clone(),
            headers: delivery.headers.clone(),
            published_at: delivery.published_at,
            attempts,
            error: storable(error, Self::MAX_ERROR_LEN),
        }
    }

    /// A dead letter of a delivery whose event key was settled before, by an event of the content
    /// `theirs`: with all that is known of both.
    pub fn mismatch(
        delivery: &Delivery,
        event: EventKey,
        ours: Fingerprint16,
        theirs: Fingerprint16,
        settled: &Settled,
    ) -> Self {
        let size = match &delivery.payload {
            Some(payload) => format!("{} bytes", payload.len()),
            None => "a tombstone".into(),
        };
        let became = match settled {
            Settled::Done { reply: None } => "took effect".into(),
            Settled::Done { reply: Some(reply) } => {
                format!("took effect, with a reply of {} bytes", reply.len())
            }
            Settled::Rejected { reason } => format!("was rejected: {reason}"),
            Settled::Dead => "was set aside".into(),
        };
        let error = format!(
            "another event has this event key\n\
             this delivery: {size}, fingerprint {ours}\n\
             the event that was first: fingerprint {theirs}; it {became}"
        );
        let mut letter = Self::new(delivery, Some(event), DeadLetterKind::Mismatch, 0, &error);
        letter.settled_fingerprint = Some(theirs);
        letter.with_fingerprint(Some(ours))
    }

    /// Adds the fingerprint. An event with a readable id is one letter for each content that comes
    /// under it, so that none of them is lost to another.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: Option<Fingerprint16>) -> Self {
        self.fingerprint = fingerprint;
        if let (Some(fingerprint), Some(_)) = (fingerprint, &self.event) {
            let mut digest = Sha256::new_with_prefix(self.source_key);
            digest.update(fingerprint.to_bytes());
            self.source_key = digest.finalize().into();
        }
        self
    }

    /// The lane that it is redriven in: letters of one lane are redriven one after the other, in the
    /// order in which they were set aside. It is its message group, else its record key, else its
    /// partition; `None` where the source knows no order.
    pub fn lane(&self) -> Option<[u8; 16]> {
        let within: &[u8] = match (&self.order, &self.key) {
            (Order::None, _) => return None,
            (Order::Group(group), _) => group,
            (Order::Assignment, Some(key)) => key,
            (Order::Assignment, None) => &[],
        };
        let mut digest = Sha256::new();
        let source = self.position.source();
        digest.update((source.len() as u64).to_be_bytes());
        digest.update(source);
        if let Position::Log { partition, .. } = self.position {
            digest.update(partition.to_be_bytes());
        }
        // A record without a key is not one with an empty key.
        digest.update([u8::from(
            self.order == Order::Assignment && self.key.is_none(),
        )]);
        digest.update(within);
        let mut lane = [0; 16];
        lane.copy_from_slice(&digest.finalize()[..16]);
        Some(lane)
    }

    /// The delivery that it was made of, as far as it was kept.
    pub fn to_delivery(&self) -> Delivery {
        let position = self.position.clone();
        let mut delivery = Delivery::new(position, AssignmentId(0), 0, self.payload.clone());
        delivery.order.clone_from(&self.order);
        delivery.key.clone_from(&self.key);
        delivery.headers.clone_from(&self.headers);
        delivery.published_at = self.published_at;
        (delivery.deduplication_id).clone_from(&self.deduplication_id);
        delivery
    }

    /// An event with a readable id is known by its key and the kind, wherever it is delivered from;
    /// one without by its position and content, so that a redelivery is the same letter, and
    /// another message that a recreated topic puts at the same offset is not.
    fn source_key(delivery: &Delivery, event: Option<&EventKey>, kind: DeadLetterKind) -> [u8; 32] {
        let mut digest = Sha256::new();
        // Every part goes in with its length, so that no two lists of parts read the same.
        let mut part = |bytes: Option<&[u8]>| match bytes {
            None => digest.update([0]),
            Some(bytes) => {
                digest.update([1]);
                digest.update((bytes.len() as u64).to_be_bytes());
                digest.update(bytes);
            }
        };
        part(Some(kind.as_str().as_bytes()));
        if let Some(event) = event {
            part(Some(&event.id.to_bytes()));
            part(Some(event.tenant.as_str().as_bytes()));
        } else {
            part(Some(delivery.position.to_string().as_bytes()));
            part(delivery.key.as_deref());
            part(delivery.payload.as_deref());
            for (name, value) in delivery.headers.iter() {
                part(Some(name.as_bytes()));
                part(value.map(|value| &**value));
            }
        }
        digest.finalize().into()
    }
}

/// Text that every database takes: cut at a character's boundary to at most `max` bytes, the cut
/// marked, and without NUL, which PostgreSQL refuses in text.
pub(crate) fn storable(text: &str, max: usize) -> String {
    const MARK: &str = " [cut]";
    let text = text.replace('\0', "\u{2400}");
    if text.len() <= max {
        return text;
    }
    let end = text.floor_char_boundary(max - MARK.len());
    format!("{}{MARK}", &text[..end])
}

#[cfg(test)]
mod tests;
