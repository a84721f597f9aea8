//! Everything at once, by seed.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryStore, Unreliable};
use oneffect_core::{ConsumerConfig, Lanes, RetrySchedule, Settled};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::bench::*;

const ACTS: [&str; 8] = [
    "go",
    "fail",
    "fail_late",
    "panic",
    "panic_late",
    "swallow",
    "deadlock",
    "elsewhere",
];

/// Two consumers that crash, stop, start and trade partitions, on a store that fails before, during
/// and after commits: every event takes effect once, in the order of its partition, or is rejected.
/// Returns the trace of the run.
async fn storm(seed: u64, batches: bool) -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let log = MemoryLog::with_commit_interval("t", 3, Duration::from_millis(300));
    let memory = MemoryStore::new();
    let store = Unreliable::with_probability(memory.clone(), seed, 0.05);
    let handler = Scripted::default();
    let (mut good, mut rejected) = (Vec::new(), Vec::new());
    for n in 0..150 {
        let partition = rng.random_range(0..3);
        let lane = rng.random_range(0..4);
        let id = format!("p{partition}k{lane}-{n:03}");
        let message = if rng.random_bool(0.1) {
            rejected.push(id.clone());
            event(
                &id,
                &[["reject", if batches { "reject" } else { "reject_late" }]
                    [rng.random_range(0..2)]],
            )
        } else {
            good.push(id.clone());
            let bad = rng.random_bool(0.15);
            let act = if bad {
                ACTS[rng.random_range(0..ACTS.len())]
            } else {
                "go"
            };
            let make = if rng.random_bool(0.5) { event } else { staged };
            make(&id, &[act, act, "go"])
        };
        let message = of_key(message, partition, lane);
        log.produce(partition, message.clone());
        if rng.random_bool(0.2) {
            log.produce(rng.random_range(0..3), message);
        }
    }
    let new = |seed| {
        let mut config = ConsumerConfig::default();
        config.seed = Some(seed);
        config.workers = 2;
        config.retry = RetrySchedule::default().max_attempts(1000);
        start_either(
            batches,
            log.source(),
            store.clone(),
            handler.clone(),
            config,
        )
    };
    let mut consumers = vec![new(1), new(2)];
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..800))).await;
        let one = consumers.remove(rng.random_range(0..consumers.len()));
        if rng.random_bool(0.5) {
            one.crash().await;
        } else {
            one.stop().await.unwrap();
        }
        consumers.push(new(rng.random()));
    }
    until_drained(&log, 3).await;
    for consumer in consumers {
        consumer.stop().await.unwrap();
    }
    assert_once(&memory, good);
    for id in rejected {
        assert_settled(
            &memory,
            &id,
            Settled::Rejected {
                reason: "never".into(),
            },
        );
    }
    assert_eq!(memory.open_units(), 0);
    let rows = memory.rows("effect");
    rows.into_iter().chain(handler.entered()).collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_every_event_takes_effect_once() {
    for lanes in [Lanes::Partition, Lanes::Key, Lanes::Unordered] {
        for seed in 0..40 {
            let batches = seed % 2 == 1;
            in_lanes(lanes, async move {
                eprintln!("seed {seed}");
                storm(seed, batches).await;
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_the_same_seed_is_the_same_run() {
    for (lanes, batches) in [
        (Lanes::Partition, false),
        (Lanes::Key, true),
        (Lanes::Unordered, false),
    ] {
        in_lanes(lanes, async {
            let first = storm(7, batches).await;
            let second = storm(7, batches).await;
            assert_eq!(first, second);
        })
        .await;
    }
}
