//! The crash guard's marks.

use std::slice::from_ref;
use std::time::Duration;

use super::bench;
use crate::crash_guard::{Mark, ProcessId};
use crate::event_key::{EventKey, Tenant};
use crate::store::{ConsumerId, Store, Unit};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{Bench, claims, drop_at, key, keys};

impl<F: Fixture> Bench<F> {
    async fn mark(&self, process: ProcessId, keys: &[EventKey]) -> Vec<bool> {
        let marked = self.store.mark(self.consumer, process, keys).await;
        marked.expect("keys are marked")
    }

    async fn found(&self, consumer: ConsumerId, key: &EventKey) -> Option<Mark> {
        let found = self.store.find_mark(consumer, key).await;
        found.expect("a mark is looked for")
    }

    async fn put(&self, key: &EventKey, mark: Mark) {
        let put = self.store.put_mark(self.consumer, key, mark).await;
        put.expect("a mark is put");
    }
}

fn company(process: ProcessId) -> Mark {
    Mark {
        process,
        alone: false,
        crashes: 0,
    }
}

/// [`Store::mark`]: each answer belongs to its key, in whatever order they are asked for.
pub async fn what_another_process_has_marked_is_not_marked_again<F: Fixture>() {
    let bench = bench!(F);
    let (dead, ours) = (ProcessId::new(), ProcessId::new());
    let all = keys(0..200);
    let theirs: Vec<_> = all.iter().step_by(3).cloned().collect();
    assert_eq!(bench.mark(dead, &theirs).await, vec![true; theirs.len()]);
    let mut asked = all;
    asked.reverse();

    let marked = bench.mark(ours, &asked).await;

    let expected: Vec<_> = asked.iter().map(|key| !theirs.contains(key)).collect();
    assert_eq!(marked, expected);
    assert_eq!(bench.mark(ours, &asked).await, expected, "ours are ours");
    assert_eq!(
        bench.found(bench.consumer, &theirs[0]).await,
        Some(company(dead)),
        "it stays as it is"
    );
    assert_eq!(bench.mark(ours, &[]).await, [] as [bool; 0]);
}

/// [`Store::mark`]: what this process has found to be under suspicion stays so.
pub async fn an_own_mark_that_says_more_than_company_is_not_marked_again<F: Fixture>() {
    let bench = bench!(F);
    let ours = ProcessId::new();
    let marks = [(true, 0), (false, 1), (true, 2)].map(|(alone, crashes)| Mark {
        process: ours,
        alone,
        crashes,
    });
    for mark in marks {
        bench.put(&key("x"), mark).await;
        assert_eq!(bench.mark(ours, &[key("x")]).await, [false]);
        assert_eq!(bench.found(bench.consumer, &key("x")).await, Some(mark));
    }
}

/// [`Store::put_mark`] and [`Store::find_mark`].
pub async fn a_mark_is_put_over_what_is_there<F: Fixture>() {
    let bench = bench!(F);
    assert_eq!(bench.found(bench.consumer, &key("x")).await, None);
    let mut mark = Mark {
        process: ProcessId::new(),
        alone: true,
        crashes: 0,
    };
    for crashes in [0, 1, 7] {
        mark = Mark {
            process: ProcessId::new(),
            crashes,
            ..mark
        };
        bench.put(&key("x"), mark).await;
        assert_eq!(bench.found(bench.consumer, &key("x")).await, Some(mark));
    }
}

/// [`Store::unmark`] and [`Unit::unmark`].
pub async fn a_process_removes_only_its_own_marks<F: Fixture>() {
    let bench = bench!(F);
    let (ours, other) = (ProcessId::new(), ProcessId::new());
    let (mine, theirs) = (key("mine"), key("theirs"));
    let both = [theirs.clone(), mine.clone(), key("nobody's")];
    for in_unit in [false, true] {
        bench.mark(ours, from_ref(&mine)).await;
        bench.mark(other, from_ref(&theirs)).await;
        if in_unit {
            let mut unit = bench.begin().await;
            unit.unmark(ours, &both).await.expect("marks are removed");
            unit.commit().await.expect("the unit commits");
        } else {
            let unmarked = bench.store.unmark(bench.consumer, ours, &both).await;
            unmarked.expect("marks are removed");
        }
        assert_eq!(bench.found(bench.consumer, &mine).await, None);
        let left = bench.found(bench.consumer, &theirs).await;
        assert_eq!(left, Some(company(other)));
    }
}

/// [`Unit::unmark`]: the marks go with what the unit settles, or stay with it.
pub async fn marks_are_removed_with_the_unit_or_not_at_all<F: Fixture>() {
    let bench = bench!(F);
    let ours = ProcessId::new();
    bench.mark(ours, &[key("x")]).await;

    let mut undone = bench.begin().await;
    undone
        .claim(&claims(&[key("x")]))
        .await
        .expect("a claim is answered");
    undone
        .unmark(ours, &[key("x")])
        .await
        .expect("it is removed");
    undone.rollback().await;
    let kept = bench.found(bench.consumer, &key("x")).await;
    assert_eq!(kept, Some(company(ours)));

    let mut done = bench.begin().await;
    done.claim(&claims(&[key("x")]))
        .await
        .expect("a claim is answered");
    done.unmark(ours, &[key("x")]).await.expect("it is removed");
    done.commit().await.expect("the unit commits");
    assert_eq!(bench.found(bench.consumer, &key("x")).await, None);
}

/// A mark is no claim: it waits for nobody who holds the key, and nobody waits for it. (Where there
/// is one writer, it waits for that.)
pub async fn a_mark_and_a_claim_are_not_in_each_others_way<F: Fixture>() {
    let bench = bench!(F);
    if !F::CONCURRENT_UNITS {
        return;
    }
    let (ours, other) = (ProcessId::new(), ProcessId::new());
    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")]))
        .await
        .expect("a claim is answered");
    let x = [key("x")];
    let marked = tokio::time::timeout(Duration::from_secs(10), bench.mark(ours, &x));
    assert_eq!(marked.await.expect("nobody is waited for"), [true]);
    bench.put(&key("x"), company(other)).await;
    unit.commit().await.expect("the unit commits");
}

/// Tenants and consumers tell marks apart, as they do keys.
pub async fn marks_are_of_one_tenant_and_one_consumer<F: Fixture>() {
    let bench = bench!(F);
    let process = ProcessId::new();
    let of = |tenant: &str| EventKey {
        tenant: Tenant::new(tenant).expect("a usable tenant"),
        ..key("x")
    };
    bench.mark(process, &[of("a")]).await;
    let other = ProcessId::new();
    assert_eq!(
        bench.mark(other, &[of("a"), of("b"), of("")]).await,
        [false, true, true]
    );
    let days = crate::day::DaysFrom::Id;
    let audit = bench.store.open("audit", days).await.expect("it opens");
    assert_eq!(bench.found(audit, &of("a")).await, None);
}

/// A mark that is dropped on its way is there or not, and leaves the store usable.
pub async fn a_mark_dropped_at_any_await_point_leaves_the_store_usable<F: Fixture>() {
    let bench = bench!(F);
    let process = ProcessId::new();
    for polls in 1..200 {
        let marked = drop_at(polls, bench.mark(process, &keys(0..3))).await;
        bench.expect_clean_pool().await;
        if marked.is_some() {
            assert_eq!(bench.mark(process, &keys(0..3)).await, [true; 3]);
            return;
        }
    }
    panic!("it never came to an end");
}
