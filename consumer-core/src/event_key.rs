//! What is unique: the tenant and the event id that a producer chose.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

/// The id that the producer gave the event, once; every delivery of the event repeats it.
///
/// Ids are compared byte by byte: no Unicode normalisation, no folding of case, no trimming. Text
/// that is a UUID in its canonical form (36 characters, lower case) is kept as 16 bytes; the same
/// UUID in upper case is another id.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Uuid(Uuid),
    Text(Box<str>),
}

const TAG_UUID: u8 = 1;
const TAG_TEXT: u8 = 2;

impl EventId {
    /// The longest id, in bytes of UTF-8. With the longest tenant it still fits a B-tree page.
    pub const MAX_LEN: usize = 1024;

    /// Checks an id once, so that nothing downstream has to.
    ///
    /// # Errors
    /// An empty id, or one of more than [`EventId::MAX_LEN`] bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidEventKey> {
        let text = text.as_ref();
        match text.len() {
            0 => Err(InvalidEventKey::EmptyId),
            1..=Self::MAX_LEN => Ok(Self(
                canonical_uuid(text).map_or_else(|| Repr::Text(text.into()), Repr::Uuid),
            )),
            len => Err(InvalidEventKey::LongId { len }),
        }
    }

    /// How stores keep it: a tag byte, then 16 bytes of a UUID or the text in UTF-8.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(17);
        match &self.0 {
            Repr::Uuid(uuid) => {
                bytes.put_u8(TAG_UUID);
                bytes.put_slice(uuid.as_bytes());
            }
            Repr::Text(text) => {
                bytes.put_u8(TAG_TEXT);
                bytes.put_slice(text.as_bytes());
            }
        }
        bytes.freeze()
    }

    /// Reads back what [`EventId::to_bytes`] wrote.
    ///
    /// # Errors
    /// Bytes that no id is written as.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidEventKey> {
        let unreadable = || InvalidEventKey::NotUtf8 { what: "event id" };
        match bytes.split_first() {
            Some((&TAG_UUID, rest)) => Ok(Self(Repr::Uuid(
                Uuid::from_slice(rest).map_err(|_| unreadable())?,
            ))),
            Some((&TAG_TEXT, rest)) => {
                Self::new(std::str::from_utf8(rest).map_err(|_| unreadable())?)
            }
            _ => Err(unreadable()),
        }
    }
}

impl EventId {
    pub(crate) fn as_uuid(&self) -> Option<&Uuid> {
        match &self.0 {
            Repr::Uuid(uuid) => Some(uuid),
            Repr::Text(_) => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.0 {
            Repr::Uuid(_) => None,
            Repr::Text(text) => Some(text),
        }
    }

    /// The same id, with a UUID's other forms (upper case, braces, no hyphens, URN) made its
    /// canonical one.
    pub(crate) fn with_uuid_normalised(self) -> Self {
        match &self.0 {
            Repr::Text(text) => match Uuid::try_parse(text) {
                Ok(uuid) => uuid.into(),
                Err(_) => self,
            },
            Repr::Uuid(_) => self,
        }
    }
}

impl From<Uuid> for EventId {
    fn from(uuid: Uuid) -> Self {
        Self(Repr::Uuid(uuid))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Uuid(uuid) => uuid.fmt(f),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({:?})", self.to_string())
    }
}

/// Only the form that [`Uuid`] prints is a UUID here, so that printing gives back what came in.
fn canonical_uuid(text: &str) -> Option<Uuid> {
    let canonical = text.len() == 36
        && text
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    canonical.then(|| Uuid::try_parse(text).ok()).flatten()
}

/// The owner of the event id's namespace; empty unless the user says otherwise.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Box<str>);

impl Tenant {
    /// The longest tenant, in bytes of UTF-8.
    pub const MAX_LEN: usize = 255;

    /// Checks a tenant; the empty one is allowed.
    ///
    /// # Errors
    /// More than [`Tenant::MAX_LEN`] bytes.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InvalidEventKey> {
        let text = text.into();
        match text.len() {
            0..=Self::MAX_LEN => Ok(Self(text)),
            len => Err(InvalidEventKey::LongTenant { len }),
        }
    }

    /// The tenant as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({:?})", self.0)
    }
}

/// What is unique within a consumer: whose event it is, and which.
///
/// The third part of the key, the consumer, is the same for everything that one runtime handles,
/// so it is given to the store once, when a unit of work begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey {
    // The id comes first, as in the inbox's index: sorting by it is the order of the claim.
    /// The producer's id.
    pub id: EventId,
    /// The owner of the id's namespace.
    pub tenant: Tenant,
}

impl EventKey {
    /// An event key without a tenant.
    pub fn new(id: EventId) -> Self {
        Self {
            id,
            tenant: Tenant::default(),
        }
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tenant.as_str().is_empty() {
            self.id.fmt(f)
        } else {
            write!(f, "{}:{}", self.tenant.as_str(), self.id)
        }
    }
}

/// Why text cannot be (part of) an event key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEventKey {
    /// The id is there, and has no characters.
    #[error("the event id is empty")]
    EmptyId,
    /// Nothing is cut off silently: two long ids could then be taken for one.
    #[error(
        "the event id has {len} bytes, more than the {} that an index takes",
        EventId::MAX_LEN
    )]
    LongId {
        /// Its length in bytes.
        len: usize,
    },
    /// The tenant is there, and has no characters: all whose tenant was forgotten would be one.
    #[error("the tenant is empty")]
    EmptyTenant,
    /// As for the id.
    #[error(
        "the tenant has {len} bytes, more than the {} that an index takes beside an id",
        Tenant::MAX_LEN
    )]
    LongTenant {
        /// Its length in bytes.
        len: usize,
    },
    /// Ids are text.
    #[error("the {what} is not UTF-8")]
    NotUtf8 {
        /// Which part was unreadable.
        what: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        for text in [
            "0190163d-8694-739b-aea5-966c26f8ad91",
            "0190163D-8694-739B-AEA5-966C26F8AD91",
            "0190163d8694739baea5966c26f8ad91",
            "caf\u{e9}",
            "cafe\u{301}",
            "a ",
            "nul\0nul",
        ] {
            let id = EventId::new(text).unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(EventId::from_bytes(&id.to_bytes()).unwrap(), id);
        }
    }

    #[test]
    fn a_canonical_uuid_takes_seventeen_bytes() {
        let id = EventId::new("0190163d-8694-739b-aea5-966c26f8ad91").unwrap();
        assert_eq!(id.to_bytes().len(), 17);
    }

    #[test]
    fn only_the_canonical_form_of_a_uuid_is_shortened() {
        let lower = EventId::new("0190163d-8694-739b-aea5-966c26f8ad91").unwrap();
        let upper = EventId::new("0190163D-8694-739B-AEA5-966C26F8AD91").unwrap();
        assert_ne!(lower, upper);
        assert_ne!(lower.to_bytes(), upper.to_bytes());
    }

    #[test]
    fn an_id_that_is_too_long_is_refused_whole() {
        assert!(EventId::new("x".repeat(1024)).is_ok());
        assert_eq!(
            EventId::new("x".repeat(1025)),
            Err(InvalidEventKey::LongId { len: 1025 })
        );
        assert_eq!(EventId::new(""), Err(InvalidEventKey::EmptyId));
    }
}
