//! Each fault leaves behind what it says.

use super::*;
use crate::event_key::EventId;
use crate::testing::MemoryStore;

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

/// Claims `a` and writes a row for it when it is fresh.
async fn run(store: &Unreliable<MemoryStore>) -> Result<(), StoreError> {
    let consumer = store.open("ledger", DaysFrom::Id).await?;
    let mut unit = store.begin(Begin::new(consumer)).await?;
    if let [Verdict::Fresh(_)] = unit.claim(&[key("a").into()]).await?.as_slice() {
        unit.connection()
            .append("entries", "a")
            .await
            .map_err(StoreError::rolled_back)?;
    }
    unit.commit().await
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_commit_running_again_makes_the_effect_one() {
    let late = Fault::LateCommit(Duration::from_millis(100));
    let cases = [
        (Fault::BeforeCommit, false, 0),
        (Fault::DuringCommit, false, 0),
        (Fault::LostBefore, true, 0),
        (Fault::AfterCommit, true, 1),
        (late, true, 0),
    ];
    for (fault, indeterminate, rows_meanwhile) in cases {
        let store = Unreliable::new(MemoryStore::new());
        store.fail_next_commit(fault);

        let first = run(&store).await;
        let meanwhile = store.inner().rows("entries").len();
        let second = run(&store).await;

        let unknown = matches!(first, Err(StoreError::Indeterminate(_)));
        assert_eq!(
            (unknown, meanwhile),
            (indeterminate, rows_meanwhile),
            "{fault:?}"
        );
        assert!(second.is_ok(), "{fault:?}");
        assert_eq!(store.inner().rows("entries"), ["a"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scripted_call_fails_once_and_blames_whom_it_was_told_to() {
    let store = Unreliable::new(MemoryStore::new());
    store.fail_next(Call::Claim, Blame::Contention);

    let first = run(&store).await;
    let second = run(&store).await;

    let Err(StoreError::RolledBack(cause)) = first else {
        panic!("{first:?}")
    };
    assert_eq!(store.blame(&*cause), Some(Blame::Contention));
    assert!(second.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_faults() {
    async fn faults(seed: u64) -> Vec<Injected> {
        let store = Unreliable::with_probability(MemoryStore::new(), seed, 0.3);
        for _ in 0..100 {
            let _ = run(&store).await;
        }
        store.injected()
    }

    let (first, again, other) = (faults(7).await, faults(7).await, faults(8).await);

    assert!(first.len() > 20);
    assert_eq!(first, again);
    assert_ne!(first, other);
}
