//! Partitions that come and go under everything else, by seed.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryQueue, MemoryStore, Unreliable};
use oneffect_core::{Consumer, ConsumerConfig, Lanes, Limit, RetrySchedule};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::bench::*;

const ACTS: [&str; 10] = [
    "go",
    "fail",
    "fail_late",
    "panic",
    "panic_late",
    "swallow",
    "deadlock",
    "elsewhere",
    "hang",
    "slow",
];

/// Two consumers that crash and stop, and whose partitions are revoked, lost and given back, to the
/// same process too, with deadlines that are often too short. `same`: repeats come in the partition of
/// their first, so that the order of each partition can be told.
#[allow(clippy::too_many_lines)] // one run, told from its beginning to its end
async fn tempest(seed: u64, same: bool, batches: bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let log = MemoryLog::with_commit_interval("t", 4, Duration::from_millis(300));
    let memory = MemoryStore::new();
    let store = Unreliable::with_probability(memory.clone(), seed, 0.05);
    let handler = Scripted::default();
    let mut good = Vec::new();
    for n in 0..200 {
        let partition = rng.random_range(0..4);
        let lane = rng.random_range(0..4);
        let id = format!("p{partition}k{lane}-{n:03}");
        let act = if rng.random_bool(0.2) {
            ACTS[rng.random_range(0..ACTS.len())]
        } else {
            "go"
        };
        let make = if rng.random_bool(0.5) { event } else { staged };
        let message = of_key(make(&id, &[act, act, "go"]), partition, lane);
        good.push(id);
        log.produce(partition, message.clone());
        if rng.random_bool(0.3) {
            log.produce(
                if same {
                    partition
                } else {
                    rng.random_range(0..4)
                },
                message,
            );
        }
    }
    let limit = Limit {
        messages: rng.random_range(1..60),
        bytes: 1 << 20,
    };
    let new = |seed| {
        let source = log.source();
        let member = source.member();
        let mut config = ConsumerConfig::default();
        config.seed = Some(seed);
        config.workers = 3;
        config.in_flight = limit;
        config.drain = Duration::from_millis(2500);
        config.handler_timeout = Duration::from_secs(2);
        config.retry = RetrySchedule::default()
            .max_attempts(1000)
            .cap(Duration::from_secs(5));
        let (store, handler) = (store.clone(), handler.clone());
        (
            member,
            start_either(batches, source, store, handler, config),
        )
    };
    let mut consumers = vec![new(1), new(2)];
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..900))).await;
        let at = rng.random_range(0..consumers.len());
        let member = consumers[at].0;
        match rng.random_range(0..10) {
            0 => {
                consumers.remove(at).1.crash().await;
                consumers.push(new(rng.random()));
            }
            1 => {
                let p = rng.random_range(0..4);
                if log.owner(p) == Some(member) {
                    log.revoke(member, p, Duration::from_millis(rng.random_range(1..3000)));
                }
                let _ = consumers.remove(at).1.stop().await;
                consumers.push(new(rng.random()));
            }
            2..=4 => {
                for p in 0..4 {
                    if log.owner(p) == Some(member) && rng.random_bool(0.5) {
                        let d = if rng.random_bool(0.3) {
                            Duration::ZERO
                        } else {
                            Duration::from_millis(rng.random_range(1..3000))
                        };
                        log.revoke(member, p, d);
                    }
                }
            }
            5 => {
                for p in 0..4 {
                    if log.owner(p) == Some(member) {
                        log.lose(member, p);
                    }
                }
            }
            _ => {
                for p in 0..4 {
                    if log.owner(p).is_none() {
                        log.assign(member, p);
                    }
                }
            }
        }
    }
    // No partition may be left without an owner.
    until("all is drained", || {
        for p in 0..4 {
            if log.owner(p).is_none() {
                log.assign(consumers[0].0, p);
            }
        }
        (0..4).all(|p| log.committed(p) == log.end(p))
    })
    .await;
    for (_, consumer) in consumers {
        let _ = consumer.stop().await;
    }
    assert_once(&memory, good);
    assert_eq!(memory.open_units(), 0);
    assert_eq!(memory.dead_letters().len(), 0);
    if same {
        assert_in_order(&memory);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_and_goes_every_event_takes_effect_once() {
    for lanes in [Lanes::Partition, Lanes::Key, Lanes::Unordered] {
        for seed in 0..20 {
            in_lanes(lanes, async move {
                eprintln!("seed {seed}");
                tempest(seed, seed % 2 == 0, seed % 3 == 1).await;
            })
            .await;
        }
    }
}

/// The same for the message groups of a queue, through waits in memory and at the broker.
async fn groups(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let queue = MemoryQueue::fifo("q");
    let memory = MemoryStore::new();
    let store = Unreliable::with_probability(memory.clone(), seed, 0.05);
    let handler = Scripted::default();
    let mut good = Vec::new();
    for n in 0..150 {
        let group = rng.random_range(0..5);
        let id = format!("g{group}-{n:03}");
        let act = if rng.random_bool(0.2) {
            ACTS[rng.random_range(0..ACTS.len())]
        } else {
            "go"
        };
        let make = if rng.random_bool(0.5) { event } else { staged };
        let message = make(&id, &[act, act, "go"]).group(format!("{group}").into_bytes());
        good.push(id);
        queue.send(message.clone());
        if rng.random_bool(0.3) {
            queue.send(message);
        }
    }
    let base = Duration::from_millis([100, 30_000, 100_000][rng.random_range(0..3)]);
    let new = |seed| {
        start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone())
                .seed(seed)
                .workers(3)
                .in_flight(Limit {
                    messages: 40,
                    bytes: 1 << 20,
                })
                .drain(Duration::from_millis(2500))
                .handler_timeout(Duration::from_secs(2))
                .retry(RetrySchedule::default().max_attempts(1000).base(base)),
        )
    };
    let mut consumers = vec![new(1), new(2)];
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..20_000))).await;
        let one = consumers.remove(rng.random_range(0..consumers.len()));
        if rng.random_bool(0.5) {
            one.crash().await;
        } else {
            let _ = one.stop().await;
        }
        consumers.push(new(rng.random()));
    }
    until("the queue is empty", || queue.remaining() == 0).await;
    for consumer in consumers {
        consumer.stop().await.unwrap();
    }
    assert_once(&memory, good);
    for group in 0..5 {
        let rows: Vec<_> = memory
            .rows("effect")
            .into_iter()
            .filter(|id| id.starts_with(&format!("g{group}-")))
            .collect();
        assert!(rows.is_sorted(), "seed {seed} {rows:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_and_goes_every_group_keeps_its_order() {
    // A queue has its own order, whatever is said of partitions.
    for lanes in [Lanes::Partition, Lanes::Key, Lanes::Unordered] {
        for seed in 0..12 {
            in_lanes(lanes, async move {
                eprintln!("seed {seed}");
                groups(seed).await;
            })
            .await;
        }
    }
}
