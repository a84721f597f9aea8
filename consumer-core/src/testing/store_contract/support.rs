//! What the clauses have in common.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::Fixture;
use crate::claim::Claim;
use crate::day::DaysFrom;
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::delivery::{AssignmentId, Delivery, Headers, Position};
use crate::event_key::{EventId, EventKey};
use crate::store::{Begin, ConsumerId, Prior, Settled, Store, StoreError, Unit, Verdict};

/// A database, its store, and a consumer that is open.
pub(super) struct Bench<F: Fixture> {
    pub(super) fixture: F,
    pub(super) store: F::Store,
    pub(super) consumer: ConsumerId,
}

pub(super) type UnitOf<F> = <<F as Fixture>::Store as Store>::Unit;

impl<F: Fixture> Bench<F> {
    pub(super) async fn fresh() -> Option<Self> {
        let fixture = F::fresh().await?;
        let store = fixture.store();
        let consumer = store
            .open("ledger", DaysFrom::Id)
            .await
            .expect("a migrated database opens");
        Some(Self {
            fixture,
            store,
            consumer,
        })
    }

    /// A unit that waits for its keys for as long as a slow machine may take.
    pub(super) async fn begin(&self) -> UnitOf<F> {
        self.begin_for(self.consumer).await
    }

    pub(super) async fn begin_for(&self, consumer: ConsumerId) -> UnitOf<F> {
        let mut begin = Begin::new(consumer);
        begin.claim_wait = Duration::from_secs(30);
        self.store.begin(begin).await.expect("a unit begins")
    }

    /// Claims in a unit that is rolled back: what the world looks like.
    pub(super) async fn look(&self, keys: &[EventKey]) -> Vec<Verdict> {
        let mut unit = self.begin().await;
        let verdicts = unit
            .claim(&claims(keys))
            .await
            .expect("a claim is answered");
        unit.rollback().await;
        ageless(verdicts)
    }

    pub(super) async fn look_one(&self, key: &EventKey) -> Verdict {
        self.look(std::slice::from_ref(key)).await.remove(0)
    }

    /// Claims, writes each key's effect, and commits.
    pub(super) async fn settle(&self, keys: &[EventKey]) {
        let mut unit = self.begin().await;
        assert_eq!(
            unit.claim(&claims(keys))
                .await
                .expect("a claim is answered"),
            fresh(keys.len())
        );
        for key in keys {
            F::write_effect(unit.connection(), &key.to_string()).await;
        }
        unit.commit().await.expect("the unit commits");
    }

    pub(super) async fn set_aside(&self, letters: &[DeadLetter]) {
        let mut unit = self.begin().await;
        unit.set_aside(letters).await.expect("letters are written");
        unit.commit().await.expect("the unit commits");
    }

    /// Waits until no connection is left in a transaction.
    pub(super) async fn expect_clean_pool(&self) {
        for _ in 0..600 {
            if self.fixture.idle_in_transaction().await == 0 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("a connection stays in a transaction");
    }
}

pub(super) fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).expect("a usable id"))
}

pub(super) fn keys(numbers: std::ops::Range<usize>) -> Vec<EventKey> {
    numbers
        .map(|number| key(&format!("event-{number:04}")))
        .collect()
}

/// Claims without fingerprints.
pub(super) fn claims(keys: &[EventKey]) -> Vec<Claim> {
    keys.iter().cloned().map(Claim::new).collect()
}

pub(super) fn fresh(how_many: usize) -> Vec<Verdict> {
    vec![Verdict::Fresh(Prior::default()); how_many]
}

/// The outcome of most events.
pub(super) const DONE: Settled = Settled::Done { reply: None };

pub(super) const DUPLICATE: Verdict = duplicate(DONE);

/// A duplicate as [`ageless`] leaves it.
pub(super) const fn duplicate(settled: Settled) -> Verdict {
    let age = Duration::ZERO;
    Verdict::Duplicate { settled, age }
}

/// Verdicts without the ages of duplicates, which no two runs share.
pub fn ageless(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    for verdict in &mut verdicts {
        if let Verdict::Duplicate { age, .. } = verdict {
            *age = Duration::ZERO;
        }
    }
    verdicts
}

pub(super) fn delivery(offset: i64, payload: Option<&'static [u8]>) -> Delivery {
    let position = Position::Log {
        topic: "transfers".into(),
        partition: 3,
        offset,
    };
    Delivery::new(
        position,
        AssignmentId(1),
        0,
        payload.map(Bytes::from_static),
    )
}

pub(super) fn letter(offset: i64) -> DeadLetter {
    let delivery = delivery(offset, Some(b"{}"));
    DeadLetter::new(&delivery, None, DeadLetterKind::Poison, 0, "unreadable")
}

pub(super) fn headers() -> Headers {
    let mut headers = Headers::default();
    headers.push("trace", Some(Bytes::from_static(b"00-4bf92f")));
    headers.push("trace", Some(Bytes::from_static(b"nul\0nul")));
    headers.push("binary", Some(Bytes::from_static(b"\xff\x00\xfe")));
    headers.push("none", None);
    headers.push("empty", Some(Bytes::new()));
    headers.push("a\0name", Some(Bytes::from_static("caf\u{e9}".as_bytes())));
    headers
}

/// Polls a future until it waits for the `n`th time, and then drops it.
pub(super) async fn drop_at<T>(n: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => {
            waits += 1;
            if waits == n {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

/// A rival's claim is under way while this sleeps. Nothing depends on how long it is; shorter, and
/// the test would show less.
pub(super) async fn let_the_rival_wait() {
    sleep(Duration::from_millis(150)).await;
}

pub(super) fn is_rolled_back(result: &Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::RolledBack(_)))
}
