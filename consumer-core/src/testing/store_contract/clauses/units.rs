//! Units by themselves.

use std::time::Duration;

use bytes::Bytes;
use tokio::join;

use super::bench;
use crate::day::DaysFrom;
use crate::event_key::{EventKey, Tenant};
use crate::store::{Begin, Blame, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::testing::store_contract::support::{
    Bench, DUPLICATE, ageless, claims, drop_at, duplicate, fresh, is_rolled_back, key, keys, letter,
};
use crate::testing::store_contract::{Ending, Fixture};

/// Clause 1.
pub async fn a_key_is_a_duplicate_once_a_unit_that_claimed_it_has_committed<F: Fixture>() {
    let bench = bench!(F);

    bench.settle(&[key("x")]).await;

    assert_eq!(bench.look_one(&key("x")).await, DUPLICATE);
    assert_eq!(bench.fixture.effects().await, ["x"]);
}

/// Clauses 1 and 4.
pub async fn what_is_rolled_back_leaves_no_trace<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    F::write_effect(unit.connection(), "x").await;
    unit.rollback().await;

    assert_eq!(bench.look(&[key("x")]).await, fresh(1));
    assert!(bench.fixture.effects().await.is_empty());
    bench.expect_clean_pool().await;
}

/// Clauses 3 and 4.
pub async fn a_unit_dropped_at_any_await_point_leaves_nothing_or_all<F: Fixture>() {
    let bench = bench!(F);
    let mut settled = 0;
    for n in 1.. {
        let (done, refused) = (key(&format!("done-{n}")), key(&format!("refused-{n}")));

        let whole = drop_at(n, whole_unit(&bench, &done, &refused, n)).await;

        let verdicts = bench.look(&[done.clone(), refused.clone()]).await;
        let reason = "no".into();
        let all = [DUPLICATE, duplicate(Settled::Rejected { reason })];
        let effects = bench.fixture.effects().await;
        let letters = bench.fixture.dead_letters().await;
        if verdicts == all {
            settled += 1;
        } else {
            assert_eq!(verdicts, fresh(2), "dropped at await point {n}");
            assert!(whole.is_none(), "it committed, and nothing is there");
        }
        assert_eq!(
            effects.len(),
            settled,
            "dropped at await point {n}: {effects:?}"
        );
        assert_eq!(letters.len(), settled, "dropped at await point {n}");
        // A database that answers at once leaves fewer points to be dropped at.
        if whole.is_some() && n > 5 {
            break;
        }
    }
    bench.expect_clean_pool().await;
}

async fn whole_unit<F: Fixture>(bench: &Bench<F>, done: &EventKey, refused: &EventKey, n: usize) {
    let mut unit = bench.begin().await;
    let verdicts = unit.claim(&claims(&[done.clone(), refused.clone()])).await;
    assert_eq!(verdicts.expect("claimed"), fresh(2));
    unit.savepoint().await.expect("a savepoint is set");
    F::write_effect(unit.connection(), &done.to_string()).await;
    unit.release_savepoint().await.expect("it is released");
    let reason = "no".into();
    let outcome = (refused.clone(), Settled::Rejected { reason });
    unit.record(&[outcome]).await.expect("recorded");
    let offset = i64::try_from(n).expect("a small number");
    unit.set_aside(&[letter(offset)]).await.expect("set aside");
    unit.forget_attempts(std::slice::from_ref(done))
        .await
        .expect("forgotten");
    unit.commit().await.expect("committed");
}

/// Clause 3, for what runs beside units.
pub async fn a_charge_dropped_at_any_await_point_leaves_the_store_usable<F: Fixture>() {
    let bench = bench!(F);
    let x = key("x");
    let mut seen = 0;
    for n in 1.. {
        let charge = bench
            .store
            .charge(bench.consumer, &x, "failed", Duration::ZERO);
        let whole = drop_at(n, charge).await;

        let Verdict::Fresh(prior) = bench.look_one(&x).await else {
            panic!("nobody settled it");
        };
        // One that was dropped may still be on its way, but none is charged twice or taken back.
        let most = u32::try_from(n).expect("a small number");
        assert!((seen..=most).contains(&prior.attempts), "{prior:?}");
        seen = prior.attempts;
        if let Some(attempts) = whole {
            let attempts = attempts.expect("charged");
            assert!((1..=seen).contains(&attempts), "{attempts} of {seen}");
            break;
        }
    }
    bench.expect_clean_pool().await;
}

/// Clauses 5 and 6; field case 101.
pub async fn a_swallowed_error_is_not_taken_for_a_commit<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    F::write_effect(unit.connection(), "x").await;
    let _swallowed = F::fail_statement(unit.connection()).await;
    let committed = unit.commit().await;

    let effects = bench.fixture.effects().await;
    if F::ABORTS_ON_ERROR {
        assert!(is_rolled_back(&committed), "{committed:?}");
        assert!(effects.is_empty());
        bench.settle(&[key("x")]).await;
    } else {
        committed.expect("the transaction is as good as before");
        assert_eq!(effects, ["x"]);
    }
    assert_eq!(bench.look_one(&key("x")).await, DUPLICATE);
    bench.expect_clean_pool().await;
}

/// Clause 5.
pub async fn a_handler_that_ends_the_transaction_is_unmasked<F: Fixture>() {
    let bench = bench!(F);
    for how in [Ending::Commit, Ending::Rollback, Ending::CommitAndBegin] {
        let mut unit = bench.begin().await;
        let id = key(&format!("{how:?}"));
        unit.claim(&claims(&[id])).await.expect("claimed");
        F::end_transaction(unit.connection(), how).await;
        F::write_effect(unit.connection(), "outside").await;
        let committed = unit.commit().await;
        assert!(
            matches!(committed, Err(StoreError::HandlerEndedTransaction)),
            "{how:?}: {committed:?}"
        );

        // The same where the runtime uses a savepoint.
        let mut unit = bench.begin().await;
        let id = key(&format!("{how:?} in a savepoint"));
        unit.claim(&claims(&[id])).await.expect("claimed");
        unit.savepoint().await.expect("a savepoint is set");
        F::end_transaction(unit.connection(), how).await;
        let undone = unit.rollback_to_savepoint().await;
        assert!(
            matches!(undone, Err(StoreError::HandlerEndedTransaction)),
            "{how:?}: {undone:?}"
        );
        unit.rollback().await;
    }
    bench.expect_clean_pool().await;
    bench.settle(&[key("x")]).await;
}

/// [`Unit::rollback_to_savepoint`].
pub async fn undoing_a_savepoint_leaves_the_rest<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.claim(&claims(&keys(0..3))).await.expect("claimed");
    F::write_effect(unit.connection(), "before").await;
    for _ in 0..3 {
        unit.savepoint().await.expect("a savepoint is set");
        F::write_effect(unit.connection(), "undone").await;
        unit.rollback_to_savepoint().await.expect("undone");
    }
    F::write_effect(unit.connection(), "after").await;
    unit.commit().await.expect("committed");

    assert_eq!(bench.fixture.effects().await, ["before", "after"]);
    assert_eq!(bench.look(&keys(0..3)).await, [DUPLICATE; 3]);
}

/// [`Unit::rollback_to_savepoint`] works where all else fails, [`Unit::release_savepoint`] does not.
pub async fn a_savepoint_mends_a_failed_statement<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    unit.savepoint().await.expect("a savepoint is set");
    F::write_effect(unit.connection(), "undone").await;
    let _swallowed = F::fail_statement(unit.connection()).await;
    if F::ABORTS_ON_ERROR {
        let released = unit.release_savepoint().await;
        assert!(is_rolled_back(&released), "{released:?}");
    }
    unit.rollback_to_savepoint().await.expect("undone");
    F::write_effect(unit.connection(), "x").await;
    unit.commit().await.expect("committed");

    assert_eq!(bench.fixture.effects().await, ["x"]);
}

/// [`Unit::release_savepoint`].
pub async fn a_released_savepoint_keeps_its_writes<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    unit.savepoint().await.expect("a savepoint is set");
    F::write_effect(unit.connection(), "x").await;
    unit.release_savepoint().await.expect("released");
    unit.savepoint().await.expect("another is set");
    unit.release_savepoint().await.expect("released");
    unit.commit().await.expect("committed");

    assert_eq!(bench.fixture.effects().await, ["x"]);
}

/// Clause 7; field cases 088, 094, 096, 099: what is compared is the whole key, not a digest of it.
pub async fn ids_are_told_apart_by_their_bytes<F: Fixture>() {
    let bench = bench!(F);
    let long = "\u{e9}".repeat(512);
    let also_long = format!("{}e", "\u{e9}".repeat(511));
    let ids = [
        "a",
        "A",
        "a ",
        " a",
        "a\t",
        "a\0",
        "a\0b",
        "\0",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{df}",
        "ss",
        "0190163d-8694-439b-aea5-966c26f8ad91",
        "0190163D-8694-439B-AEA5-966C26F8AD91",
        "0190163d8694439baea5966c26f8ad91",
        "1",
        "01",
        "%",
        "_",
        "'",
        "\\x61",
        "null",
        &long,
        &also_long,
    ];
    let keys: Vec<EventKey> = ids.into_iter().map(key).collect();

    for key in &keys {
        bench.settle(std::slice::from_ref(key)).await;
    }

    assert_eq!(bench.look(&keys).await, vec![DUPLICATE; keys.len()]);
    assert_eq!(bench.fixture.effects().await.len(), keys.len());
}

/// Clause 1, for the other parts of the key.
pub async fn tenants_and_consumers_tell_keys_apart<F: Fixture>() {
    let bench = bench!(F);
    let of = |id: &str, tenant: &str| EventKey {
        tenant: Tenant::new(tenant).expect("a usable tenant"),
        ..key(id)
    };
    let longest = "t".repeat(255);
    let claimed = [
        of("x", "a"),
        of("y", "b"),
        of("x", ""),
        of("x", "nul\0"),
        of("ab", "c"),
        of("x", &longest),
    ];
    let untouched = [
        of("x", "b"),
        of("y", "a"),
        of("x", "nul"),
        of("a", "bc"),
        of("x", "A"),
    ];

    bench.settle(&claimed).await;

    assert_eq!(bench.look(&claimed).await, vec![DUPLICATE; claimed.len()]);
    assert_eq!(bench.look(&untouched).await, fresh(untouched.len()));
    let other = bench
        .store
        .open("mailer", DaysFrom::Id)
        .await
        .expect("opened");
    let mut unit = bench.begin_for(other).await;
    assert_eq!(
        unit.claim(&claims(&claimed)).await.expect("claimed"),
        fresh(claimed.len())
    );
    unit.rollback().await;
}

/// [`Store::open`].
pub async fn a_consumer_keeps_its_number<F: Fixture>() {
    let bench = bench!(F);
    let open = async |name: &str| bench.store.open(name, DaysFrom::Id).await.expect("opened");

    let (first, second) = join!(open("mailer"), open("mailer"));

    assert_eq!(first, second);
    assert_eq!(open("mailer").await, first);
    assert_ne!(open("Mailer").await, first);
    assert_eq!(open("ledger").await, bench.consumer);
}

/// [`Unit::claim`]; field case 109.
pub async fn each_verdict_belongs_to_its_key<F: Fixture>() {
    let bench = bench!(F);
    for place in 0..10 {
        let mut batch = keys(place * 10..place * 10 + 10);
        // Not in the order in which a store sorts them.
        batch.reverse();
        batch.rotate_left(3);
        bench.settle(std::slice::from_ref(&batch[place])).await;

        let mut unit = bench.begin().await;
        let verdicts = ageless(unit.claim(&claims(&batch)).await.expect("claimed"));
        let mut expected = fresh(10);
        expected[place] = DUPLICATE;
        assert_eq!(verdicts, expected);
        unit.commit().await.expect("committed");

        assert_eq!(bench.look(&batch).await, [DUPLICATE; 10]);
    }
}

/// [`Unit::claim`].
pub async fn a_large_batch_is_claimed_whole<F: Fixture>() {
    let bench = bench!(F);
    let batch = keys(0..2000);
    bench.settle(&batch[500..1000]).await;

    let verdicts = bench.look(&batch).await;

    let expected = [fresh(500), vec![DUPLICATE; 500], fresh(1000)].concat();
    assert_eq!(verdicts, expected);
}

/// [`Unit::unclaim`].
pub async fn claims_given_back_leave_the_others<F: Fixture>() {
    let bench = bench!(F);
    let of = |id: &str, tenant: &str| EventKey {
        tenant: Tenant::new(tenant).expect("a usable tenant"),
        ..key(id)
    };
    // A store that looks for ids and for tenants, and not for pairs, would take these along.
    let elsewhere = [of("x", "b"), of("y", "a")];
    bench.settle(&elsewhere).await;

    let mut unit = bench.begin().await;
    let batch = [of("x", "a"), of("y", "b"), of("z", "a")];
    unit.claim(&claims(&batch)).await.expect("claimed");
    unit.unclaim(&batch[..2]).await.expect("given back");
    unit.commit().await.expect("committed");

    assert_eq!(bench.look(&elsewhere).await, [DUPLICATE; 2]);
    let expected = [fresh(2), vec![DUPLICATE]].concat();
    assert_eq!(bench.look(&batch).await, expected);
}

/// [`Unit::record`].
pub async fn outcomes_come_back_with_the_duplicate<F: Fixture>() {
    let bench = bench!(F);
    let batch = keys(0..4);
    let rejected = |reason: &str| Settled::Rejected {
        reason: reason.into(),
    };
    let outcomes = [
        rejected("amount must be positive"),
        Settled::Dead,
        rejected("\u{e9} \"'\\ \0"),
    ];

    let mut unit = bench.begin().await;
    unit.claim(&claims(&batch)).await.expect("claimed");
    let recorded: Vec<_> = batch.iter().cloned().zip(outcomes.clone()).collect();
    unit.record(&recorded).await.expect("recorded");
    unit.commit().await.expect("committed");

    let mut expected: Vec<_> = outcomes.into_iter().map(duplicate).collect();
    expected.push(DUPLICATE);
    assert_eq!(bench.look(&batch).await, expected);
}

/// Clause 10.
pub async fn a_reply_comes_back_byte_for_byte_with_every_duplicate<F: Fixture>() {
    let bench = bench!(F);
    let every_byte: Vec<u8> = (0..=255).cycle().take(16 << 10).collect();
    let replies: Vec<Option<Bytes>> = vec![
        Some(Bytes::from_static(br#"{"amount":9007199254740993}"#)),
        None,
        Some(Bytes::new()),
        Some(every_byte.into()),
        Some(Bytes::from_static(b"\\x00 '\"\0")),
        None,
    ];
    let batch = keys(0..replies.len());

    let mut unit = bench.begin().await;
    unit.claim(&claims(&batch)).await.expect("claimed");
    // In another order than the claim's, and only those that are there.
    let recorded: Vec<_> = (batch.iter().zip(&replies).rev())
        .filter(|(_, reply)| reply.is_some())
        .map(|(key, reply)| {
            let reply = reply.clone();
            (key.clone(), Settled::Done { reply })
        })
        .collect();
    unit.record(&recorded).await.expect("recorded");
    unit.commit().await.expect("committed");

    let expected: Vec<_> = replies
        .into_iter()
        .map(|reply| duplicate(Settled::Done { reply }))
        .collect();
    for _ in 0..2 {
        assert_eq!(bench.look(&batch).await, expected);
    }
}

/// Clauses 4 and 10.
pub async fn a_reply_commits_with_its_unit_or_not_at_all<F: Fixture>() {
    let bench = bench!(F);
    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    let reply = Some(Bytes::from_static(b"7"));
    let outcome = (key("x"), Settled::Done { reply });
    unit.record(&[outcome]).await.expect("recorded");
    unit.rollback().await;

    bench.settle(&[key("x")]).await;
    assert_eq!(bench.look_one(&key("x")).await, DUPLICATE);
}

/// [`Store::charge`].
pub async fn attempts_are_durable_and_come_back_with_the_claim<F: Fixture>() {
    let bench = bench!(F);
    let day = Duration::from_hours(24);
    let charge = async |key: &EventKey, error: &str, wait: Duration| {
        bench
            .store
            .charge(bench.consumer, key, error, wait)
            .await
            .expect("charged")
    };

    assert_eq!(charge(&key("x"), "first", Duration::ZERO).await, 1);
    assert_eq!(charge(&key("x"), "second", day).await, 2);
    assert_eq!(charge(&key("due"), "third", Duration::ZERO).await, 1);

    let verdicts = bench.look(&[key("y"), key("x"), key("due")]).await;
    let Verdict::Fresh(x) = &verdicts[1] else {
        panic!("nobody settled it");
    };
    assert_eq!(verdicts[0], Verdict::Fresh(Prior::default()));
    assert_eq!((x.attempts, x.last_error.as_deref()), (2, Some("second")));
    assert!(x.wait <= day && x.wait > day / 2, "{:?}", x.wait);
    let last_error = Some("third".into());
    let due = Prior {
        attempts: 1,
        wait: Duration::ZERO,
        last_error,
    };
    assert_eq!(verdicts[2], Verdict::Fresh(due));
}

/// [`Unit::forget_attempts`].
pub async fn attempts_of_a_settled_event_are_forgotten<F: Fixture>() {
    let bench = bench!(F);
    for key in [key("x"), key("y")] {
        let charged = bench
            .store
            .charge(bench.consumer, &key, "no", Duration::ZERO);
        charged.await.expect("charged");
    }

    let mut unit = bench.begin().await;
    unit.claim(&claims(&[key("x")])).await.expect("claimed");
    unit.forget_attempts(&[key("x")]).await.expect("forgotten");
    unit.unclaim(&[key("x")]).await.expect("given back");
    unit.commit().await.expect("committed");

    let verdicts = bench.look(&[key("x"), key("y")]).await;
    assert_eq!(verdicts[0], Verdict::Fresh(Prior::default()));
    assert!(matches!(&verdicts[1], Verdict::Fresh(prior) if prior.attempts == 1));
}

/// [`Store::charge`]: an error text that cannot be stored would make an event fail for ever.
pub async fn an_attempt_is_charged_whatever_its_error_says<F: Fixture>() {
    let bench = bench!(F);
    let x = key("x");
    for error in ["", "nul\0nul", "\u{1f4a5}", &"\u{e9}".repeat(1 << 20)] {
        let charged = bench
            .store
            .charge(bench.consumer, &x, error, Duration::from_hours(1 << 20));
        charged.await.expect("charged");
    }
    let verdict = bench.look_one(&x).await;
    assert!(matches!(verdict, Verdict::Fresh(prior) if prior.attempts == 4));
}

/// [`Store::blame`].
pub async fn a_failed_statement_is_the_events<F: Fixture>() {
    let bench = bench!(F);

    let mut unit = bench
        .store
        .begin(Begin::new(bench.consumer))
        .await
        .expect("begun");
    let error = F::fail_statement(unit.connection()).await;
    unit.rollback().await;

    assert_eq!(bench.store.blame(&*error), Some(Blame::Event));
    assert_eq!(bench.store.blame(&std::fmt::Error), None);
}
