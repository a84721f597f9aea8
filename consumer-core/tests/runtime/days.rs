//! Midnight, what is late, and what a consumer does beside its events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oneffect_core::testing::{Call, MemoryLog, MemoryStore, Message, Unreliable};
use oneffect_core::{
    Blame, Cause, Consumer, ConsumerId, Day, DaysFrom, DeadLetterKind, LatePolicy, RunError,
    Settled, Store, StoreError, TimeFrom,
};

use super::bench::*;

const HOUR: Duration = Duration::from_hours(1);

fn midnight(day: Day) -> SystemTime {
    UNIX_EPOCH + 24 * HOUR * u32::try_from(day.number()).unwrap()
}

/// An id that is of that day (a UUID of version 7).
pub(crate) fn id_of(day: Day, number: u32) -> String {
    let millis = midnight(day).duration_since(UNIX_EPOCH).unwrap();
    let hex = format!("{:012x}", millis.as_millis());
    format!("{}-{}-7000-8000-{number:012x}", &hex[..8], &hex[8..])
}

/// A store whose clock shows so much time before the end of a day that the process's clock has not reached: whoever
/// takes the process's for the database's is found out.
fn store_before_midnight(left: Duration) -> (MemoryStore, Day) {
    let store = MemoryStore::new();
    let today = Day::of(store.now()).plus(100);
    store.set_now(midnight(today.plus(1)).checked_sub(left).unwrap());
    (store, today)
}

/// As [`store_before_midnight`], at noon, with the floor where it belongs.
pub(crate) async fn maintained_store() -> (MemoryStore, Day) {
    let (store, today) = store_before_midnight(12 * HOUR);
    store.maintain().await.unwrap();
    (store, today)
}

/// The first consumer that a store knows.
const TEST: ConsumerId = ConsumerId(0);

fn kinds(store: &MemoryStore) -> Vec<DeadLetterKind> {
    let letters = store.dead_letters().into_iter();
    letters.map(|(letter, _)| letter.kind).collect()
}

async fn handled(handler: &Scripted, count: usize) {
    until("all are handled", || handler.entered().len() >= count).await;
}

/// Field case 117: the event fails before midnight and succeeds after it, and comes again before, at
/// and after.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_retried_across_midnight_takes_effect_once() {
    for own_day in [true, false] {
        locally(async move {
            let (store, today) = store_before_midnight(Duration::from_millis(900));
            let (log, handler) = (MemoryLog::new("t", 4), Scripted::default());
            let id = if own_day { id_of(today, 1) } else { "x".into() };
            let script = ["fail_late", "fail", "fail_late", "go"];
            log.produce(0, event(&id, &script));
            let consumer = start(Consumer::new(
                "test",
                log.source(),
                store.clone(),
                handler.clone(),
            ));
            for partition in 1..4 {
                tokio::time::sleep(Duration::from_millis(450)).await;
                log.produce(partition, event(&id, &script));
            }
            until_drained(&log, 4).await;
            assert!(store.now() > midnight(today.plus(1)));
            tokio::time::sleep(40 * HOUR).await;
            log.produce(2, event(&id, &script));
            until_drained(&log, 4).await;
            let stats = consumer.stop().await.unwrap();

            assert_once(&store, [id]);
            assert_eq!((stats.applied, stats.duplicates), (1, 4));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_of_yesterday_is_not_run_again_today() {
    for own_day in [true, false] {
        locally(async move {
            let (store, today) = store_before_midnight(Duration::from_mins(5));
            let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
            let id = if own_day { id_of(today, 1) } else { "x".into() };
            log.produce(0, event(&id, &["fail"]));
            let consumer = start(Consumer::new(
                "test",
                log.source(),
                store.clone(),
                handler.clone(),
            ));
            until_drained(&log, 1).await;
            assert!(store.now() > midnight(today.plus(1)));
            let entered = handler.times(&id);

            tokio::time::sleep(24 * HOUR).await;
            log.produce(0, event(&id, &["go"]));
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();

            assert_eq!(handler.times(&id), entered);
            assert_eq!((stats.dead_lettered, stats.duplicates), (1, 1));
            assert_settled(&store, &id, Settled::Dead);
        })
        .await;
    }
}

/// Field case 117, with the process gone between the commit and its acknowledgement.
#[tokio::test(start_paused = true)]
async fn what_was_committed_before_a_crash_at_midnight_is_a_duplicate_after_it() {
    locally(async {
        let (store, today) = store_before_midnight(Duration::from_secs(1));
        let log = MemoryLog::with_commit_interval("t", 1, HOUR);
        let handler = Scripted::default();
        let mut ids: Vec<String> = (0..20).map(|n| format!("open-{n}")).collect();
        ids.extend((0..20).map(|n| id_of(today, n)));
        ids.extend((0..20).map(|n| id_of(today.plus(1), n)));
        for id in &ids {
            log.produce(0, event(id, &[]));
        }
        let consumer = || Consumer::new("test", log.source(), store.clone(), handler.clone());
        let first = start(consumer());
        handled(&handler, ids.len()).await;
        until("all is committed", || {
            store.inbox("test").len() == ids.len()
        })
        .await;
        first.crash().await;
        assert_eq!(log.committed(0), 0);

        tokio::time::sleep(2 * HOUR).await;
        let second = start(consumer());
        until("all is settled", || second.stats.snapshot().settled() == 60).await;
        let stats = second.stop().await.unwrap();

        assert_once(&store, ids);
        assert_eq!((stats.applied, stats.duplicates), (0, 60));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_event_among_young_ones_is_set_aside_at_once_and_counted_on_its_own() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        let late = id_of(today.plus(-30), 0);
        for n in 0..40 {
            let id = if n == 20 {
                late.clone()
            } else {
                id_of(today, n)
            };
            log.produce(0, event(&id, &[]));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        let begun = tokio::time::Instant::now();
        until_drained(&log, 1).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "nothing waited");
        // It is no duplicate, and another letter of the same kind is counted there.
        log.produce(0, event(&late, &[]));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(
            &store,
            (0..40).filter(|n| *n != 20).map(|n| id_of(today, n)),
        );
        assert_eq!(
            (stats.applied, stats.dead_lettered, stats.too_late),
            (39, 2, 2)
        );
        assert_eq!(stats.duplicates, 0);
        let [(letter, deliveries)] = &store.dead_letters()[..] else {
            panic!("not one letter")
        };
        assert_eq!((letter.kind, *deliveries), (DeadLetterKind::TooLate, 2));
        assert_eq!(letter.event, Some(key(&late)));
        let floor = today.plus(-8).to_string();
        assert!(letter.error.contains(&floor), "{}", letter.error);
        assert_eq!(store.outcome("test", &key(&late)), None);
    })
    .await;
}

/// With nothing around it, it may be the first of a backlog: a moment shows.
#[tokio::test(start_paused = true)]
async fn a_few_late_events_on_a_quiet_topic_are_set_aside_after_a_moment() {
    for count in [1, 15] {
        locally(async move {
            let (store, today) = maintained_store().await;
            let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
            for n in 0..count {
                log.produce(0, event(&id_of(today.plus(-30), n), &[]));
            }
            let consumer = start(Consumer::new(
                "test",
                log.source(),
                store.clone(),
                handler.clone(),
            ));
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();

            assert_eq!(stats.too_late, u64::from(count));
            assert!(handler.entered().is_empty());
        })
        .await;
    }
}

/// Ends with [`RunError::Lagging`], and nothing of the backlog is gone.
async fn expect_lagging(consumer: Running, store: &MemoryStore) -> String {
    let ended = tokio::time::timeout(HOUR, consumer.ended()).await;
    let Ok(Err(RunError::Lagging(arithmetic))) = ended else {
        panic!("it did not stop for its lag: {ended:?}")
    };
    assert!(store.dead_letters().is_empty());
    arithmetic
}

#[tokio::test(start_paused = true)]
async fn a_backlog_stops_the_consumer_before_any_of_it_is_set_aside() {
    for pause in [Duration::ZERO, Duration::from_millis(500)] {
        locally(async move {
            let (store, today) = maintained_store().await;
            let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
            let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone());
            let health = consumer.health();
            let consumer = start(consumer);
            for n in 0..40 {
                // One by one, as a slow source hands them out; and all at once.
                log.produce(0, event(&id_of(today.plus(-20), n), &[]));
                tokio::time::sleep(pause).await;
            }

            let arithmetic = expect_lagging(consumer, &store).await;

            for part in [
                today.to_string(),
                today.plus(-8).to_string(),
                "8 days".into(),
                today.plus(-20).to_string(),
                "a lag of 20 days".into(),
            ] {
                assert!(arithmetic.contains(&part), "{part}: {arithmetic}");
            }
            assert!(health.snapshot().has(Cause::LagGuard));
            assert_eq!(log.committed(0), 0);
            assert!(handler.entered().is_empty());
        })
        .await;
    }
}

/// Each partition has a lag of its own, and the broker's timestamps show it.
#[tokio::test(start_paused = true)]
async fn a_backlog_in_one_partition_is_seen_beside_young_ones() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 2), Scripted::default());
        let sent = |message: Message, day: Day| message.published_at(midnight(day));
        for n in 0..40 {
            log.produce(0, sent(event(&id_of(today, n), &[]), today));
            let day = today.plus(-20);
            log.produce(1, sent(event(&id_of(day, n), &[]), day));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));

        expect_lagging(consumer, &store).await;

        assert_eq!(log.committed(1), 0);
    })
    .await;
}

/// Old events that were sent just now, as an operator's replay sends them, are no lag of ours.
#[tokio::test(start_paused = true)]
async fn late_events_that_were_sent_just_now_are_set_aside_however_many_they_are() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        for n in 0..40 {
            let message = event(&id_of(today.plus(-20), n), &[]);
            log.produce(0, message.published_at(midnight(today)));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_eq!(stats.too_late, 40);
    })
    .await;
}

/// Another member's or a rewound position may bring an event whose day was still remembered when it
/// was received.
#[tokio::test(start_paused = true)]
async fn an_event_that_fails_until_its_day_is_forgotten_is_set_aside_as_too_late() {
    locally(async {
        let (store, today) = store_before_midnight(Duration::from_mins(1));
        store.maintain().await.unwrap();
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        let (old, young) = (id_of(today.plus(-8), 1), id_of(today, 1));
        log.produce(0, event(&old, &["fail_late"]));
        log.produce(0, event(&young, &[]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, [young]);
        assert_eq!(
            (stats.too_late, kinds(&store)),
            (1, vec![DeadLetterKind::TooLate])
        );
        assert!(stats.attempts_charged > 2);
        assert_eq!(store.attempts("test", &key(&old)), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn old_history_is_processed_as_new_once_and_only_until_the_deadline() {
    locally(async {
        let (store, today) = maintained_store().await;
        let log = MemoryLog::with_commit_interval("t", 1, HOUR);
        let handler = Scripted::default();
        let ids: Vec<String> = (0..60).map(|n| id_of(today.plus(-20), n)).collect();
        for id in &ids {
            log.produce(0, event(id, &[]));
        }
        let until_then = store.now() + HOUR;
        let consumer = || {
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .late(LatePolicy::ProcessAsNewUntil(until_then))
        };
        let first = start(consumer());
        until("all is committed", || {
            store.inbox("test").len() == ids.len()
        })
        .await;
        first.crash().await;
        // Redelivered, they are duplicates.
        let second = start(consumer());
        until("all is settled", || second.stats.snapshot().settled() == 60).await;
        assert_eq!(second.stats.snapshot().duplicates, 60);
        assert_once(&store, ids);

        tokio::time::sleep(HOUR).await;
        let settled = second.stats.snapshot().settled();
        for n in 0..30 {
            log.produce(0, event(&id_of(today, n), &[]));
        }
        log.produce(0, event(&id_of(today.plus(-20), 1000), &[]));
        until("all is settled", || {
            second.stats.snapshot().settled() == settled + 31
        })
        .await;
        let stats = second.stop().await.unwrap();
        assert_eq!((stats.applied, stats.too_late), (30, 1));
    })
    .await;
}

/// The process's clock is a hundred days behind the database's.
#[tokio::test(start_paused = true)]
async fn the_deadline_is_by_the_clock_of_the_database() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        let over = midnight(today);
        let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .late(LatePolicy::ProcessAsNewUntil(over));
        let consumer = start(consumer);
        tokio::time::sleep(Duration::from_secs(1)).await;
        log.produce(0, event(&id_of(today.plus(-20), 1), &[]));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_eq!((stats.applied, stats.too_late), (0, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_day_too_far_ahead_is_set_aside_and_the_lane_goes_on() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        let [near, far] = [1, 2].map(|days| id_of(today.plus(days), 1));
        for id in [&far, &near] {
            log.produce(0, event(id, &[]));
        }
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, [near]);
        assert_eq!(kinds(&store), [DeadLetterKind::Future]);
        assert_eq!((stats.dead_lettered, stats.future), (1, 1));
    })
    .await;
}

fn timed(id: &str, time: &str) -> Message {
    event(id, &[]).header("occurred-at", time.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_time_that_the_producer_repeats_gives_the_day() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 2), Scripted::default());
        let consumer = |log: &MemoryLog| {
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .producer_repeats_time(TimeFrom::header("occurred-at"))
        };
        let at = |day: Day| format!("{day}T23:59:59.999Z");
        log.produce(0, timed("x", &at(today)));
        log.produce(0, timed("late", &at(today.plus(-30))));
        log.produce(0, timed("far", &at(today.plus(2))));
        log.produce(0, timed("unreadable", "yesterday"));
        log.produce(0, event("untimed", &[]));
        // Whoever follows an event that has no day is not like it.
        log.produce(0, timed("untimed", &at(today)));
        let running = start(consumer(&log));
        until_drained(&log, 1).await;
        tokio::time::sleep(30 * HOUR).await;
        log.produce(1, timed("x", &at(today)));
        until_drained(&log, 2).await;
        let stats = running.stop().await.unwrap();

        assert_once(&store, ["untimed", "x"]);
        assert_eq!(
            (stats.too_late, stats.future, stats.dead_lettered),
            (1, 1, 4)
        );
        assert_eq!((stats.applied, stats.duplicates), (2, 1));
        let letters = store.dead_letters();
        let poison = letters
            .iter()
            .filter(|(letter, _)| letter.kind == DeadLetterKind::Poison)
            .map(|(letter, _)| (letter.event.clone().unwrap(), letter.error.clone()));
        for (event, error) in poison {
            let told = if event == key("untimed") {
                "header \"occurred-at\""
            } else {
                "RFC 3339"
            };
            assert!(error.contains(told), "{error}");
        }
        assert_eq!(store.outcome("test", &key("unreadable")), None);

        // Whoever asks for another source of days is told, before anything is doubled.
        let other = Consumer::new("test", log.source(), store.clone(), handler.clone());
        let refused = start(other).ended().await;
        assert!(
            matches!(
                refused,
                Err(RunError::Store(StoreError::Misconfigured { .. }))
            ),
            "{refused:?}"
        );
        let pointer = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .producer_repeats_time(TimeFrom::json_pointer("no slash"));
        let refused = start(pointer).ended().await;
        assert!(matches!(refused, Err(RunError::Config(_))), "{refused:?}");
    })
    .await;
}

/// What the opt-in's name asks to be promised, broken: nobody can prevent it, but it is found.
#[tokio::test(start_paused = true)]
async fn a_producer_that_stamps_each_sending_anew_is_found_out_when_the_day_is_closed() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .producer_repeats_time(TimeFrom::header("occurred-at"));
        let consumer = start(consumer);
        log.produce(0, timed("x", &format!("{today}T23:59:59Z")));
        log.produce(0, timed("y", &format!("{today}T23:59:59Z")));
        until_drained(&log, 1).await;
        tokio::time::sleep(14 * HOUR).await;
        log.produce(0, timed("x", &format!("{}T00:00:01Z", today.plus(1))));
        until_drained(&log, 1).await;
        assert_eq!(effects(&store)["x"], 2);
        assert_eq!(consumer.stats.snapshot().doubled, 0);

        tokio::time::sleep(24 * HOUR).await;

        assert_eq!(consumer.stop().await.unwrap().doubled, 1);
    })
    .await;
}

/// Where both are in this process at once, the first decides for both whatever their days.
#[tokio::test(start_paused = true)]
async fn a_repeat_with_another_time_beside_its_first_is_a_duplicate() {
    locally(async {
        let (store, today) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 2), Scripted::default());
        let at = |day: Day| format!("{day}T12:00:00Z");
        let slow = event("x", &["slow"]).header("occurred-at", at(today));
        log.produce(0, slow);
        log.produce(1, timed("x", &at(today.plus(-1))));
        let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .producer_repeats_time(TimeFrom::header("occurred-at"));
        let consumer = start(consumer);
        until_drained(&log, 2).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, ["x"]);
        assert_eq!((stats.applied, stats.duplicates), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_consumer_maintains_the_inbox_and_goes_on_when_that_fails() {
    locally(async {
        let (store, today) = maintained_store().await;
        let unreliable = Unreliable::new(store.clone());
        let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
        log.produce(0, event("x", &[]));
        log.produce(0, event(&id_of(today, 1), &[]));
        let consumer = Consumer::new("test", log.source(), unreliable.clone(), handler.clone());
        let consumer = start(consumer);
        until_drained(&log, 1).await;
        assert_eq!(store.inbox("test").len(), 2);
        for _ in 0..3 {
            unreliable.fail_next(Call::Maintain, Blame::Outage);
        }
        store.set_now(midnight(today.plus(9)));
        log.produce(0, event("y", &[]));
        until_drained(&log, 1).await;
        until("the floor has risen", || store.floor() == today.plus(1)).await;
        let failed = unreliable.injected();
        consumer.stop().await.unwrap();

        assert_eq!(failed.len(), 3, "{failed:?}");
        let left: Vec<_> = store
            .inbox("test")
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(left, [key("y")]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_ages_of_duplicates_are_counted_and_handed_in() {
    locally(async {
        let (store, _) = maintained_store().await;
        let (log, handler) = (MemoryLog::new("t", 2), Scripted::default());
        // The second follows the first in this process, and so is as old as nothing.
        log.produce(0, event("x", &["slow"]));
        log.produce(1, event("x", &["slow"]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            handler.clone(),
        ));
        until_drained(&log, 2).await;
        tokio::time::sleep(26 * HOUR).await;
        let noted = store.duplicate_ages(TEST).await.unwrap();
        assert_eq!((noted.count(), noted.oldest()), (1, Some(Duration::ZERO)));
        // What comes between the last beat and the stop counts as well.
        log.produce(1, event("x", &[]));
        until_drained(&log, 2).await;
        let stats = consumer.stop().await.unwrap();

        let noted = store.duplicate_ages(TEST).await.unwrap();
        assert_eq!(noted.count(), 2);
        let oldest = noted.oldest().unwrap();
        assert!(oldest >= 26 * HOUR && oldest < 27 * HOUR, "{oldest:?}");
        assert_eq!(stats.oldest_duplicate.as_secs(), oldest.as_secs());
        assert_eq!(store.open("test", DaysFrom::Id).await.unwrap(), TEST);
    })
    .await;
}
