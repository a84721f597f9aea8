//! Units at the same time. Where a store runs one at a time there is nothing to see.

use std::time::Duration;

use tokio::join;

use super::bench;
use crate::store::{Begin, Prior, Store, StoreError, Unit, Verdict};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{
    Bench, DUPLICATE, UnitOf, claims, fresh, key, keys, let_the_rival_wait,
};

/// A claim of the only key, in a unit of its own that is rolled back then.
async fn loser<F: Fixture>(bench: &Bench<F>) -> Verdict {
    bench.look_one(&key("x")).await
}

async fn winner<F: Fixture>(bench: &Bench<F>) -> UnitOf<F> {
    let mut unit = bench.begin().await;
    assert_eq!(
        unit.claim(&claims(&[key("x")])).await.expect("claimed"),
        fresh(1)
    );
    unit
}

/// Clause 2.
pub async fn of_two_units_that_claim_one_key_the_loser_waits_for_the_winner<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let winner = winner(&bench).await;

    let (verdict, ()) = join!(loser(&bench), async {
        let_the_rival_wait().await;
        winner.commit().await.expect("the winner commits");
    });

    assert_eq!(verdict, DUPLICATE);
}

/// Clause 2; field case 125.
pub async fn the_loser_is_fresh_when_the_winner_rolls_back<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let winner = winner(&bench).await;

    let (verdict, ()) = join!(loser(&bench), async {
        let_the_rival_wait().await;
        winner.rollback().await;
    });

    assert_eq!(verdict, Verdict::Fresh(Prior::default()));
}

/// Clauses 2 and 3.
pub async fn the_loser_is_fresh_when_the_winner_is_dropped<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let winner = winner(&bench).await;

    let (verdict, ()) = join!(loser(&bench), async {
        let_the_rival_wait().await;
        drop(winner);
    });

    assert_eq!(verdict, Verdict::Fresh(Prior::default()));
}

/// Clause 2.
pub async fn the_loser_is_fresh_when_the_winner_gives_its_claim_back<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let mut winner = winner(&bench).await;

    let (verdict, ()) = join!(loser(&bench), async {
        let_the_rival_wait().await;
        winner.unclaim(&[key("x")]).await.expect("given back");
        winner.commit().await.expect("the winner commits");
    });

    assert_eq!(verdict, Verdict::Fresh(Prior::default()));
}

/// [`Unit::claim`]'s error.
pub async fn a_key_that_is_held_for_too_long_is_busy<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let winner = winner(&bench).await;

    let mut begin = Begin::new(bench.consumer);
    begin.claim_wait = Duration::from_millis(20);
    let mut rival = bench.store.begin(begin).await.expect("a unit begins");
    let busy = rival.claim(&claims(&[key("w"), key("x")])).await;
    rival.rollback().await;

    assert!(matches!(busy, Err(StoreError::Busy)), "{busy:?}");
    winner.commit().await.expect("the winner commits");
    let after = bench.look(&[key("w"), key("x")]).await;
    assert_eq!(after, [Verdict::Fresh(Prior::default()), DUPLICATE]);
}

/// Field case 105. The batches are large, so that two claims are under way at the same time.
pub async fn overlapping_batches_in_opposite_order_do_not_deadlock<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    for round in 0..5 {
        let up = keys(round * 2000..(round + 1) * 2000);
        let mut down = up.clone();
        down.reverse();

        let run = async |batch: Vec<_>| {
            let mut unit = bench.begin().await;
            let verdicts = unit.claim(&claims(&batch)).await.expect("no deadlock");
            unit.commit().await.expect("the unit commits");
            let fresh = verdicts
                .iter()
                .filter(|verdict| matches!(verdict, Verdict::Fresh(_)));
            fresh.count()
        };
        let (one, other) = join!(run(up), run(down));

        assert_eq!(one + other, 2000, "a key was fresh twice, or never");
    }
}
