//! Why the floor and the open period are moved under a lock of a table, and what happens without.

use oneffect_core::DaysFrom;
use sqlx::{Connection, PgConnection};

use super::*;

on_each_server! {
    the_open_period_does_not_move_under_a_running_unit
    without_the_barrier_an_event_takes_effect_twice
    a_late_event_is_not_taken_as_new_beside_a_unit_that_holds_it
    a_lock_taken_by_select_leaves_a_strict_unit_under_the_old_period
    whoever_moves_them_holds_nobody_back_for_long
}

async fn period<const SERVER: u8>(fixture: &OnServer<SERVER>) -> String {
    let sql = "SELECT to_char(open_period, 'YYYY-MM-DD') FROM inbox_floor";
    sqlx::query_scalar(sql)
        .fetch_one(&fixture.pool)
        .await
        .unwrap()
}

async fn take_effect(mut unit: PostgresUnit, event: &EventKey) {
    write_effect(unit.connection(), event).await;
    unit.commit().await.unwrap();
}

async fn the_open_period_does_not_move_under_a_running_unit<const SERVER: u8>() {
    for isolation in ISOLATIONS {
        let today = some_day();
        let fixture = on_day!(SERVER, today);
        let store = another(&fixture, 4, isolation, "UTC").await;
        let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
        // Its snapshot is to be no older than its lock.
        let mut early = begin(&store, consumer, Late::Refuse).await;
        set_day(&fixture, today.plus(5)).await;

        let postponed = fixture.store.maintain().await.unwrap();
        assert!(postponed.postponed);
        assert_eq!(period(&fixture).await, today.to_string());
        let claims = [key("x").into()];
        assert_eq!(early.claim(&claims).await.unwrap(), [fresh_verdict()]);
        take_effect(early, &key("x")).await;
        maintain(&fixture.store).await;
        assert_eq!(period(&fixture).await, today.plus(5).to_string());

        let late = claim(&store, consumer, Late::Refuse, &claims).await;
        assert_eq!(late, [DUPLICATE], "{isolation:?}");
    }
}

/// Shown by breaking it: the period is moved without the lock.
async fn without_the_barrier_an_event_takes_effect_twice<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let claims = [key("x").into()];
    let mut early = begin(&fixture.store, consumer, Late::Refuse).await;
    early.claim(&claims).await.unwrap();

    let moved = "UPDATE inbox_floor SET open_period = open_period + 2;
                 INSERT INTO inbox_period SELECT open_period, now() FROM inbox_floor";
    run(&fixture, moved).await;
    let mut late = begin(&fixture.store, consumer, Late::Refuse).await;
    assert_eq!(late.claim(&claims).await.unwrap(), [fresh_verdict()]);
    take_effect(early, &key("x")).await;
    take_effect(late, &key("x")).await;

    assert_eq!(effects_by_number(&fixture).await, [("x".to_owned(), 2)]);
}

/// The unit that has an old event by its day, and one that files the same event as new.
async fn a_late_event_is_not_taken_as_new_beside_a_unit_that_holds_it<const SERVER: u8>() {
    let today = some_day();
    for breaks in [false, true] {
        let fixture = on_day!(SERVER, today);
        let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
        let event = of_day(today.plus(-8), 1);
        let claims = [Claim::new(event.clone())];
        let mut early = begin(&fixture.store, consumer, Late::Refuse).await;
        assert_eq!(early.claim(&claims).await.unwrap(), [fresh_verdict()]);

        set_day(&fixture, today.plus(1)).await;
        if breaks {
            run(&fixture, "UPDATE inbox_floor SET floor = floor + 1").await;
        } else {
            assert!(fixture.store.maintain().await.unwrap().postponed);
        }
        let rival = async {
            let mut late = begin(&fixture.store, consumer, Late::AsNew).await;
            let verdict = ageless(late.claim(&claims).await.unwrap()).remove(0);
            if is_fresh(&verdict) {
                write_effect(late.connection(), &event).await;
            }
            late.commit().await.unwrap();
            verdict
        };
        let (verdict, ()) = tokio::join!(rival, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            take_effect(early, &event).await;
        });

        let effects = if breaks { 2 } else { 1 };
        assert_eq!(
            effects_by_number(&fixture).await,
            [(event.id.to_string(), effects)]
        );
        assert_eq!(is_fresh(&verdict), breaks);
        if !breaks {
            // Once it is forgotten nobody can say; but one who takes it as new does so once.
            maintain(&fixture.store).await;
            let as_new = claim(&fixture.store, consumer, Late::AsNew, &claims).await;
            assert_eq!(as_new, [fresh_verdict()]);
            for later in 1..=8 {
                set_day(&fixture, today.plus(1 + later)).await;
                maintain(&fixture.store).await;
                let again = claim(&fixture.store, consumer, Late::AsNew, &claims).await;
                assert_eq!(again, [DUPLICATE], "{later} days later");
            }
        }
    }
}

/// A unit that begins while the period is being moved, by each kind of lock: the SELECT takes its
/// snapshot before it waits, LOCK takes none.
async fn a_lock_taken_by_select_leaves_a_strict_unit_under_the_old_period<const SERVER: u8>() {
    let today = some_day();
    let locks = [
        (
            "SELECT pg_advisory_xact_lock_shared(7)",
            "SELECT pg_advisory_xact_lock(7)",
            false,
        ),
        (
            "LOCK TABLE inbox_floor IN ROW SHARE MODE",
            "LOCK TABLE inbox_floor IN EXCLUSIVE MODE",
            true,
        ),
    ];
    for (shared, exclusive, is_right) in locks {
        let fixture = on_day!(SERVER, today);
        let mut mover = fixture.pool.begin().await.unwrap();
        sqlx::raw_sql(exclusive).execute(&mut *mover).await.unwrap();
        let options: PgConnectOptions = fixture.url.parse().unwrap();
        let options = options.options([("search_path", &fixture.schema)]);
        let mut unit = PgConnection::connect_with(&options).await.unwrap();

        let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {shared}");
        let waiting = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut unit);
        let (begun, ()) = tokio::join!(waiting, async {
            until("it waits", async || {
                let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()
                           AND (relation = to_regclass('inbox_floor') OR (locktype = 'advisory' AND objid = 7))";
                let count: i64 = sqlx::query_scalar(sql).fetch_one(&fixture.pool).await.unwrap();
                count > 0
            })
            .await;
            let sql = "UPDATE inbox_floor SET open_period = open_period + 2";
            sqlx::raw_sql(sql).execute(&mut *mover).await.unwrap();
            mover.commit().await.unwrap();
        });
        begun.unwrap();

        let sql = "SELECT to_char(open_period, 'YYYY-MM-DD') FROM inbox_floor";
        let sees: String = sqlx::query_scalar(sql).fetch_one(&mut unit).await.unwrap();
        let now = period(&fixture).await;
        assert_eq!(sees == now, is_right, "{shared}: {sees}, and it is {now}");
    }
}

/// A unit that runs for long makes the mover give up, and units that begin meanwhile go on.
async fn whoever_moves_them_holds_nobody_back_for_long<const SERVER: u8>() {
    let today = some_day();
    let fixture = on_day!(SERVER, today);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut slow = begin(&fixture.store, consumer, Late::Refuse).await;
    slow.claim(&[key("slow").into()]).await.unwrap();
    set_day(&fixture, today.plus(5)).await;

    let mut others = 0;
    let maintaining = fixture.store.maintain();
    tokio::pin!(maintaining);
    let postponed = loop {
        let name = format!("other-{others}");
        let other = [key(&name).into()];
        tokio::select! {
            maintained = &mut maintaining => break maintained.unwrap().postponed,
            verdicts = claim(&fixture.store, consumer, Late::Refuse, &other) => {
                assert_eq!(verdicts, [fresh_verdict()]);
                others += 1;
            }
        }
    };

    assert!(postponed);
    assert!(others > 0, "nobody else got through");
    slow.commit().await.unwrap();
}
