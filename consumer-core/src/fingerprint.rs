//! A digest of an event's content, stored with its key.

mod canonical_json;

use std::fmt;

use sha2::{Digest, Sha256};

/// What of an event is remembered, so that another event that comes under the same key is found
/// out rather than taken for a repeat.
///
/// With a fingerprint, a delivery whose key is settled and whose content is another is set aside as
/// a dead letter of the kind [`Mismatch`](crate::DeadLetterKind::Mismatch), and never handled.
/// Headers, the record key and the position are no part of the content.
///
/// It is off by default. A producer that stamps anything anew when it sends an event again (a time
/// of sending, a trace id in the payload, another version of its schema) would turn each of its
/// repeats, which are harmless, into a dead letter that a person has to look at. Turn it on where
/// every delivery carries the same content and a reused id is a real danger: ids given by people or
/// by counters, keys chosen by clients.
///
/// Changing this setting makes no mismatches: its number is stored with the fingerprint, and what
/// was stored under another is not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fingerprint {
    /// Nothing. Whatever comes under a settled key is a duplicate.
    #[default]
    Off,
    /// The raw bytes of the payload, SHA-256 cut to 16 bytes: the beginning of what `sha256sum`
    /// prints.
    Payload,
    /// What the payload says as JSON, however it is written: its canonical form by RFC 8785, then
    /// as [`Fingerprint::Payload`].
    ///
    /// - White space, the order of names in objects, escapes in strings, and the ways of writing a
    ///   number (`1`, `1.0`, `1e0`; `0`, `-0`) make no difference.
    /// - Numbers are compared with all their digits, where the RFC would round them to what a
    ///   double holds: 9007199254740992 and 9007199254740993 differ, and so do 0.1 and
    ///   0.10000000000000000001. Those that a double holds look as in the RFC.
    /// - A name that repeats within an object counts with all its values in their order: readers of
    ///   JSON disagree which of them is meant, so nothing is dropped.
    /// - What is not JSON is compared byte for byte. That goes for text that is not valid Unicode
    ///   and for more than 127 levels of nesting as well.
    CanonicalJson,
}

impl Fingerprint {
    /// The fingerprint of a payload (`None` is a tombstone); `None` when it is off.
    pub fn of(self, payload: Option<&[u8]>) -> Option<Fingerprint16> {
        let setting = match self {
            Self::Off => return None,
            Self::Payload => PAYLOAD,
            Self::CanonicalJson => CANONICAL_JSON,
        };
        let digest = match payload {
            None => TOMBSTONE,
            Some(payload) if setting == CANONICAL_JSON => {
                // Bytes that are not JSON are no canonical text, so the two never meet.
                match canonical_json::canonical(payload) {
                    Some(text) => sha256_16(text.as_bytes()),
                    None => sha256_16(payload),
                }
            }
            Some(payload) => sha256_16(payload),
        };
        Some(Fingerprint16 { setting, digest })
    }
}

// These numbers are in databases. What changes a fingerprint's bytes takes a new one.
const PAYLOAD: u8 = 1;
const CANONICAL_JSON: u8 = 2;

/// A tombstone is not an empty payload; nothing known has this digest.
const TOMBSTONE: [u8; 16] = [0; 16];

fn sha256_16(bytes: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut cut = [0; 16];
    cut.copy_from_slice(&digest[..16]);
    cut
}

/// A fingerprint: 16 bytes, and the number of the setting that they were made under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint16 {
    setting: u8,
    digest: [u8; 16],
}

impl Fingerprint16 {
    /// Whether the two are of different content. Only fingerprints of one setting can tell.
    pub fn contradicts(self, other: Self) -> bool {
        self.setting == other.setting && self.digest != other.digest
    }

    /// How stores keep it: the setting's number, then the digest.
    pub fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [self.setting; 17];
        bytes[1..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads back what [`Fingerprint16::to_bytes`] wrote; `None` for anything of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&setting, digest) = bytes.split_first()?;
        let digest = digest.try_into().ok()?;
        Some(Self { setting, digest })
    }
}

impl fmt::Display for Fingerprint16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting {
            PAYLOAD => f.write_str("payload:")?,
            CANONICAL_JSON => f.write_str("canonical-json:")?,
            other => write!(f, "setting-{other}:")?,
        }
        self.digest
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint16({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(payload: &str) -> Fingerprint16 {
        Fingerprint::CanonicalJson
            .of(Some(payload.as_bytes()))
            .unwrap()
    }

    fn raw(payload: &str) -> Fingerprint16 {
        Fingerprint::Payload.of(Some(payload.as_bytes())).unwrap()
    }

    /// Field case 090.
    #[test]
    fn order_and_white_space_make_no_difference_to_json_and_do_to_bytes() {
        let (one, other) = (
            r#"{"a":1,"b":{"c":2,"d":3}}"#,
            "{\n  \"b\": { \"d\": 3, \"c\": 2 },\n  \"a\": 1\n}\n",
        );
        assert_eq!(json(one), json(other));
        assert!(raw(one).contradicts(raw(other)));
        assert!(json("no json").contradicts(json("no  json")));
    }

    /// Field case 092.
    #[test]
    fn numbers_that_a_double_cannot_tell_apart_differ() {
        for (one, other) in [
            ("9007199254740992", "9007199254740993"),
            ("18446744073709551615", "18446744073709551614"),
            ("0.1", "0.10000000000000000001"),
            ("1e400", "2e400"),
            ("1e-400", "0"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567891",
            ),
        ] {
            let amount = |number: &str| json(&format!(r#"{{"id":"x","amount":{number}}}"#));
            assert!(amount(one).contradicts(amount(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_tombstone_is_not_an_empty_payload() {
        for setting in [Fingerprint::Payload, Fingerprint::CanonicalJson] {
            let (tombstone, empty) = (setting.of(None).unwrap(), setting.of(Some(b"")).unwrap());
            assert!(tombstone.contradicts(empty));
            let null = setting.of(Some(b"null")).unwrap();
            assert!(tombstone.contradicts(null));
        }
    }

    #[test]
    fn another_setting_contradicts_nothing() {
        assert_ne!(raw("1"), json("1"));
        assert!(!raw("1").contradicts(json("2")));
        assert_eq!(Fingerprint::Off.of(Some(b"1")), None);
    }

    #[test]
    fn a_fingerprint_reads_back_as_it_was_written() {
        let written = json("{}");
        let read = Fingerprint16::from_bytes(&written.to_bytes());
        assert_eq!(read, Some(written));
        assert_eq!(Fingerprint16::from_bytes(&[]), None);
        assert_eq!(Fingerprint16::from_bytes(&[1; 16]), None);
        assert_eq!(Fingerprint16::from_bytes(&[1; 18]), None);
    }

    /// What is stored must not change: these were computed with `sha256sum`.
    #[test]
    fn fingerprints_are_the_beginning_of_what_sha256sum_prints() {
        assert_eq!(
            raw("hello").to_string(),
            "payload:2cf24dba5fb0a30e26e83b2ac5b9e29e"
        );
        assert_eq!(
            json(r#"{ "b": 1.0, "a": "\u20ac" }"#).to_string(),
            "canonical-json:2c6fbbec1f6bfa5ea5d93187c7f6960a"
        );
    }
}
