//! Maintenance that is killed at every step, and what it leaves for the next.

use oneffect_core::DaysFrom;
use tokio::join;

use super::*;

on_each_server! {
    a_detaching_that_was_killed_is_finished_by_the_next_round
    a_partition_that_was_detached_and_not_dropped_is_dropped
    rounds_whose_sessions_are_killed_leave_nothing_behind
}

/// The server waits for a transaction that has used the inbox, and is killed while it does.
async fn a_detaching_that_was_killed_is_finished_by_the_next_round<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let old = [Claim::new(of_day(today.plus(-8), 1))];
    claim(&fixture.store, consumer, Late::Refuse, &old).await;
    set_day(&fixture, today.plus(1)).await;
    let reader = reader(&fixture).await;

    let (interrupted, ()) = join!(fixture.store.maintain(), async {
        until("it waits for the reader", async || {
            waits(&fixture).await > 0
        })
        .await;
        assert!(detaching(&fixture).await > 0);
        run(&fixture, kill("query LIKE '%CONCURRENTLY%'")).await;
    });
    assert!(interrupted.is_err(), "{interrupted:?}");
    assert_eq!(detaching(&fixture).await, 1);
    // Nobody waits for what is half detached.
    let other = [Claim::new(of_day(today, 1)), key("x").into()];
    let verdicts = claim(
        &fixture.store,
        consumer,
        Late::Refuse,
        &[&old[..], &other].concat(),
    )
    .await;
    assert!(matches!(verdicts[0], Verdict::TooLate { .. }));
    assert!(is_fresh(&verdicts[1]) && is_fresh(&verdicts[2]));

    reader.rollback().await.unwrap();
    let maintained = maintain(&fixture.store).await;

    assert_eq!(maintained.dropped, 1);
    assert_eq!(detaching(&fixture).await, 0);
    assert!(
        !partitions(&fixture)
            .await
            .contains(&partition("inbox", today.plus(-8)))
    );
}

async fn a_partition_that_was_detached_and_not_dropped_is_dropped<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let old = [Claim::new(of_day(today.plus(-8), 1))];
    claim(&fixture.store, consumer, Late::Refuse, &old).await;
    set_day(&fixture, today.plus(1)).await;
    let gone = partition("inbox", today.plus(-8));
    run(
        &fixture,
        format!("ALTER TABLE inbox DETACH PARTITION {gone} CONCURRENTLY"),
    )
    .await;

    let maintained = maintain(&fixture.store).await;

    assert_eq!(maintained.dropped, 1);
    assert!(!partitions(&fixture).await.contains(&gone));
}

/// Two maintainers, writers, and somebody who kills sessions of all of them, for a month of days.
async fn rounds_whose_sessions_are_killed_leave_nothing_behind<const SERVER: u8>() {
    let start = some_day();
    let fixture = on_day!(SERVER, start);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let other = another(&fixture, 3, Isolation::ReadCommitted, "Asia/Tokyo").await;
    for later in 1..=30 {
        let today = start.plus(later);
        set_day(&fixture, today).await;
        let claims = [
            of_day(today, 1),
            of_day(today.plus(-8), 2),
            key(&format!("x-{later}")),
        ];
        let claims = claims.map(Claim::new);
        let _ = join!(fixture.store.maintain(), other.maintain(), async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(7)).await;
                run(&fixture, kill("random() < 0.5")).await;
            }
        });
        // Whatever was killed, claims are answered.
        let verdicts = claim(&fixture.store, consumer, Late::Refuse, &claims).await;
        assert!(
            is_fresh(&verdicts[0]) && is_fresh(&verdicts[2]),
            "{verdicts:?}"
        );
        let again = claim(&other, consumer, Late::Refuse, &claims).await;
        assert_eq!([&again[0], &again[2]], [&DUPLICATE, &DUPLICATE]);
    }

    maintain(&fixture.store).await;

    let today = start.plus(30);
    let there = partitions(&fixture).await;
    for (name, day) in there
        .iter()
        .filter_map(|name| Some((name, name.strip_prefix("inbox_2")?)))
    {
        let oldest = partition("inbox", today.plus(-8));
        assert!(*name >= oldest, "{day} is below the floor: {there:?}");
    }
    assert_eq!(detaching(&fixture).await, 0);
    let checks: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
         WHERE contype = 'c' AND relnamespace = to_regnamespace($1)::oid AND relname ~ '^inbox_(open_)?[0-9]'",
    )
    .bind(&fixture.schema)
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(checks, 0, "a CHECK is left behind");
}

/// A transaction that has read the inbox, and does not end.
async fn reader<const SERVER: u8>(
    fixture: &OnServer<SERVER>,
) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut reader = fixture.pool.begin().await.unwrap();
    sqlx::raw_sql("SELECT count(*) FROM inbox")
        .execute(&mut *reader)
        .await
        .unwrap();
    reader
}

async fn detaching<const SERVER: u8>(fixture: &OnServer<SERVER>) -> i64 {
    let sql = "SELECT count(*) FROM pg_inherits
               WHERE inhdetachpending AND inhparent IN ('inbox'::regclass, 'inbox_open'::regclass)";
    sqlx::query_scalar(sql)
        .fetch_one(&fixture.pool)
        .await
        .unwrap()
}

/// How many of the store's sessions wait for a lock while they detach.
async fn waits<const SERVER: u8>(fixture: &OnServer<SERVER>) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE '%CONCURRENTLY%'";
    let count = sqlx::query_scalar(sql).bind(&fixture.schema);
    count.fetch_one(&fixture.pool).await.unwrap()
}

/// Ends sessions of the store.
fn kill(which: &str) -> String {
    format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = current_schema() AND {which}"
    )
}
