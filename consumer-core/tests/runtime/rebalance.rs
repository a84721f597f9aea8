//! Partitions that come and go.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryStore};
use oneffect_core::{Consumer, Limit};

use super::bench::*;

/// Field case 003: the fence is a partition's, not the consumer's.
#[tokio::test(start_paused = true)]
async fn a_revocation_waits_for_its_own_partition_and_leaves_the_others_alone() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 3),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..30 {
            log.produce(n % 3, event(&format!("e{n}"), &["slow"]));
        }
        let source = log.source();
        let member = source.member();
        let consumer =
            start(Consumer::new("test", source, store.clone(), handler.clone()).workers(1));
        until("the partition's own event runs", || {
            handler.times("e2") == 1
        })
        .await;
        log.revoke(member, 2, Duration::from_mins(1));
        until("it is let go", || log.owner(2).is_none()).await;
        until("the others are through", || {
            log.committed(0) == 10 && log.committed(1) == 10
        })
        .await;

        log.assign(member, 2);
        until_drained(&log, 3).await;
        let stats = consumer.stop().await.unwrap();
        assert_once(&store, (0..30).map(|n| format!("e{n}")));
        assert_eq!(handler.entered().len(), 30, "nothing ran twice");
        assert_eq!(
            (stats.late, stats.duplicates),
            (0, 0),
            "what ran was settled first"
        );
        assert_eq!(log.late_settlements(), 0);
    })
    .await;
}

/// Field case 008: work that outlives its assignment settles nothing.
#[tokio::test(start_paused = true)]
async fn what_ends_after_its_assignment_settles_nothing_and_takes_effect_once() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..10 {
            log.produce(0, event(&format!("e{n}"), &["slow"]));
        }
        let (source, slow) = (log.source(), Scripted::default());
        let member = source.member();
        let a = start(Consumer::new("test", source, store.clone(), slow.clone()));
        until("it runs", || !slow.entered().is_empty()).await;
        log.revoke(member, 0, Duration::from_millis(10));
        until("it is let go, unfinished", || log.owner(0).is_none()).await;
        let committed = log.committed(0);

        let b = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        until("the slow one has ended", || a.stats.snapshot().late > 0).await;
        assert_eq!(log.late_settlements(), 0, "the runtime does not even try");
        assert!(committed <= 10);
        until_drained(&log, 1).await;
        a.stop().await.unwrap();
        b.stop().await.unwrap();
        assert_once(&store, (0..10).map(|n| format!("e{n}")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_let_go_at_once() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..10 {
            log.produce(0, event(&format!("e{n}"), &["slow"]));
        }
        let source = log.source();
        let member = source.member();
        let a = start(Consumer::new(
            "test",
            source,
            store.clone(),
            handler.clone(),
        ));
        until("it runs", || !handler.entered().is_empty()).await;
        log.lose(member, 0);
        until("what waited is dropped", || a.stats.snapshot().dropped > 0).await;
        log.assign(member, 0);
        until_drained(&log, 1).await;
        a.stop().await.unwrap();
        assert_once(&store, (0..10).map(|n| format!("e{n}")));
    })
    .await;
}

/// Field cases 006, 012, 014: a partition that was paused when it left is read when it comes back,
/// from where the group is.
#[tokio::test(start_paused = true)]
async fn a_partition_that_left_while_paused_goes_on_where_the_group_is() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..600 {
            log.produce(0, event(&format!("e{n:03}"), &["slow"]));
        }
        let stuck = Scripted::default();
        log.produce(0, event("last", &["slow"]));
        let source = log.source();
        let member = source.member();
        let limit = Limit {
            messages: 50,
            bytes: 1 << 20,
        };
        let a = start(Consumer::new("test", source, store.clone(), stuck.clone()).in_flight(limit));
        until("it is paused", || log.pauses() > 0).await;
        log.revoke(member, 0, Duration::from_secs(5));
        until("it has left", || log.owner(0).is_none()).await;

        let b_source = log.source();
        let b_member = b_source.member();
        let b = start(Consumer::new(
            "test",
            b_source,
            store.clone(),
            Scripted::default(),
        ));
        until("the other has it", || {
            log.assign(b_member, 0);
            log.owner(0) == Some(b_member)
        })
        .await;
        until("the other is through", || log.committed(0) == 601).await;
        let before = stuck.entered().len();
        for n in 600..700 {
            log.produce(0, event(&format!("e{n:03}"), &["slow"]));
        }
        log.revoke(b_member, 0, Duration::from_secs(5));
        until("the other lets go", || log.owner(0).is_none()).await;
        log.assign(member, 0);
        until_drained(&log, 1).await;
        let after = &stuck.entered()[before..];
        assert!(
            after
                .iter()
                .all(|id| id.as_str() >= "e600" && id.len() == 4),
            "{after:?}"
        );
        a.stop().await.unwrap();
        b.stop().await.unwrap();
        assert_eq!(effects(&store).len(), 701);
        assert!(effects(&store).values().all(|n| *n == 1));
    })
    .await;
}

/// A repeat whose first leaves with its partition is handled here.
#[tokio::test(start_paused = true)]
async fn a_follower_takes_the_place_of_a_first_that_was_taken_away() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(
            0,
            event("wall", &["fail_late", "fail_late", "fail_late", "go"]),
        );
        log.produce(0, event("x", &[]));
        log.produce(1, event("x", &[]));
        let source = log.source();
        let member = source.member();
        let consumer = start(Consumer::new(
            "test",
            source,
            store.clone(),
            handler.clone(),
        ));
        until("the wall stands", || {
            store.attempts("test", &key("wall")).is_some()
        })
        .await;
        log.revoke(member, 0, Duration::from_secs(5));
        until("the follower has run", || log.committed(1) == 1).await;
        assert_once(&store, ["x"]);
        log.assign(member, 0);
        until_drained(&log, 2).await;
        consumer.stop().await.unwrap();
        assert_once(&store, ["wall", "x"]);
    })
    .await;
}

/// Field case 048: at the limit the source is paused; nothing is dropped, and the limit holds.
#[tokio::test(start_paused = true)]
async fn at_the_limit_the_source_is_paused_and_nothing_is_dropped() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        for n in 0..2000 {
            log.produce(n % 2, event(&format!("e{n}"), &[]));
        }
        let limit = Limit {
            messages: 20,
            bytes: 1 << 20,
        };
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).in_flight(limit),
        );
        let stats = consumer.stats.clone();
        let mut most = 0;
        until("the log is drained", || {
            most = most.max(stats.snapshot().in_flight);
            (0..2).all(|p| log.committed(p) == log.end(p))
        })
        .await;
        consumer.stop().await.unwrap();
        assert!(log.pauses() > 0);
        // What was on its way when the pause was asked for still comes.
        assert!(most <= 20 + 2 * 500, "{most}");
        assert_once(&store, (0..2000).map(|n| format!("e{n}")));
    })
    .await;
}

/// One partition that waits for a retry fills its own share, and stalls nobody else's.
#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_does_not_use_up_the_room_of_the_others() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        log.produce(0, event("stuck", &["fail_late"]));
        for n in 0..3000 {
            log.produce(0, event(&format!("behind{n}"), &[]));
            log.produce(1, event(&format!("e{n}"), &[]));
        }
        let limit = Limit {
            messages: 200,
            bytes: 64 << 20,
        };
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .in_flight(limit)
                .retry(oneffect_core::RetrySchedule::default().base(Duration::from_hours(1))),
        );
        until("the other partition is through", || {
            log.committed(1) == 3000
        })
        .await;
        assert_eq!(log.committed(0), 0);
        consumer.stop().await.unwrap();
    })
    .await;
}

/// Field case 015: offsets that do not exist do not stall the watermark.
#[tokio::test(start_paused = true)]
async fn gaps_in_the_offsets_do_not_stall_the_watermark() {
    in_every_lane(|| async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        for n in 0..50 {
            log.produce(0, event(&format!("e{n}"), &[]));
            log.skip_offsets(0, n % 7);
        }
        let last = log.produce(0, event("last", &[]));
        let consumer = start(Consumer::new(
            "test",
            log.source(),
            store.clone(),
            Scripted::default(),
        ));
        until("all is committed", || log.committed(0) == last + 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(effects(&store).len(), 51);
    })
    .await;
}

/// A partition is lost and comes back to the same process while a unit still runs its first event.
/// What comes with the new assignment waits in its lane, and not behind that unit: it would lose its
/// place.
#[tokio::test(start_paused = true)]
async fn a_lane_that_comes_back_keeps_its_order_while_a_unit_of_its_former_self_runs() {
    for first in ["hang", "slow"] {
        locally(async move {
            let (log, store, handler) = (
                MemoryLog::new("t", 1),
                MemoryStore::new(),
                Scripted::default(),
            );
            log.produce(0, event("e0", &[first, "go"]));
            for n in 1..5 {
                log.produce(0, event(&format!("e{n}"), &[]));
            }
            let source = log.source();
            let member = source.member();
            let consumer = start(
                Consumer::new("test", source, store.clone(), handler.clone())
                    .handler_timeout(Duration::from_secs(3)),
            );
            until("it runs", || handler.times("e0") == 1).await;
            log.lose(member, 0);
            until("it is let go", || log.owner(0).is_none()).await;
            log.assign(member, 0);
            until_drained(&log, 1).await;
            let stats = consumer.stop().await.unwrap();
            assert_eq!(store.rows("effect"), ["e0", "e1", "e2", "e3", "e4"]);
            assert_eq!(stats.attempts_charged, 0);
        })
        .await;
    }
}

/// What follows a unit that has lost its partition is given back when the consumer stops.
#[tokio::test(start_paused = true)]
async fn a_partition_lost_during_a_stop_leaves_nothing_behind() {
    in_every_lane(|| async {
        let (log, store, handler) = (
            MemoryLog::new("t", 2),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("x", &["slow"]));
        let source = log.source();
        let member = source.member();
        let consumer = start(Consumer::new(
            "test",
            source,
            store.clone(),
            handler.clone(),
        ));
        until("it runs", || handler.times("x") == 1).await;
        log.produce(1, event("x", &["slow"]));
        let stats = consumer.stats.clone();
        until("the repeat waits", || stats.snapshot().in_flight == 2).await;
        let stopping = consumer.stop();
        let losing = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            log.lose(member, 0);
        };
        let (stats, ()) = tokio::join!(stopping, losing);
        assert_eq!(stats.unwrap().applied, 1);
        assert_once(&store, ["x"]);
    })
    .await;
}
