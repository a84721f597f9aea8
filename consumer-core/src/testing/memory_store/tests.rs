//! What the contract suite does not reach: the ways in which this double can be made to fail.

use tokio::time::Instant;

use super::*;
use crate::event_key::EventId;
use crate::store::{Unit, Verdict};

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

async fn begin(store: &MemoryStore) -> MemoryUnit {
    let consumer = store.open("ledger").await.unwrap();
    store.begin(Begin::new(consumer)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_open_units_without_a_trace() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.claim(&[key("a")]).await.unwrap();
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
        begin(&store).await.claim(&[key("a")]).await.as_deref(),
        Ok([Verdict::Fresh(_)])
    ));
    assert_eq!(store.open_units(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_as_long_as_it_was_told_to() {
    let store = MemoryStore::new();
    let mut holder = begin(&store).await;
    holder.claim(&[key("a")]).await.unwrap();
    let mut rival = begin(&store).await;

    let begun = Instant::now();
    let verdict = rival.claim(&[key("a")]).await;

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
    assert!(results.contains(&Ok(())));
    assert!(results.contains(&Err(MemoryError::Deadlock)));
}

#[tokio::test(start_paused = true)]
async fn a_unique_row_is_refused_while_an_equal_one_stays() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.write(vec![MemoryRow::unique("accounts", "x")])
        .await
        .unwrap();
    unit.savepoint().await.unwrap();

    let again = unit.write(vec![MemoryRow::unique("accounts", "x")]).await;
    let after = unit.connection().rows("accounts").await;
    unit.rollback_to_savepoint().await.unwrap();
    unit.commit().await.unwrap();

    assert!(matches!(again, Err(StoreError::RolledBack(_))));
    assert_eq!(after, Err(MemoryError::Aborted));
    assert_eq!(store.rows("accounts"), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_commits_is_found_out() {
    let store = MemoryStore::new();
    let mut unit = begin(&store).await;
    unit.claim(&[key("a")]).await.unwrap();
    unit.connection().end_with_commit().await.unwrap();
    unit.connection().append("entries", "after").await.unwrap();

    let committed = unit.commit().await;

    assert!(matches!(
        committed,
        Err(StoreError::HandlerEndedTransaction)
    ));
    assert_eq!(store.outcome("ledger", &key("a")), Some(Settled::Done));
    assert_eq!(store.rows("entries"), ["after"]);
}
