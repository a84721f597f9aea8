//! What the contract suite does not reach: the ways in which this double can be made to fail.

use std::task::Poll;

use tokio::time::Instant;

use super::*;
use crate::claim::Claim;
use crate::event_key::EventId;
use crate::fingerprint::Fingerprint;
use crate::store::{Unit, Verdict};

const DONE: Settled = Settled::Done { reply: None };

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

fn claim(id: &str) -> Claim {
    Claim::new(key(id))
}

async fn begin(store: &MemoryStore) -> MemoryUnit {
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    store.begin(Begin::new(consumer)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_open_units_without_a_trace() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.claim(&[claim("a")]).await.unwrap();
    unit.connection().append("entries", "a").await.unwrap();

    store.set_down(true);
    let during = store.begin(Begin::new(ConsumerId(0))).await;
    store.set_down(false);

    let StoreError::RolledBack(cause) = during.unwrap_err() else {
        panic!("nothing has begun")
    };
    assert_eq!(store.blame(&*cause), Some(Blame::Outage));
    assert!(unit.commit().await.is_err());
    assert_eq!(store.rows("entries"), [""; 0]);
    assert!(matches!(
        begin(&store).await.claim(&[claim("a")]).await.as_deref(),
        Ok([Verdict::Fresh(_)])
    ));
    assert_eq!(store.open_units(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_as_long_as_it_was_told_to() {
    let store = MemoryStore::new();
    let mut holder = begin(&store).await;
    holder.claim(&[claim("a")]).await.unwrap();
    let mut rival = begin(&store).await;

    let begun = Instant::now();
    let verdict = rival.claim(&[claim("a")]).await;

    assert!(matches!(verdict, Err(StoreError::Busy)));
    // The clock is paused: nothing but the wait moves it. Timers have a grain of 1 ms.
    assert_eq!(begun.elapsed().as_millis() / 10, 50);
}

#[tokio::test(start_paused = true)]
async fn of_two_transactions_that_wait_for_one_another_one_gives_way() {
    let store = MemoryStore::new();
    let (mut one, mut other) = (begin(&store).await, begin(&store).await);
    one.connection()
        .insert_unique("accounts", "x")
        .await
        .unwrap();
    other
        .connection()
        .insert_unique("accounts", "y")
        .await
        .unwrap();

    let begun = Instant::now();
    let (first, second) = tokio::join!(
        async {
            let result = one.connection().insert_unique("accounts", "y").await;
            drop(one);
            result
        },
        async {
            let result = other.connection().insert_unique("accounts", "x").await;
            drop(other);
            result
        },
    );

    let results = [first, second];
    assert_eq!(
        begun.elapsed(),
        Duration::ZERO,
        "it was seen, not waited for"
    );
    assert!(results.contains(&Ok(())));
    assert!(results.contains(&Err(MemoryError::Deadlock)));
}

#[tokio::test(start_paused = true)]
async fn a_unique_row_is_refused_while_an_equal_one_stays() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.write(&[MemoryRow::unique("accounts", "x")])
        .await
        .unwrap();
    unit.savepoint().await.unwrap();

    let again = unit.write(&[MemoryRow::unique("accounts", "x")]).await;
    let after = unit.connection().rows("accounts").await;
    unit.rollback_to_savepoint().await.unwrap();
    unit.commit().await.unwrap();

    assert!(matches!(again, Err(StoreError::RolledBack(_))));
    assert_eq!(after, Err(MemoryError::Aborted));
    assert_eq!(store.rows("accounts"), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_transaction_does_not_commit() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.claim(&[claim("a")]).await.unwrap();
    unit.connection().append("entries", "before").await.unwrap();
    let bad_value = MemoryError::BadValue("a swallowed error".into());
    let _ = unit.connection().fail(bad_value).await;

    let committed = unit.commit().await;

    assert!(matches!(committed, Err(StoreError::RolledBack(_))));
    assert_eq!(
        (store.inbox("ledger").len(), store.rows("entries").len()),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_commits_is_found_out() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.claim(&[claim("a")]).await.unwrap();
    unit.connection().end_with_commit().await.unwrap();
    unit.connection().append("entries", "after").await.unwrap();

    let committed = unit.commit().await;

    assert!(matches!(
        committed,
        Err(StoreError::HandlerEndedTransaction)
    ));
    assert_eq!(store.outcome("ledger", &key("a")), Some(DONE));
    assert_eq!(store.rows("entries"), ["after"]);
}

/// Design, invariant 2.
#[tokio::test(start_paused = true)]
async fn a_rival_waits_and_is_fresh_when_the_first_gives_way() {
    for commits in [true, false] {
        for unclaims in [true, false] {
            let store = MemoryStore::new();
            let (mut first, mut rival) = (begin(&store).await, begin(&store).await);
            first.claim(&[claim("a"), claim("b")]).await.unwrap();

            let both = [claim("b"), claim("a")];
            let end_first = async {
                if unclaims {
                    first.unclaim(&[key("a")]).await.unwrap();
                }
                if commits {
                    first.commit().await.unwrap();
                } else {
                    first.rollback().await;
                }
            };
            let (verdicts, ()) = tokio::join!(rival.claim(&both), end_first);

            let fresh = || Verdict::Fresh(Prior::default());
            let duplicate = || Verdict::Duplicate {
                settled: DONE,
                age: Duration::ZERO,
            };
            let b = if commits { duplicate() } else { fresh() };
            let a = if commits && !unclaims {
                duplicate()
            } else {
                fresh()
            };
            assert_eq!(
                verdicts.unwrap(),
                [b, a],
                "commits: {commits}, unclaims: {unclaims}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_leaves_the_row_as_it_was() {
    let of = |content: &'static str, setting: Fingerprint| {
        claim("a").with_fingerprint(setting.of(Some(content.as_bytes())))
    };
    let store = MemoryStore::new();
    let first = of("one", Fingerprint::Payload);
    let mut unit = begin(&store).await;
    unit.claim(std::slice::from_ref(&first)).await.unwrap();
    unit.commit().await.unwrap();

    for other in [
        of("other", Fingerprint::Payload),
        of("one", Fingerprint::Payload),
        of("other", Fingerprint::CanonicalJson),
        of("other", Fingerprint::Off),
    ] {
        let mut unit = begin(&store).await;
        let verdicts = unit.claim(std::slice::from_ref(&other)).await.unwrap();
        unit.commit().await.unwrap();

        let expected = other.verdict_on(DONE, first.fingerprint, Duration::ZERO);
        assert_eq!(verdicts, [expected]);
        let stored = store.fingerprint("ledger", &key("a"));
        assert_eq!(stored, first.fingerprint);
    }
}

/// Design, invariants 1 and 15: a future dropped at any await point leaves all or nothing.
#[tokio::test(start_paused = true)]
async fn a_unit_dropped_anywhere_leaves_all_or_nothing() {
    async fn unit(store: &MemoryStore) {
        let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
        store
            .charge(consumer, &key("a"), "once", Duration::ZERO)
            .await
            .unwrap();
        let mut unit = begin(store).await;
        unit.claim(&[claim("a"), claim("b")]).await.unwrap();
        unit.write(&[MemoryRow::new("entries", "staged")])
            .await
            .unwrap();
        unit.savepoint().await.unwrap();
        unit.connection().append("entries", "undone").await.unwrap();
        unit.rollback_to_savepoint().await.unwrap();
        unit.savepoint().await.unwrap();
        unit.connection()
            .insert_unique("entries", "kept")
            .await
            .unwrap();
        unit.release_savepoint().await.unwrap();
        let reason = "no".into();
        unit.record(&[(key("b"), Settled::Rejected { reason })])
            .await
            .unwrap();
        unit.forget_attempts(&[key("a")]).await.unwrap();
        unit.commit().await.unwrap();
    }
    let mut dropped_at = 0;
    let committed = loop {
        let store = MemoryStore::new();
        let mut polls = 0;
        let mut unit = Box::pin(unit(&store));
        let ended = std::future::poll_fn(|cx| match unit.as_mut().poll(cx) {
            Poll::Pending if polls < dropped_at => {
                polls += 1;
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(false),
            Poll::Ready(()) => Poll::Ready(true),
        });
        let ended = ended.await;
        drop(unit);
        let left = (store.inbox("ledger").len(), store.rows("entries"));
        assert_eq!(store.open_units(), 0);
        if ended {
            break left;
        }
        let all_or_nothing = left == (0, vec![]) || left.0 == 2 && left.1 == ["staged", "kept"];
        assert!(all_or_nothing, "dropped at {dropped_at}: {left:?}");
        dropped_at += 1;
    };
    assert!(dropped_at > 10);
    assert_eq!(committed, (2, vec!["staged".to_owned(), "kept".to_owned()]));
}
