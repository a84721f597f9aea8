//! What is stored with a claim, and what another claim is told of it.

use std::time::Duration;

use super::bench;
use crate::claim::Claim;
use crate::dead_letter::DeadLetter;
use crate::fingerprint::Fingerprint;
use crate::store::{Settled, Unit, Verdict};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{
    Bench, DONE, DUPLICATE, ageless, delivery, duplicate, fresh, key,
};

fn claim(id: &str, setting: Fingerprint, content: &str) -> Claim {
    Claim::new(key(id)).with_fingerprint(setting.of(Some(content.as_bytes())))
}

impl<F: Fixture> Bench<F> {
    /// Claims and commits.
    async fn claim(&self, claims: &[Claim]) -> Vec<Verdict> {
        let mut unit = self.begin().await;
        let verdicts = ageless(unit.claim(claims).await.expect("a claim is answered"));
        unit.commit().await.expect("the unit commits");
        verdicts
    }
}

/// Clause 9.
pub async fn another_fingerprint_under_a_settled_key_is_a_mismatch<F: Fixture>() {
    let bench = bench!(F);
    for setting in [Fingerprint::Payload, Fingerprint::CanonicalJson] {
        let id = format!("{setting:?}");
        let (first, other) = (claim(&id, setting, "1"), claim(&id, setting, "2"));
        let fingerprints = (first.fingerprint, other.fingerprint);
        let (Some(theirs), Some(ours)) = fingerprints else {
            panic!("fingerprints are taken")
        };
        assert_eq!(bench.claim(std::slice::from_ref(&first)).await, fresh(1));

        // More than once: what was there first stays.
        for _ in 0..2 {
            let verdicts = bench.claim(std::slice::from_ref(&other)).await;
            let settled = DONE;
            let mismatch = Verdict::Mismatch {
                ours,
                theirs,
                settled,
            };
            assert_eq!(verdicts, [mismatch]);
        }
        let again = bench.claim(&[first]).await;
        assert_eq!(again, [DUPLICATE]);
    }
}

/// Clause 9: what was stored under another setting, or under none, says nothing.
pub async fn fingerprints_of_different_settings_are_not_compared<F: Fixture>() {
    let bench = bench!(F);
    let settings = [
        Fingerprint::Off,
        Fingerprint::Payload,
        Fingerprint::CanonicalJson,
    ];
    for before in settings {
        for after in settings {
            let id = format!("{before:?} {after:?}");
            assert_eq!(bench.claim(&[claim(&id, before, "1")]).await, fresh(1));
            if before != after || before == Fingerprint::Off {
                let other = bench.claim(&[claim(&id, after, "2")]).await;
                assert_eq!(other, [DUPLICATE], "{id}");
            }
        }
    }
}

/// Clause 9: the outcome of the event that was first comes with the verdict, and stays.
pub async fn a_mismatch_says_what_became_of_the_first_and_leaves_it<F: Fixture>() {
    let bench = bench!(F);
    let reason = "insufficient funds".into();
    let outcomes = [
        ("rejected", Settled::Rejected { reason }),
        ("dead", Settled::Dead),
    ];
    for (id, outcome) in outcomes {
        let first = claim(id, Fingerprint::Payload, "1");
        let mut unit = bench.begin().await;
        unit.claim(std::slice::from_ref(&first))
            .await
            .expect("claimed");
        unit.record(&[(key(id), outcome.clone())])
            .await
            .expect("recorded");
        unit.commit().await.expect("committed");

        let mut unit = bench.begin().await;
        let other = claim(id, Fingerprint::Payload, "2");
        let verdicts = unit.claim(&[other]).await.expect("claimed");
        let [
            Verdict::Mismatch {
                ours,
                theirs,
                settled,
            },
        ] = verdicts.as_slice()
        else {
            panic!("not a mismatch: {verdicts:?}")
        };
        assert_eq!(settled, &outcome);
        let delivery = delivery(1, Some(b"2"));
        let letter = DeadLetter::mismatch(&delivery, key(id), *ours, *theirs, settled);
        unit.set_aside(&[letter]).await.expect("set aside");
        unit.commit().await.expect("committed");

        let again = bench.claim(&[first]).await;
        assert_eq!(again, [duplicate(outcome)]);
    }
    let letters = bench.fixture.dead_letters().await;
    assert!(letters.iter().all(|letter| letter.kind == "mismatch"));
    assert_eq!(letters.len(), 2);
}

/// Clauses 1 and 9, in a batch of which some are fresh, some were seen, and some have no
/// fingerprint.
pub async fn each_fingerprint_belongs_to_its_key<F: Fixture>() {
    const HOW_MANY: usize = 30;
    let bench = bench!(F);
    let setting = |n: usize| {
        if n.is_multiple_of(3) {
            Fingerprint::Off
        } else {
            Fingerprint::Payload
        }
    };
    let claims = |content: &str| -> Vec<Claim> {
        // Not in the order of the keys.
        let numbers = (0..HOW_MANY).map(|n| n * 7 % HOW_MANY);
        numbers
            .map(|n| claim(&format!("event-{n}"), setting(n), &format!("{content}{n}")))
            .collect()
    };
    let first: Vec<Claim> = claims("a").into_iter().step_by(2).collect();
    assert_eq!(bench.claim(&first).await, fresh(first.len()));

    let batch = claims("b");
    let verdicts = bench.claim(&batch).await;

    for (at, (claim, verdict)) in batch.iter().zip(verdicts).enumerate() {
        let expected = match first.iter().find(|first| first.key == claim.key) {
            None => fresh(1).remove(0),
            Some(first) => claim.verdict_on(DONE, first.fingerprint, Duration::ZERO),
        };
        assert_eq!(verdict, expected, "at {at}: {claim:?}");
    }
}

/// Clauses 4 and 9.
pub async fn a_claim_that_is_rolled_back_leaves_no_fingerprint<F: Fixture>() {
    let bench = bench!(F);
    let of = |content| [claim("x", Fingerprint::Payload, content)];
    let mut unit = bench.begin().await;
    unit.claim(&of("1")).await.expect("claimed");
    unit.rollback().await;
    let mut unit = bench.begin().await;
    unit.claim(&of("2")).await.expect("claimed");
    unit.unclaim(&[key("x")]).await.expect("given back");
    unit.commit().await.expect("committed");

    assert_eq!(bench.claim(&of("3")).await, fresh(1));
    let again = bench.claim(&of("3")).await;
    assert_eq!(again, [DUPLICATE]);
}
