//! Partitions that are not there when a claim needs them.

use oneffect_core::DaysFrom;
use tokio::task::JoinSet;

use super::*;

on_each_server! {
    a_missing_day_is_created_by_the_claim_that_needs_it
    the_open_period_is_created_by_the_claim_that_needs_it
    a_day_below_the_floor_is_never_created_again
    bounds_are_midnights_in_utc_whatever_the_sessions_zone
    maintenance_that_has_not_run_for_a_week_loses_nothing
}

/// Field case 119. By processes with one connection each, at every isolation level, all at once.
async fn a_missing_day_is_created_by_the_claim_that_needs_it<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    // The partitions that maintenance has created ahead are not enough.
    set_day(&fixture, today.plus(3)).await;
    let days: Vec<Day> = (0..=4).map(|ahead| today.plus(ahead)).collect();

    let mut processes = JoinSet::new();
    for n in 0..6 {
        let isolation = ISOLATIONS[n % 3];
        let store = another(&fixture, 1, isolation, "UTC").await;
        let days = days.clone();
        processes.spawn(async move {
            let number = u64::try_from(n).unwrap();
            let keys: Vec<EventKey> = days.iter().map(|day| of_day(*day, number)).collect();
            let claims: Vec<Claim> = keys.iter().cloned().map(Claim::new).collect();
            let mut unit = begin(&store, consumer, Late::Refuse).await;
            let verdicts = unit.claim(&claims).await.unwrap();
            assert!(verdicts.iter().all(is_fresh), "{verdicts:?}");
            for key in &keys {
                write_effect(unit.connection(), key).await;
            }
            unit.commit().await.unwrap();
            let again = claim(&store, consumer, Late::Refuse, &claims).await;
            assert_eq!(again, vec![DUPLICATE; 5]);
        });
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }

    let effects = effects_by_number(&fixture).await;
    assert_eq!(effects.len(), 30);
    let there = partitions(&fixture).await;
    for day in days {
        assert!(there.contains(&partition("inbox", day)), "{day}: {there:?}");
    }
}

/// As after a restore that left it out.
async fn the_open_period_is_created_by_the_claim_that_needs_it<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let open = partition("inbox_open", today);
    run(&fixture, format!("DROP TABLE {open}")).await;

    let verdicts = claim(&fixture.store, consumer, Late::Refuse, &[key("x").into()]).await;

    assert_eq!(verdicts, [fresh_verdict()]);
    assert!(partitions(&fixture).await.contains(&open));
}

/// Without the floor a delivery of a dropped day would create it anew, and take effect again.
async fn a_day_below_the_floor_is_never_created_again<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let old = today.plus(-8);
    let claims = [Claim::new(of_day(old, 1))];
    assert_eq!(
        claim(&fixture.store, consumer, Late::Refuse, &claims).await,
        [fresh_verdict()]
    );
    let gone = partition("inbox", old);
    assert!(partitions(&fixture).await.contains(&gone));

    // Rivals claim it while it is dropped.
    set_day(&fixture, today.plus(1)).await;
    let mut rivals = JoinSet::new();
    for n in 0..4 {
        let store = another(&fixture, 1, ISOLATIONS[n % 3], "UTC").await;
        let claims = claims.clone();
        rivals.spawn(async move {
            let mut late = 0;
            for _ in 0..50 {
                let verdict = claim(&store, consumer, Late::Refuse, &claims)
                    .await
                    .remove(0);
                assert!(
                    verdict == DUPLICATE || matches!(verdict, Verdict::TooLate { .. }),
                    "{verdict:?}"
                );
                late += usize::from(verdict != DUPLICATE);
            }
            late
        });
    }
    let maintained = maintain(&fixture.store).await;
    while let Some(ended) = rivals.join_next().await {
        ended.unwrap();
    }

    assert_eq!(maintained.floor, Some(old.plus(1)));
    let late = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
    let (day, floor) = (old, old.plus(1));
    assert_eq!(late, [Verdict::TooLate { day, floor }]);
    assert!(!partitions(&fixture).await.contains(&gone));

    // What the floor is for: take it back, and the event is new.
    run(&fixture, "UPDATE inbox_floor SET floor = floor - 1").await;
    let doubled = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
    assert_eq!(doubled, [fresh_verdict()]);
}

/// Field case 121: over both changes of the clock in Europe, Brazil's and Nepal's zones, with a date
/// style that the bounds must not be read by.
async fn bounds_are_midnights_in_utc_whatever_the_sessions_zone<const SERVER: u8>() {
    let today = Day::from_number(20_940); // 2027-05-02
    let fixture = on_day!(SERVER, today);
    fixture.store.set_window_days(300).await.unwrap();
    run(&fixture, "UPDATE inbox_floor SET floor = floor - 292").await;
    let zones = [
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Asia/Kathmandu",
        "UTC",
    ];
    let mut stores = Vec::new();
    for zone in zones {
        stores.push(another(&fixture, 1, Isolation::ReadCommitted, zone).await);
    }
    let consumer = stores[0].open("ledger", DaysFrom::Id).await.unwrap();
    // From before 2026-10-25 to after 2027-03-28, each zone creating a quarter of the days.
    let days: Vec<Day> = (-200..0).map(|before| today.plus(before)).collect();
    for (n, store) in stores.iter().enumerate() {
        let mine = days.iter().enumerate().filter(|(at, _)| at % 4 == n);
        let claims: Vec<Claim> = mine.map(|(_, day)| of_day(*day, 1).into()).collect();
        let verdicts = claim(store, consumer, Late::Refuse, &claims).await;
        assert!(verdicts.iter().all(is_fresh));
    }
    // Every quarter of an hour around the changes.
    for change in [20_751, 20_905] {
        let start = midnight_of(Day::from_number(change - 1));
        let times = (0..3 * 96).map(|quarter| start + DAY / 96 * quarter);
        let claims: Vec<Claim> = times.map(|time| uuid_at(time, 2).into()).collect();
        let fresh = claim(&stores[0], consumer, Late::Refuse, &claims).await;
        assert!(fresh.iter().all(is_fresh));
        for store in &stores[1..] {
            let again = claim(store, consumer, Late::Refuse, &claims).await;
            assert!(again.iter().all(|verdict| *verdict == DUPLICATE));
        }
    }

    let sql = "SELECT count(*), count(DISTINCT day), max(day) - min(day) + 1 FROM (
                   SELECT to_date(right(relname, 8), 'YYYYMMDD') AS day,
                          pg_get_expr(relpartbound, pg_class.oid) AS bound
                   FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
                   WHERE inhparent = 'inbox'::regclass
               ) AS part
               WHERE bound = format('FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYY-MM-DD'), to_char(day + 1, 'YYYY-MM-DD'))";
    let (partitions, days, span): (i64, i64, i32) =
        sqlx::query_as(sql).fetch_one(&fixture.pool).await.unwrap();
    assert_eq!(
        (partitions, days, span),
        (202, 202, 202),
        "no gap and no overlap"
    );
}

/// Field case 119: everybody's maintenance is down, and events of all kinds go on.
async fn maintenance_that_has_not_run_for_a_week_loses_nothing<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut all = Vec::new();
    for later in 0..8 {
        let day = today.plus(later);
        set_day(&fixture, day).await;
        let claims = [
            of_day(day, 1),
            of_day(day.plus(1), 2),
            key(&format!("x-{later}")),
        ];
        let claims = claims.map(Claim::new);
        let verdicts = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
        assert!(verdicts.iter().all(is_fresh), "{verdicts:?}");
        all.extend(claims);
    }

    maintain(&fixture.store).await;

    let again = claim(&fixture.store, consumer, Late::Refuse, &all).await;
    assert_eq!(again, vec![DUPLICATE; all.len()]);
}
