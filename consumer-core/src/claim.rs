//! What a unit of work claims.

use std::time::Duration;

use crate::day::Day;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint16;
use crate::store::{Late, Settled, Verdict};

/// An event key to be claimed, and what is stored with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// What is unique.
    pub key: EventKey,
    /// The fingerprint of the event's content; `None` when none is taken.
    pub fingerprint: Option<Fingerprint16>,
    /// The event's own day, which every delivery of it repeats; `None` when it has none, and is
    /// filed under the open period.
    pub day: Option<Day>,
}

impl Claim {
    /// A claim without a fingerprint, of the day that the event id says it is of.
    pub fn new(key: EventKey) -> Self {
        Self {
            day: key.id.day(),
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

    /// A claim of that day, where the user says that the producer repeats a time beside the id.
    #[must_use]
    pub fn of_day(mut self, day: Option<Day>) -> Self {
        self.day = day;
        self
    }

    /// For stores: which day this claim is to be looked for under, `None` for the open period, or
    /// the verdict that settles it without looking. `floor` is the first day that is still
    /// remembered, `today` is by the database's clock. Clocks differ, so tomorrow is believed.
    ///
    /// # Errors
    /// [`Verdict::TooLate`] or [`Verdict::Future`].
    pub fn day_within(&self, late: Late, floor: Day, today: Day) -> Result<Option<Day>, Verdict> {
        let Some(day) = self.day else {
            return Ok(None);
        };
        let last = today.plus(1);
        match late {
            Late::Refuse if day < floor => Err(Verdict::TooLate { day, floor }),
            Late::AsNew if day < floor => Ok(None),
            Late::Refuse | Late::AsNew if day > last => Err(Verdict::Future { day, last }),
            Late::Refuse | Late::AsNew => Ok(Some(day)),
        }
    }

    /// The verdict on this claim when its key is settled already: stores pass what stands in the
    /// row, and how long ago it was recorded by the database's clock. It is a mismatch only if both
    /// fingerprints are known and were made under one setting.
    pub fn verdict_on(
        &self,
        settled: Settled,
        stored: Option<Fingerprint16>,
        age: Duration,
    ) -> Verdict {
        match (self.fingerprint, stored) {
            (Some(ours), Some(theirs)) if ours.contradicts(theirs) => Verdict::Mismatch {
                ours,
                theirs,
                settled,
            },
            _ => Verdict::Duplicate { settled, age },
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

    const AGE: Duration = Duration::from_secs(7);
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
            let verdict = ours.verdict_on(Settled::Dead, harmless, AGE);
            let (settled, age) = (Settled::Dead, AGE);
            assert_eq!(verdict, Verdict::Duplicate { settled, age });
        }
        let mismatch = ours.verdict_on(DONE, of(payload, "2"), AGE);
        assert!(matches!(mismatch, Verdict::Mismatch { .. }));
        let unknown = claim(None).verdict_on(DONE, of(payload, "2"), AGE);
        let (settled, age) = (DONE, AGE);
        assert_eq!(unknown, Verdict::Duplicate { settled, age });
    }
}
