//! Dead letters.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::bench;
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::delivery::{AssignmentId, Delivery, Position};
use crate::event_key::{EventKey, Tenant};
use crate::store::Unit;
use crate::testing::store_contract::support::{delivery, headers, key, letter};
use crate::testing::store_contract::{Fixture, StoredLetter};

/// [`Unit::set_aside`]; field cases 084 and 086.
pub async fn a_dead_letter_keeps_everything<F: Fixture>() {
    let bench = bench!(F);
    let event = EventKey {
        tenant: Tenant::new("acme").expect("a usable tenant"),
        ..key("x\0y")
    };
    let mut with_all = delivery(7, Some(b"\xff\0{"));
    with_all.key = Some(Bytes::from_static(b"\0k"));
    with_all.headers = headers();
    with_all.published_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let mut tombstone = delivery(8, None);
    tombstone.key = Some(Bytes::new());
    let queued = Position::Queue {
        queue: "orders".into(),
        message_id: "5fea7756-0ea4-451a-a703-a558b933e274".into(),
    };
    let empty = Delivery::new(queued, AssignmentId(1), 0, Some(Bytes::new()));
    let (exhausted, poison) = (DeadLetterKind::Exhausted, DeadLetterKind::Poison);

    bench
        .set_aside(&[
            DeadLetter::new(&with_all, Some(event.clone()), exhausted, 5, "it\nfailed"),
            DeadLetter::new(&tombstone, None, poison, 0, "no id"),
            DeadLetter::new(&empty, None, poison, 0, "no id"),
        ])
        .await;

    let mut stored = bench.fixture.dead_letters().await;
    stored.sort_by_key(|letter| (letter.payload.is_none(), letter.source.clone()));
    let plain = StoredLetter {
        kind: "poison".into(),
        event: None,
        source: "orders".into(),
        key: None,
        payload: Some(Bytes::new()),
        headers: crate::Headers::default(),
        published_at: None,
        attempts: 0,
        error: "no id".into(),
        deliveries: 1,
    };
    let whole = StoredLetter {
        kind: "exhausted".into(),
        event: Some(event),
        source: "transfers".into(),
        key: Some(Bytes::from_static(b"\0k")),
        payload: Some(Bytes::from_static(b"\xff\0{")),
        headers: headers(),
        published_at: Some(1_700_000_000),
        attempts: 5,
        error: "it\nfailed".into(),
        deliveries: 1,
    };
    let null = StoredLetter {
        source: "transfers".into(),
        key: Some(Bytes::new()),
        payload: None,
        ..plain.clone()
    };
    assert_eq!(stored, [plain, whole, null]);
}

/// [`Unit::set_aside`], also for one letter twice in a batch, as a queue may have it.
pub async fn a_dead_letter_that_is_set_aside_again_counts_once_more<F: Fixture>() {
    let bench = bench!(F);

    bench.set_aside(&[letter(1), letter(2), letter(1)]).await;
    bench.set_aside(&[letter(1)]).await;

    let stored = bench.fixture.dead_letters().await;
    let mut deliveries: Vec<u32> = stored.iter().map(|letter| letter.deliveries).collect();
    deliveries.sort_unstable();
    assert_eq!(deliveries, [1, 3]);
}

/// Clause 4.
pub async fn a_dead_letter_commits_with_its_unit_or_not_at_all<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.set_aside(&[letter(1)]).await.expect("set aside");
    unit.rollback().await;

    assert!(bench.fixture.dead_letters().await.is_empty());
}

/// Producers stamp what they like; a letter that cannot be written would hold its lane for ever.
pub async fn a_dead_letter_can_be_written_whatever_its_time<F: Fixture>() {
    let bench = bench!(F);
    let at = |millis: u64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    let times = [
        at(0),
        at(253_402_300_800_000),
        at(1_700_000_000_000_000),
        at(u64::MAX / 2),
        SystemTime::UNIX_EPOCH.checked_sub(Duration::from_millis(1)),
        SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 40)),
    ];

    for (offset, published_at) in (0..).zip(times) {
        let mut delivery = delivery(offset, None);
        delivery.published_at = published_at;
        let kind = DeadLetterKind::Poison;
        let letter = DeadLetter::new(&delivery, None, kind, 0, "no id");
        bench.set_aside(&[letter]).await;
    }

    assert_eq!(bench.fixture.dead_letters().await.len(), times.len());
}
