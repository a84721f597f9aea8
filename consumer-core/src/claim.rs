//! What a unit of work claims.

use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::store::{Settled, Verdict};

/// An event key to be claimed, and what is stored with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// What is unique.
    pub key: EventKey,
    /// The fingerprint of the event's content; `None` when none is taken.
    pub fingerprint: Option<Fingerprint16>,
}

impl Claim {
    /// A claim without a fingerprint.
    pub fn new(key: EventKey) -> Self {
        Self {
            key,
            fingerprint: None,
        }
    }

    /// A claim with that fingerprint, if there is one.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: Option<Fingerprint16>) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// The verdict on this claim when its key is settled already: stores pass what stands in the
    /// row. It is a mismatch only if both fingerprints are known and were made under one setting.
    pub fn verdict_on(&self, settled: Settled, stored: Option<Fingerprint16>) -> Verdict {
        match (self.fingerprint, stored) {
            (Some(ours), Some(theirs)) if ours.contradicts(theirs) => Verdict::Mismatch {
                ours,
                theirs,
                settled,
            },
            _ => Verdict::Duplicate(settled),
        }
    }
}

impl From<EventKey> for Claim {
    fn from(key: EventKey) -> Self {
        Self::new(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_key::EventId;
    use crate::fingerprint::Fingerprint;

    const DONE: Settled = Settled::Done { reply: None };

    #[test]
    fn only_another_fingerprint_of_the_same_setting_is_a_mismatch() {
        let of = |setting: Fingerprint, content: &str| setting.of(Some(content.as_bytes()));
        let claim = |fingerprint| {
            let key = EventKey::new(EventId::new("x").unwrap());
            Claim::new(key).with_fingerprint(fingerprint)
        };
        let (payload, json) = (Fingerprint::Payload, Fingerprint::CanonicalJson);
        let ours = claim(of(payload, "1"));
        for harmless in [None, of(payload, "1"), of(json, "1"), of(json, "2")] {
            let verdict = ours.verdict_on(Settled::Dead, harmless);
            assert_eq!(verdict, Verdict::Duplicate(Settled::Dead));
        }
        let mismatch = ours.verdict_on(DONE, of(payload, "2"));
        assert!(matches!(mismatch, Verdict::Mismatch { .. }));
        let unknown = claim(None).verdict_on(DONE, of(payload, "2"));
        assert_eq!(unknown, Verdict::Duplicate(DONE));
    }
}
