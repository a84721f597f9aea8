//! Events set aside, whole, with the reason.

use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::delivery::{Delivery, Headers, Position};
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
    /// The record key.
    pub key: Option<Bytes>,
    /// The raw bytes; `None` for a tombstone.
    pub payload: Option<Bytes>,
    /// The headers as they came, repeated names included.
    pub headers: Headers,
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
        }
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
mod tests {
    use super::*;
    use crate::delivery::AssignmentId;
    use crate::event_key::EventId;
    use crate::fingerprint::Fingerprint;

    fn delivery(offset: i64, payload: &'static str) -> Delivery {
        let position = Position::Log {
            topic: "t".into(),
            partition: 0,
            offset,
        };
        Delivery::new(
            position,
            AssignmentId(1),
            0,
            Some(Bytes::from_static(payload.as_bytes())),
        )
    }

    fn key_of(delivery: &Delivery, event: Option<&EventKey>) -> [u8; 32] {
        DeadLetter::source_key(delivery, event, DeadLetterKind::Poison)
    }

    #[test]
    fn an_event_with_an_id_is_one_letter_wherever_it_is_delivered_from() {
        let event = EventKey::new(EventId::new("x").unwrap());
        assert_eq!(
            key_of(&delivery(1, "a"), Some(&event)),
            key_of(&delivery(2, "b"), Some(&event))
        );
    }

    #[test]
    fn each_content_that_comes_under_an_id_is_a_letter_of_its_own() {
        let event = EventKey::new(EventId::new("x").unwrap());
        let letter = |payload: &'static str| {
            let delivery = delivery(1, payload);
            let fingerprint = Fingerprint::Payload.of(delivery.payload.as_deref());
            let kind = DeadLetterKind::Poison;
            DeadLetter::new(&delivery, Some(event.clone()), kind, 0, "")
                .with_fingerprint(fingerprint)
                .source_key
        };
        assert_eq!(letter("a"), letter("a"));
        assert_ne!(letter("a"), letter("b"));
    }

    #[test]
    fn without_an_id_position_and_content_tell_letters_apart() {
        assert_eq!(
            key_of(&delivery(1, "a"), None),
            key_of(&delivery(1, "a"), None)
        );
        assert_ne!(
            key_of(&delivery(1, "a"), None),
            key_of(&delivery(2, "a"), None)
        );
        assert_ne!(
            key_of(&delivery(1, "a"), None),
            key_of(&delivery(1, "b"), None)
        );
    }

    #[test]
    fn a_tombstone_is_not_an_empty_payload() {
        let mut tombstone = delivery(1, "");
        tombstone.payload = None;
        assert_ne!(key_of(&tombstone, None), key_of(&delivery(1, ""), None));
    }

    #[test]
    fn text_is_cut_between_characters_and_says_so() {
        let cut = storable("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 11);
        assert_eq!(cut, "\u{e9}\u{e9} [cut]");
    }

    #[test]
    fn nul_becomes_its_picture() {
        assert_eq!(storable("a\0b", 11), "a\u{2400}b");
    }
}
