//! How old duplicates were.

use std::time::Duration;

use super::bench;
use crate::day::DaysFrom;
use crate::duplicate_ages::DuplicateAges;
use crate::store::Store;
use crate::testing::store_contract::Fixture;

/// [`Store::note_duplicate_ages`]: by many at once, each consumer's apart, whatever they are.
pub async fn ages_of_duplicates_add_up<F: Fixture>() {
    let bench = bench!(F);
    let (store, consumer) = (&bench.store, bench.consumer);
    let other = store
        .open("other", DaysFrom::Id)
        .await
        .expect("another consumer");
    let ages = |ages: &[Duration]| {
        let mut histogram = DuplicateAges::default();
        for age in ages {
            histogram.record(*age);
        }
        histogram
    };
    let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
    let (one, two) = (ages(&[second, day]), ages(&[second, second, day + second]));
    let (far, nothing) = (ages(&[Duration::MAX]), DuplicateAges::default());

    let none = store.duplicate_ages(consumer).await;
    let (a, b, c, d) = tokio::join!(
        store.note_duplicate_ages(consumer, &one),
        store.note_duplicate_ages(consumer, &two),
        store.note_duplicate_ages(other, &far),
        store.note_duplicate_ages(consumer, &nothing),
    );
    for noted in [a, b, c, d] {
        noted.expect("noted");
    }

    assert!(none.expect("no ages").is_empty());
    let mut both = one;
    both.merge(&two);
    assert_eq!(store.duplicate_ages(consumer).await.expect("ages"), both);
    let far = store.duplicate_ages(other).await.expect("ages");
    assert_eq!(far.count(), 1);
    assert!(far.oldest() > Some(day * 1_000_000));
}
