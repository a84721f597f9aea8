//! How much of a dead letter is kept, and how many of them.

use bytes::Bytes;

use super::DeadLetter;
use crate::delivery::Headers;

/// What of a delivery was too large to be kept in its dead letter. Where it was
/// ([`DeadLetter::position`]) is what is left to find the rest by; it cannot be redriven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// How many bytes the payload had, if it was cut.
    pub payload: Option<u64>,
    /// How many bytes the record key had, if it was cut.
    pub key: Option<u64>,
    /// How many headers were left out.
    pub headers: u32,
}

impl Cut {
    /// Whether nothing was.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// How much of what cannot be handled is kept. Reached, the number stops lanes, and drops nothing;
/// the sizes cut, since a delivery that cannot be stored would hold its lane for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterBounds {
    /// How many letters a consumer may have. At this number the lane of an event that would have to
    /// be set aside waits, until letters are redriven or discarded; other lanes go on. Each unit of
    /// work looks for itself, so units that run at once may together exceed it by a batch each.
    /// Default 10,000.
    pub letters: u64,
    /// How many bytes of a payload are kept. Default 1 MiB, which is the most that SQS takes, and
    /// that Kafka takes unless told otherwise.
    pub payload: usize,
    /// How many bytes of headers, names and values together; those that do not fit are left out.
    /// Default 256 KiB.
    pub headers: usize,
    /// How many bytes of a record key. Default 64 KiB.
    pub key: usize,
}

impl Default for DeadLetterBounds {
    fn default() -> Self {
        Self {
            letters: 10_000,
            payload: 1 << 20,
            headers: 256 << 10,
            key: 64 << 10,
        }
    }
}

impl DeadLetterBounds {
    /// Sets [`DeadLetterBounds::letters`].
    #[must_use]
    pub fn letters(mut self, letters: u64) -> Self {
        self.letters = letters;
        self
    }

    /// Sets [`DeadLetterBounds::payload`].
    #[must_use]
    pub fn payload(mut self, bytes: usize) -> Self {
        self.payload = bytes;
        self
    }

    /// Sets [`DeadLetterBounds::headers`].
    #[must_use]
    pub fn headers(mut self, bytes: usize) -> Self {
        self.headers = bytes;
        self
    }

    /// Sets [`DeadLetterBounds::key`].
    #[must_use]
    pub fn key(mut self, bytes: usize) -> Self {
        self.key = bytes;
        self
    }
}

impl DeadLetter {
    /// Cuts what is too large. Whose letter it is ([`DeadLetter::source_key`]) was decided by the
    /// whole content, and stays.
    #[must_use]
    pub fn within(mut self, bounds: &DeadLetterBounds) -> Self {
        self.cut.payload = cut(&mut self.payload, bounds.payload).or(self.cut.payload);
        self.cut.key = cut(&mut self.key, bounds.key).or(self.cut.key);
        let mut left = bounds.headers;
        let mut kept = Headers::default();
        for (name, value) in self.headers.iter() {
            let size = name.len() + value.map_or(0, Bytes::len);
            match left.checked_sub(size) {
                Some(rest) => {
                    left = rest;
                    kept.push(name, value.cloned());
                }
                None => self.cut.headers = self.cut.headers.saturating_add(1),
            }
        }
        self.headers = kept;
        self
    }
}

/// Shortens bytes, and tells how many there were.
fn cut(bytes: &mut Option<Bytes>, max: usize) -> Option<u64> {
    let whole = bytes.as_ref().filter(|bytes| bytes.len() > max)?;
    let len = whole.len() as u64;
    // A copy, so that the rest is not kept in memory.
    *bytes = Some(Bytes::copy_from_slice(&whole[..max]));
    Some(len)
}
