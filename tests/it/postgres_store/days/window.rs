//! The window, what is forgotten, and what is found before.

use std::time::Duration;

use oneffect_core::{DaysFrom, StoreError};

use super::*;

on_each_server! {
    a_new_inbox_has_the_window_that_was_asked_for
    a_longer_window_brings_nothing_back
    a_shorter_window_forgets_with_the_next_round
    at_most_four_periods_are_looked_through
    a_time_that_changes_doubles_an_event_and_the_audit_finds_it
    ages_are_told_by_the_databases_clock
    nothing_of_another_is_dropped
    there_is_no_partition_for_all_the_rest
}

/// Field case 120: what stood in one could never be attached elsewhere.
async fn there_is_no_partition_for_all_the_rest<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    maintain(&fixture.store).await;
    let rest: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_partitioned_table
         WHERE partdefid <> 0 AND partrelid IN ('inbox'::regclass, 'inbox_open'::regclass)",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(rest, 0);
}

async fn a_new_inbox_has_the_window_that_was_asked_for<const SERVER: u8>() {
    let config = PostgresConfig::default().window_days(30);
    let Some(fixture) = OnServer::<SERVER>::fresh_with(config).await else {
        return;
    };
    assert_eq!(fixture.store.window_days().await.unwrap(), 30);
    let maintained = maintain(&fixture.store).await;
    let today = some_day().plus(-30);
    assert_eq!(maintained.floor, Some(today.plus(-30)));
    assert_eq!(maintained.window_days, Some(30));

    // It belongs to the schema, and a program that says otherwise changes nothing.
    let other = PostgresConfig::default().window_days(3);
    let other = OnServer::<SERVER>::store_at(&fixture.url, &fixture.schema, other).await;
    other.migrate().await.unwrap();
    assert_eq!(other.window_days().await.unwrap(), 30);
    for absurd in [0, 3651, u32::MAX] {
        let refused = other.set_window_days(absurd).await;
        assert!(matches!(refused, Err(StoreError::Misconfigured { .. })));
        let config = PostgresConfig::default().window_days(absurd);
        let refused = Postgres::connect_with(&fixture.url, config).await;
        assert!(matches!(refused, Err(StoreError::Misconfigured { .. })));
    }
}

async fn a_longer_window_brings_nothing_back<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let floor = today.plus(-8);

    fixture.store.set_window_days(20).await.unwrap();

    for later in [0, 1, 11, 12] {
        set_day(&fixture, today.plus(later)).await;
        let maintained = maintain(&fixture.store).await;
        assert_eq!(maintained.floor, Some(floor), "{later}");
    }
    set_day(&fixture, today.plus(13)).await;
    assert_eq!(maintain(&fixture.store).await.floor, Some(floor.plus(1)));
}

async fn a_shorter_window_forgets_with_the_next_round<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let claims = [of_day(today.plus(-5), 1), of_day(today.plus(-3), 1)].map(Claim::new);
    claim(&fixture.store, consumer, Late::Refuse, &claims).await;

    fixture.store.set_window_days(4).await.unwrap();
    let before = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
    let maintained = maintain(&fixture.store).await;
    let after = claim(&fixture.store, consumer, Late::Refuse, &claims).await;

    assert_eq!(before, [DUPLICATE, DUPLICATE]);
    let (day, floor) = (today.plus(-5), today.plus(-4));
    assert_eq!(maintained.floor, Some(floor));
    assert_eq!(after, [Verdict::TooLate { day, floor }, DUPLICATE]);
}

async fn at_most_four_periods_are_looked_through<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    for later in 0..30 {
        set_day(&fixture, today.plus(later)).await;
        maintain(&fixture.store).await;
        let name = format!("x-{later}");
        claim(&fixture.store, consumer, Late::Refuse, &[key(&name).into()]).await;
        let closed: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM inbox_period, inbox_floor WHERE day < open_period",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        assert!(closed <= 4, "{closed} on day {later}");
        let attached = partitions(&fixture).await;
        let open = attached
            .iter()
            .filter(|name| name.starts_with("inbox_open_"));
        assert_eq!(i64::try_from(open.count()).unwrap(), closed + 1);
        // All of a window is still known.
        let known = (later - 8).max(0)..=later;
        let claims: Vec<Claim> = known.map(|day| key(&format!("x-{day}")).into()).collect();
        let verdicts = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
        assert!(
            verdicts.iter().all(|verdict| *verdict == DUPLICATE),
            "day {later}"
        );
    }
}

/// What `producer_repeats_time` promises, broken.
async fn a_time_that_changes_doubles_an_event_and_the_audit_finds_it<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture
        .store
        .open("ledger", DaysFrom::Producer)
        .await
        .unwrap();
    let other = fixture
        .store
        .open("audit", DaysFrom::Producer)
        .await
        .unwrap();
    let stamped = |day: Day| [Claim::new(key("x")).of_day(Some(day))];
    let (yesterday, day_before) = (today.plus(-1), today.plus(-2));
    for (consumer, day) in [
        (consumer, day_before),
        (consumer, yesterday),
        (other, yesterday),
    ] {
        let verdict = claim(&fixture.store, consumer, Late::Refuse, &stamped(day)).await;
        assert_eq!(verdict, [fresh_verdict()], "the same event, stamped anew");
    }

    let (one, rival) = tokio::join!(fixture.store.maintain(), fixture.store.maintain());
    let later = maintain(&fixture.store).await;

    let found = one.unwrap().doubled + rival.unwrap().doubled + later.doubled;
    assert_eq!(found, 1, "once, and told once");
}

async fn ages_are_told_by_the_databases_clock<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let claims = [key("x"), of_day(today, 1)].map(Claim::new);
    claim(&fixture.store, consumer, Late::Refuse, &claims).await;
    let age = 3 * DAY + Duration::from_secs(1);
    fixture.set_clock(midnight_of(today) + DAY / 2 + age).await;

    let mut unit = begin(&fixture.store, consumer, Late::Refuse).await;
    let verdicts = unit.claim(&claims).await.unwrap();
    unit.rollback().await;

    for verdict in verdicts {
        assert!(
            matches!(verdict, Verdict::Duplicate { age: told, .. } if told == age),
            "{verdict:?}"
        );
    }
}

/// A table of somebody else that is called as one of ours would be.
async fn nothing_of_another_is_dropped<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    run(&fixture, "CREATE TABLE inbox_20200101 (precious int)").await;

    set_day(&fixture, today.plus(1)).await;
    maintain(&fixture.store).await;

    assert!(
        partitions(&fixture)
            .await
            .contains(&"inbox_20200101".to_owned())
    );
}
