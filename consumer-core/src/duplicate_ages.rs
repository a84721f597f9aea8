//! How old duplicates are when they come: what a window has to be measured by.

use std::collections::BTreeMap;
use std::time::Duration;

/// How many parts a power of two is cut into: ages that share a bucket differ by an eighth at most.
const PARTS: u64 = 8;

/// A histogram of the ages of duplicates, in whole seconds since the first recording of their event.
///
/// Buckets grow with the ages, so it stays small (a few hundred buckets for any ages there are) and
/// is equally sharp for minutes and for weeks. Histograms of several processes add up to one.
///
/// Ages say nothing of duplicates that came after their event was forgotten: nobody knew those for
/// duplicates. Ages that come near to the window are the warning.
///
/// ```
/// # use std::time::Duration;
/// # use oneffect_core::DuplicateAges;
/// let mut ages = DuplicateAges::default();
/// ages.record(Duration::from_secs(2));
/// ages.record(Duration::from_hours(26));
/// assert_eq!(ages.quantile(0.5), Some(Duration::from_secs(2)));
/// assert_eq!(ages.oldest(), Some(Duration::from_hours(26)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuplicateAges {
    buckets: BTreeMap<u16, AgeBucket>,
}

/// Ages that are about the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgeBucket {
    /// Which one it is. Stores add up the counts of equal numbers.
    pub number: u16,
    /// How many duplicates.
    pub count: u64,
    /// The oldest of them, in seconds.
    pub oldest: u64,
}

impl DuplicateAges {
    /// Takes note of a duplicate of that age.
    pub fn record(&mut self, age: Duration) {
        self.record_many(age, 1);
    }

    /// Takes note of so many duplicates, the oldest of which is of that age: for stores, which keep
    /// no more than [`AgeBucket`]s.
    pub fn record_many(&mut self, oldest: Duration, count: u64) {
        let seconds = oldest.as_secs();
        let number = bucket_of(seconds);
        self.add(AgeBucket {
            number,
            count,
            oldest: seconds,
        });
    }

    /// Adds what another histogram holds.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.buckets() {
            self.add(bucket);
        }
    }

    fn add(&mut self, more: AgeBucket) {
        if more.count == 0 {
            return;
        }
        let bucket = self
            .buckets
            .entry(more.number)
            .or_insert(AgeBucket { count: 0, ..more });
        bucket.count = bucket.count.saturating_add(more.count);
        bucket.oldest = bucket.oldest.max(more.oldest);
    }

    /// Whether there was no duplicate.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How many duplicates there were.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.values().map(|bucket| bucket.count);
        counts.fold(0, u64::saturating_add)
    }

    /// The oldest duplicate's age; `None` when there was none.
    pub fn oldest(&self) -> Option<Duration> {
        let last = self.buckets.values().next_back()?;
        Some(Duration::from_secs(last.oldest))
    }

    /// An age that this share of the duplicates (0 to 1) did not exceed, at most an eighth above the
    /// least such age; `None` when there were none.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a share of more duplicates than a float can count is still that share"
    )]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count() as f64;
        let mut seen = 0_u64;
        let reached = self.buckets.values().find(|bucket| {
            seen = seen.saturating_add(bucket.count);
            seen as f64 / count >= share
        });
        reached.map_or_else(
            || self.oldest(),
            |bucket| Some(Duration::from_secs(bucket.oldest)),
        )
    }

    /// What is to be stored, youngest first. Adding up buckets of one number (counts summed, the
    /// oldest kept) merges histograms; [`record_many`](Self::record_many) reads them back.
    pub fn buckets(&self) -> impl Iterator<Item = AgeBucket> + '_ {
        self.buckets.values().copied()
    }
}

/// Seconds below [`PARTS`] have a bucket each; from there on every power of two has so many.
fn bucket_of(seconds: u64) -> u16 {
    let bucket = if seconds < PARTS {
        seconds
    } else {
        let power = u64::from(seconds.ilog2());
        let shift = power - u64::from(PARTS.ilog2());
        let part = (seconds >> shift) - PARTS;
        (shift + 1) * PARTS + part
    };
    // 62 powers of eight parts at most.
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        let mut last = 0;
        for second in 0..100_000 {
            let bucket = bucket_of(second);
            assert!(bucket == last || bucket == last + 1, "{second}");
            last = bucket;
        }
        assert!(bucket_of(u64::MAX) < 512);
    }

    #[test]
    fn no_duplicates_have_no_age() {
        let ages = DuplicateAges::default();
        assert!(ages.is_empty());
        assert_eq!((ages.quantile(0.99), ages.oldest()), (None, None));
        let mut none = DuplicateAges::default();
        none.record_many(seconds(5), 0);
        assert_eq!(none, ages);
    }

    #[test]
    fn a_share_that_is_met_exactly_is_met() {
        let mut ages = DuplicateAges::default();
        ages.record_many(seconds(60), 9_999);
        ages.record(seconds(90_000));
        assert_eq!(ages.quantile(0.9999), Some(seconds(60)));
        assert_eq!(ages.quantile(0.99991), Some(seconds(90_000)));
        assert_eq!(ages.quantile(1.0), ages.oldest());
        assert_eq!(ages.quantile(0.0), Some(seconds(60)));
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let mut ages = DuplicateAges::default();
        ages.record_many(Duration::MAX, u64::MAX);
        ages.record(Duration::MAX);
        ages.record(Duration::ZERO);
        assert_eq!(ages.count(), u64::MAX);
        assert_eq!(ages.oldest(), Some(seconds(u64::MAX)));
    }

    proptest::proptest! {
        #[test]
        fn a_quantile_is_at_most_an_eighth_above_the_truth(
            mut all in proptest::collection::vec(0_u64..10_000_000, 1..200),
            share in 0.0..=1.0_f64,
        ) {
            let mut ages = DuplicateAges::default();
            for age in &all {
                ages.record(seconds(*age));
            }
            all.sort_unstable();
            let met = |n: usize| f64::from(u32::try_from(n).unwrap()) / f64::from(u32::try_from(all.len()).unwrap()) >= share;
            let rank = (1..=all.len()).find(|n| met(*n)).unwrap();
            let (truth, found) = (all[rank - 1], ages.quantile(share).unwrap().as_secs());
            assert!(truth <= found && found <= truth + truth / 8, "{truth} {found}");
        }

        #[test]
        fn histograms_that_are_stored_and_merged_hold_all(
            one in proptest::collection::vec(0_u64..10_000_000, 0..50),
            other in proptest::collection::vec(0_u64..10_000_000, 0..50),
        ) {
            let of = |all: &[u64]| {
                let mut ages = DuplicateAges::default();
                for age in all {
                    ages.record(seconds(*age));
                }
                ages
            };
            let mut merged = DuplicateAges::default();
            for bucket in of(&one).buckets() {
                merged.record_many(seconds(bucket.oldest), bucket.count);
            }
            merged.merge(&of(&other));
            assert_eq!(merged, of(&[one, other].concat()));
        }
    }
}
