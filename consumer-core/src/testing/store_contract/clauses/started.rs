//! What the crash guard writes down.

use std::slice::from_ref;
use std::time::Duration;

use super::bench;
use crate::crash_guard::{ProcessId, Started};
use crate::event_key::{EventKey, Tenant};
use crate::store::{ConsumerId, Store, Unit};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{Bench, claims, drop_at, key, keys};

impl<F: Fixture> Bench<F> {
    async fn note(&self, process: ProcessId, keys: &[EventKey]) -> Vec<bool> {
        let noted = self.store.note_started(self.consumer, process, keys).await;
        noted.expect("starts are written down")
    }

    async fn found(&self, consumer: ConsumerId, key: &EventKey) -> Option<Started> {
        let found = self.store.find_started(consumer, key).await;
        found.expect("a start is looked for")
    }

    async fn put(&self, key: &EventKey, started: Started) {
        let put = self.store.put_started(self.consumer, key, started).await;
        put.expect("a start is put");
    }
}

fn company(process: ProcessId) -> Started {
    Started {
        process,
        alone: false,
        crashes: 0,
    }
}

/// [`Store::note_started`]: each answer belongs to its key, in whatever order they are asked for.
pub async fn what_another_process_has_started_is_not_noted_again<F: Fixture>() {
    let bench = bench!(F);
    let (dead, ours) = (ProcessId::new(), ProcessId::new());
    let all = keys(0..200);
    let theirs: Vec<_> = all.iter().step_by(3).cloned().collect();
    assert_eq!(bench.note(dead, &theirs).await, vec![true; theirs.len()]);
    let mut asked = all;
    asked.reverse();

    let noted = bench.note(ours, &asked).await;

    let expected: Vec<_> = asked.iter().map(|key| !theirs.contains(key)).collect();
    assert_eq!(noted, expected);
    assert_eq!(bench.note(ours, &asked).await, expected, "ours are ours");
    assert_eq!(
        bench.found(bench.consumer, &theirs[0]).await,
        Some(company(dead)),
        "it stays as it is"
    );
    assert_eq!(bench.note(ours, &[]).await, [] as [bool; 0]);
}

/// [`Store::note_started`]: what this process has found to be under suspicion stays so.
pub async fn an_own_start_that_says_more_than_company_is_not_noted_again<F: Fixture>() {
    let bench = bench!(F);
    let ours = ProcessId::new();
    let starts = [(true, 0), (false, 1), (true, 2)].map(|(alone, crashes)| Started {
        process: ours,
        alone,
        crashes,
    });
    for started in starts {
        bench.put(&key("x"), started).await;
        assert_eq!(bench.note(ours, &[key("x")]).await, [false]);
        assert_eq!(bench.found(bench.consumer, &key("x")).await, Some(started));
    }
}

/// [`Store::put_started`] and [`Store::find_started`].
pub async fn a_start_is_put_over_what_is_there<F: Fixture>() {
    let bench = bench!(F);
    assert_eq!(bench.found(bench.consumer, &key("x")).await, None);
    let mut started = Started {
        process: ProcessId::new(),
        alone: true,
        crashes: 0,
    };
    for crashes in [0, 1, 7] {
        started = Started {
            process: ProcessId::new(),
            crashes,
            ..started
        };
        bench.put(&key("x"), started).await;
        assert_eq!(bench.found(bench.consumer, &key("x")).await, Some(started));
    }
}

/// [`Store::forget_started`] and [`Unit::forget_started`].
pub async fn a_process_forgets_only_its_own_starts<F: Fixture>() {
    let bench = bench!(F);
    let (ours, other) = (ProcessId::new(), ProcessId::new());
    let (mine, theirs) = (key("mine"), key("theirs"));
    let both = [theirs.clone(), mine.clone(), key("nobody's")];
    for in_unit in [false, true] {
        bench.note(ours, from_ref(&mine)).await;
        bench.note(other, from_ref(&theirs)).await;
        if in_unit {
            let mut unit = bench.begin().await;
            unit.forget_started(ours, &both)
                .await
                .expect("starts are forgotten");
            unit.commit().await.expect("the unit commits");
        } else {
            let forgotten = bench
                .store
                .forget_started(bench.consumer, ours, &both)
                .await;
            forgotten.expect("starts are forgotten");
        }
        assert_eq!(bench.found(bench.consumer, &mine).await, None);
        let left = bench.found(bench.consumer, &theirs).await;
        assert_eq!(left, Some(company(other)));
    }
}

/// [`Unit::forget_started`]: it goes with what the unit settles, or stays with it.
pub async fn a_start_is_forgotten_with_the_unit_or_not_at_all<F: Fixture>() {
    let bench = bench!(F);
    let ours = ProcessId::new();
    bench.note(ours, &[key("x")]).await;

    let mut undone = bench.begin().await;
    undone
        .claim(&claims(&[key("x")]))
        .await
        .expect("a claim is answered");
    undone
        .forget_started(ours, &[key("x")])
        .await
        .expect("it is forgotten");
    undone.rollback().await;
    let kept = bench.found(bench.consumer, &key("x")).await;
    assert_eq!(kept, Some(company(ours)));

    let mut done = bench.begin().await;
    done.claim(&claims(&[key("x")]))
        .await
        .expect("a claim is answered");
    done.forget_started(ours, &[key("x")])
        .await
        .expect("it is forgotten");
    done.commit().await.expect("the unit commits");
    assert_eq!(bench.found(bench.consumer, &key("x")).await, None);
}

/// To have started is no claim: it waits for nobody who holds the key, and nobody waits for it. (Where there
/// is one writer, it waits for that.)
pub async fn a_start_and_a_claim_are_not_in_each_others_way<F: Fixture>() {
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
    let noted = tokio::time::timeout(Duration::from_secs(10), bench.note(ours, &x));
    assert_eq!(noted.await.expect("nobody is waited for"), [true]);
    bench.put(&key("x"), company(other)).await;
    unit.commit().await.expect("the unit commits");
}

/// Tenants and consumers tell starts apart, as they do keys.
pub async fn starts_are_of_one_tenant_and_one_consumer<F: Fixture>() {
    let bench = bench!(F);
    let process = ProcessId::new();
    let of = |tenant: &str| EventKey {
        tenant: Tenant::new(tenant).expect("a usable tenant"),
        ..key("x")
    };
    bench.note(process, &[of("a")]).await;
    let other = ProcessId::new();
    assert_eq!(
        bench.note(other, &[of("a"), of("b"), of("")]).await,
        [false, true, true]
    );
    let days = crate::day::DaysFrom::Id;
    let audit = bench.store.open("audit", days).await.expect("it opens");
    assert_eq!(bench.found(audit, &of("a")).await, None);
}

/// Dropped on its way, it is there or not, and leaves the store usable.
pub async fn a_start_noted_and_dropped_at_any_await_point_leaves_the_store_usable<F: Fixture>() {
    let bench = bench!(F);
    let process = ProcessId::new();
    for polls in 1..200 {
        let noted = drop_at(polls, bench.note(process, &keys(0..3))).await;
        bench.expect_clean_pool().await;
        if noted.is_some() {
            assert_eq!(bench.note(process, &keys(0..3)).await, [true; 3]);
            return;
        }
    }
    panic!("it never came to an end");
}
