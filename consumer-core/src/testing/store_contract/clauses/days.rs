//! Days, the window and the floor. The clock of the database is set by hand.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::join;

use super::bench;
use crate::claim::Claim;
use crate::day::{Day, DaysFrom};
use crate::event_key::EventKey;
use crate::store::{Begin, Late, Prior, Settled, Store, StoreError, Unit, Verdict};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{
    Bench, DUPLICATE, UnitOf, ageless, claims, drop_at, duplicate, fresh, key, let_the_rival_wait,
};

const DAY: Duration = Duration::from_hours(24);
const NOON: Duration = Duration::from_hours(12);
const MOMENT: Duration = Duration::from_millis(100);

/// A day that no real clock has reached: what a database has done by its own before the test set its
/// clock lies behind.
#[allow(
    clippy::disallowed_methods,
    reason = "where the clock that is set later is now"
)]
fn some_day() -> Day {
    Day::of(SystemTime::now()).plus(30)
}

fn midnight(day: Day) -> SystemTime {
    let days = u32::try_from(day.number()).expect("a day after 1970");
    UNIX_EPOCH + DAY * days
}

fn just_before(time: SystemTime) -> SystemTime {
    time.checked_sub(MOMENT).expect("a time after 1970")
}

/// A key with an id that is of that day (a UUID of version 7).
fn of_day(day: Day, number: u32) -> EventKey {
    let millis = midnight(day) + NOON;
    let millis = millis.duration_since(UNIX_EPOCH).expect("after 1970");
    let hex = format!("{:012x}", millis.as_millis());
    key(&format!(
        "{}-{}-7000-8000-{number:012x}",
        &hex[..8],
        &hex[8..]
    ))
}

impl<F: Fixture> Bench<F> {
    /// Noon of that day, and a round of maintenance.
    async fn on(&self, day: Day) -> Limits {
        self.fixture.set_clock(midnight(day) + NOON).await;
        self.maintain().await
    }

    async fn maintain(&self) -> Limits {
        let mut maintained = self.store.maintain().await.expect("maintained");
        for _ in 0..100 {
            if !maintained.postponed {
                break;
            }
            let_the_rival_wait().await;
            maintained = self.store.maintain().await.expect("maintained");
        }
        Limits {
            floor: maintained.floor.expect("a store that forgets"),
            window: maintained.window_days.expect("a store that forgets"),
        }
    }

    async fn begin_as(&self, late: Late) -> UnitOf<F> {
        let mut begin = Begin::new(self.consumer);
        begin.claim_wait = Duration::from_secs(30);
        begin.late = late;
        self.store.begin(begin).await.expect("a unit begins")
    }

    /// Claims, and commits.
    async fn claim_as(&self, late: Late, claims: &[Claim]) -> Vec<Verdict> {
        let mut unit = self.begin_as(late).await;
        let verdicts = unit.claim(claims).await.expect("a claim is answered");
        unit.commit().await.expect("the unit commits");
        ageless(verdicts)
    }
}

struct Limits {
    floor: Day,
    window: u32,
}

impl Limits {
    fn window(&self) -> i32 {
        i32::try_from(self.window).expect("a window of some days")
    }

    /// Events of the open period may be remembered for another quarter of the window.
    fn longest(&self) -> i32 {
        self.window() + self.window() / 4 + 2
    }

    fn too_late(&self, day: Day) -> Verdict {
        let floor = self.floor;
        Verdict::TooLate { day, floor }
    }
}

fn is_fresh(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Fresh(_))
}

/// Clauses 1 and 11; field case 117.
pub async fn a_duplicate_across_midnight_is_a_duplicate<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let keys = [key("x"), of_day(today, 1)];
    let tomorrow = midnight(today.plus(1));
    bench.fixture.set_clock(just_before(tomorrow)).await;
    bench.settle(&keys).await;

    bench.fixture.set_clock(tomorrow + MOMENT).await;
    assert_eq!(bench.look(&keys).await, [DUPLICATE, DUPLICATE]);
    bench.maintain().await;
    assert_eq!(bench.look(&keys).await, [DUPLICATE, DUPLICATE]);
    for later in 1..=limits.window() {
        let limits = bench.on(today.plus(later)).await;
        assert_eq!(limits.floor, today.plus(later - limits.window()));
        let verdicts = bench.look(&keys).await;
        assert_eq!(verdicts, [DUPLICATE, DUPLICATE], "{later} days later");
    }
}

/// Clauses 2 and 11; field case 117.
pub async fn of_two_units_on_either_side_of_midnight_one_is_fresh<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let today = some_day();
    for (round, wins) in [true, false, true].into_iter().enumerate() {
        // Each round another period, so that the move of the period lies between the two as well.
        let today = today.plus(4 * i32::try_from(round).expect("a small number"));
        bench.on(today).await;
        let keys = [key(&format!("x-{round}")), of_day(today, 1)];
        let tomorrow = midnight(today.plus(1));
        bench.fixture.set_clock(just_before(tomorrow)).await;
        let mut winner = bench.begin().await;
        let verdicts = winner.claim(&claims(&keys)).await.expect("claimed");
        assert_eq!(verdicts, fresh(2));

        bench.fixture.set_clock(tomorrow + MOMENT).await;
        // It never waits for a running unit, and need not do anything now.
        bench.store.maintain().await.expect("maintained");
        let (verdicts, ()) = join!(bench.look(&keys), async {
            let_the_rival_wait().await;
            if wins {
                winner.commit().await.expect("the winner commits");
            } else {
                winner.rollback().await;
            }
        });

        let expected = if wins {
            vec![DUPLICATE, DUPLICATE]
        } else {
            fresh(2)
        };
        assert_eq!(verdicts, expected, "round {round}");
    }
}

/// Clause 11.
pub async fn an_own_day_stays_what_it_is_whatever_the_clock_says<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    bench.on(today).await;
    let keys: Vec<EventKey> = [-2, -1, 0, 1]
        .map(|days| of_day(today.plus(days), 1))
        .into();
    bench.settle(&keys).await;

    for days in [0, 1, 3, 0] {
        let now = midnight(today.plus(days)) + NOON;
        bench.fixture.set_clock(now).await;
        assert_eq!(bench.look(&keys).await, vec![DUPLICATE; 4], "day {days}");
    }
    // Consumers' clocks do not matter, but the database's own may go back as well.
    bench.fixture.set_clock(midnight(today.plus(-1))).await;
    assert_eq!(bench.look(&keys[..3]).await, vec![DUPLICATE; 3]);
}

/// Clauses 11 and 12.
pub async fn below_the_floor_nothing_is_fresh<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let before = bench.on(today).await;
    let (first, last) = (of_day(before.floor, 1), of_day(before.floor.plus(-1), 1));
    let unseen = of_day(before.floor, 2);
    bench.settle(std::slice::from_ref(&first)).await;
    let verdicts = bench.look(&[first.clone(), last, unseen.clone()]).await;
    let late = before.too_late(before.floor.plus(-1));
    assert_eq!(
        verdicts,
        [DUPLICATE, late, Verdict::Fresh(Prior::default())]
    );

    let after = bench.on(today.plus(1)).await;
    assert_eq!(after.floor, before.floor.plus(1));
    for _ in 0..2 {
        let batch = claims(&[first.clone(), unseen.clone()]);
        let verdicts = bench.claim_as(Late::Refuse, &batch).await;
        assert_eq!(verdicts, vec![after.too_late(before.floor); 2]);
    }
    assert_eq!(bench.fixture.remembered().await, 0);
}

/// Clause 12: forgetting does not wait for units, and what they commit then is no way back.
pub async fn a_unit_that_commits_below_the_floor_leaves_nothing_fresh<F: Fixture>() {
    if !F::CONCURRENT_UNITS {
        return;
    }
    let bench = bench!(F);
    let today = some_day();
    let before = bench.on(today).await;
    let old = of_day(before.floor, 1);
    let mut unit = bench.begin().await;
    let verdicts = unit.claim(&claims(std::slice::from_ref(&old))).await;
    assert_eq!(verdicts.expect("claimed"), fresh(1));

    let now = midnight(today.plus(1)) + NOON;
    bench.fixture.set_clock(now).await;
    bench.store.maintain().await.expect("maintained");
    // Whether it still may is the store's choice: what counts is that nobody else does it again.
    let _ = unit.commit().await;

    let after = bench.maintain().await;
    assert_eq!(
        bench.look_one(&old).await,
        after.too_late(before.floor.min(old.id.day().expect("of a day")))
    );
}

/// Clause 12.
pub async fn an_event_whose_day_is_forgotten_while_it_fails_is_too_late<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let before = bench.on(today).await;
    let old = of_day(before.floor, 1);
    assert_eq!(bench.look(std::slice::from_ref(&old)).await, fresh(1));
    let charged = bench
        .store
        .charge(bench.consumer, &old, "failed", Duration::ZERO);
    assert_eq!(charged.await.expect("charged"), 1);

    let after = bench.on(today.plus(1)).await;

    assert_eq!(
        bench.look_one(&old).await,
        after.too_late(before.floor),
        "nobody can say whether it was settled"
    );
    let mut unit = bench.begin_as(Late::AsNew).await;
    let verdicts = unit.claim(&claims(std::slice::from_ref(&old))).await;
    let verdicts = verdicts.expect("claimed");
    unit.rollback().await;
    let Verdict::Fresh(prior) = &verdicts[0] else {
        panic!("not fresh: {verdicts:?}")
    };
    assert_eq!(prior.attempts, 1);
}

/// Clause 13.
pub async fn a_late_event_as_new_is_filed_once<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let old = of_day(limits.floor.plus(-20), 1);
    let recent = of_day(today, 1);
    let batch = claims(&[recent, old.clone()]);
    let old = claims(&[old]);

    assert_eq!(bench.claim_as(Late::AsNew, &batch).await, fresh(2));

    let tomorrow = midnight(today.plus(1));
    for now in [just_before(tomorrow), tomorrow + MOMENT] {
        bench.fixture.set_clock(now).await;
        let again = bench.claim_as(Late::AsNew, &batch).await;
        assert_eq!(again, [DUPLICATE, DUPLICATE]);
    }
    for later in 1..=limits.window() {
        bench.on(today.plus(later)).await;
        let again = bench.claim_as(Late::AsNew, &old).await;
        assert_eq!(again, [DUPLICATE], "{later} days later");
    }
    let refused = bench.claim_as(Late::Refuse, &old).await;
    assert!(!is_fresh(&refused[0]), "{refused:?}");
}

/// Clause 11: the day after today is believed, since clocks differ; nothing beyond it.
pub async fn a_day_too_far_ahead_is_refused_and_nothing_claimed<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    bench.on(today).await;
    let [near, far] = [1, 2].map(|days| of_day(today.plus(days), 1));
    let farther = of_day(today.plus(2000), 1);
    let batch = claims(&[far.clone(), near, farther]);

    let verdicts = bench.claim_as(Late::AsNew, &batch).await;

    let last = today.plus(1);
    let future = |day| Verdict::Future { day, last };
    assert_eq!(verdicts[0], future(today.plus(2)));
    assert!(is_fresh(&verdicts[1]), "{verdicts:?}");
    assert_eq!(verdicts[2], future(today.plus(2000)));
    assert_eq!(bench.fixture.remembered().await, 1);
    bench.on(today.plus(1)).await;
    assert_eq!(bench.look(&[far]).await, fresh(1));
}

/// Clause 12.
pub async fn the_floor_only_rises<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let highest = bench.on(today).await.floor;

    for days in [-1, -5, -2000, 0] {
        let limits = bench.on(today.plus(days)).await;
        assert_eq!(limits.floor, highest, "the clock went by {days} days");
        let late = of_day(highest.plus(-1), 1);
        let verdict = bench.look_one(&late).await;
        assert_eq!(verdict, limits.too_late(highest.plus(-1)));
    }
    let limits = bench.on(today.plus(1)).await;
    assert_eq!(limits.floor, highest.plus(1));
}

/// Clause 12.
pub async fn what_is_below_the_floor_is_gone_after_maintenance<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let old = of_day(limits.floor, 1);
    bench.settle(&[key("x"), old, of_day(today, 1)]).await;
    assert_eq!(bench.fixture.remembered().await, 3);

    bench.on(today.plus(1)).await;
    assert_eq!(bench.fixture.remembered().await, 2);
    // In steps, as time goes.
    for later in (2..=limits.longest()).step_by(2) {
        bench.on(today.plus(later)).await;
        bench.settle(&[key(&format!("later-{later}"))]).await;
    }
    assert_eq!(bench.look(&[key("x")]).await, fresh(1));
    // And after a long stop, of which nobody knows whether anything was filed at its very end.
    for stop in [10, 11] {
        bench.on(today.plus(stop * limits.longest())).await;
    }
    assert_eq!(bench.fixture.remembered().await, 0);
}

/// [`Store::maintain`].
pub async fn maintenance_may_be_raced_and_dropped_at_any_await_point<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let mut limits = bench.on(today).await;
    for n in 1..40 {
        let today = today.plus(i32::try_from(n).expect("a small number"));
        let keys = [key("x"), of_day(today, 1)];
        let kept = of_day(limits.floor.plus(1), 1);
        let batch = [claims(&keys), claims(std::slice::from_ref(&kept))].concat();
        bench.claim_as(Late::Refuse, &batch).await;
        bench.fixture.set_clock(midnight(today) + NOON).await;

        let _ = drop_at(n, bench.store.maintain()).await;
        let (one, other) = join!(bench.store.maintain(), bench.store.maintain());

        let floor = one.expect("maintained").floor;
        assert_eq!(floor, other.expect("maintained").floor);
        limits = bench.maintain().await;
        assert_eq!(floor, Some(limits.floor));
        let verdicts = bench.look(&[keys[1].clone(), kept]).await;
        assert_eq!(verdicts, [DUPLICATE, DUPLICATE], "dropped at {n}");
    }
    bench.expect_clean_pool().await;
}

/// Clause 11, in batches that have some of everything, in no order.
pub async fn each_verdict_belongs_to_its_claim_whatever_its_day<F: Fixture>() {
    const HOW_MANY: u32 = 60;
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let day = |number: u32| today.plus(-i32::try_from(number % 4).expect("a small number"));
    let (late_day, far_day) = (limits.floor.plus(-1), today.plus(2));
    let key = |number: u32| match number % 6 {
        0 | 1 => key(&format!("event-{number}")),
        2 | 3 => of_day(day(number), number),
        4 => of_day(late_day, number),
        _ => of_day(far_day, number),
    };
    let seen: Vec<EventKey> = (0..HOW_MANY).filter(|n| n % 2 == 0).map(key).collect();
    bench.claim_as(Late::Refuse, &claims(&seen)).await;

    for late in [Late::Refuse, Late::AsNew] {
        let numbers: Vec<u32> = (0..HOW_MANY).map(|number| number * 7 % HOW_MANY).collect();
        let batch: Vec<Claim> = numbers.iter().map(|&n| Claim::new(key(n))).collect();
        let mut unit = bench.begin_as(late).await;
        let verdicts = ageless(unit.claim(&batch).await.expect("claimed"));
        unit.rollback().await;

        for (number, verdict) in numbers.into_iter().zip(verdicts) {
            let expected = match number % 6 {
                0 | 2 => DUPLICATE,
                4 if late == Late::Refuse => limits.too_late(late_day),
                5 => Verdict::Future {
                    day: far_day,
                    last: today.plus(1),
                },
                _ => Verdict::Fresh(Prior::default()),
            };
            assert_eq!(verdict, expected, "{number}, {late:?}");
        }
    }
}

/// [`Unit::unclaim`] and [`Unit::record`], wherever the row stands.
pub async fn claims_of_every_kind_are_given_back_and_recorded<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let batch = |name: &str, number| {
        let beside = Claim::new(key(&format!("{name}-beside"))).of_day(Some(today.plus(-1)));
        let mut batch = claims(&[
            key(name),
            of_day(today, number),
            of_day(limits.floor, number),
            of_day(limits.floor.plus(-9), number),
        ]);
        batch.push(beside);
        batch
    };
    let (back, kept) = (batch("back", 1), batch("kept", 2));
    let keys = |batch: &[Claim]| -> Vec<EventKey> {
        let keys = batch.iter().map(|claim| claim.key.clone());
        keys.collect()
    };
    let reply = Settled::Done {
        reply: Some(Bytes::from_static(b"r")),
    };

    let mut unit = bench.begin_as(Late::AsNew).await;
    let all = [back.clone(), kept.clone()].concat();
    let verdicts = unit.claim(&all).await.expect("claimed");
    assert_eq!(verdicts, fresh(10));
    unit.unclaim(&keys(&back)).await.expect("given back");
    let outcomes: Vec<_> = keys(&kept)
        .into_iter()
        .map(|key| (key, reply.clone()))
        .collect();
    unit.record(&outcomes).await.expect("recorded");
    unit.commit().await.expect("committed");

    assert_eq!(bench.fixture.remembered().await, 5);
    let verdicts = bench.claim_as(Late::AsNew, &kept).await;
    assert_eq!(verdicts, vec![duplicate(reply); 5]);
    assert_eq!(bench.claim_as(Late::AsNew, &back).await, fresh(5));
}

/// Clause 11, for consumers whose producer repeats a time beside the id.
pub async fn a_day_beside_the_id_counts_where_the_claim_has_one<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    let limits = bench.on(today).await;
    let on = |id: &str, day: Day| [Claim::new(key(id)).of_day(Some(day))];
    assert_eq!(
        bench.claim_as(Late::Refuse, &on("x", today)).await,
        fresh(1)
    );

    for later in [0, 1, limits.window()] {
        bench.on(today.plus(later)).await;
        let again = bench.claim_as(Late::Refuse, &on("x", today)).await;
        assert_eq!(again, [DUPLICATE], "{later} days later");
    }
    let after = bench.on(today.plus(limits.window() + 1)).await;
    let again = bench.claim_as(Late::Refuse, &on("x", today)).await;
    assert_eq!(again, [after.too_late(today)]);
    let far = after.floor.plus(after.window() + 2);
    let future = bench.claim_as(Late::Refuse, &on("y", far)).await;
    assert!(
        matches!(future[0], Verdict::Future { day, .. } if day == far),
        "{future:?}"
    );
}

/// [`Verdict::Duplicate`].
pub async fn the_age_of_a_duplicate_is_by_the_clock_of_the_database<F: Fixture>() {
    let bench = bench!(F);
    let today = some_day();
    bench.on(today).await;
    let keys = [key("x"), of_day(today, 1)];
    bench.settle(&keys).await;
    let noon = midnight(today) + NOON;
    let ages = [
        Duration::from_mins(190),
        DAY + Duration::from_hours(2),
        3 * DAY,
    ];
    for expected in ages {
        bench.fixture.set_clock(noon + expected).await;
        let mut unit = bench.begin().await;
        let verdicts = unit.claim(&claims(&keys)).await.expect("claimed");
        unit.rollback().await;
        for verdict in verdicts {
            let Verdict::Duplicate { age, .. } = verdict else {
                panic!("not a duplicate: {verdict:?}")
            };
            // A clock may go on while the test does, and stores may round to seconds.
            let off = age.abs_diff(expected);
            assert!(
                off < Duration::from_mins(10),
                "{age:?} is not about {expected:?}"
            );
        }
    }
    // The clock went back.
    bench
        .fixture
        .set_clock(noon - Duration::from_hours(1))
        .await;
    assert_eq!(bench.look(&keys).await, [DUPLICATE, DUPLICATE]);
}

/// Clause 14.
pub async fn days_from_elsewhere_are_refused<F: Fixture>() {
    let bench = bench!(F);
    let open = |name, days| bench.store.open(name, days);

    for (name, days, other) in [
        ("ledger", DaysFrom::Id, DaysFrom::Producer),
        ("audit", DaysFrom::Producer, DaysFrom::Id),
    ] {
        let id = open(name, days).await.expect("opened");
        let refused = open(name, other).await;
        assert!(
            matches!(refused, Err(StoreError::Misconfigured { .. })),
            "{refused:?}"
        );
        assert_eq!(open(name, days).await.expect("opened"), id);
    }
}
