//! Events of different content under one key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oneffect_core::testing::{Call, MemoryLog, MemoryQueue, MemoryStore, Message, Unreliable};
use oneffect_core::{Blame, Consumer, DeadLetterKind, Fingerprint, RetrySchedule, Stats};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::bench::*;

const JSON: Fingerprint = Fingerprint::CanonicalJson;

/// An event with more to it than its handler reads.
fn content(id: &str, script: &[&str], amount: &str) -> Message {
    Message::new(text(id, script, amount))
}

fn text(id: &str, script: &[&str], amount: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!(r#"{{"event_id":"{id}","script":{script},"amount":{amount}}}"#)
}

/// Handles what the log holds, as a process of its own.
async fn handle(
    log: &MemoryLog,
    partitions: i32,
    store: &MemoryStore,
    fingerprint: Fingerprint,
) -> Stats {
    let consumer = start(
        Consumer::new("test", log.source(), store.clone(), Scripted::default())
            .fingerprint(fingerprint)
            .retry(RetrySchedule::default().max_attempts(3)),
    );
    until_drained(log, partitions).await;
    let stats = consumer.stop().await.unwrap();
    assert_eq!(store.open_units(), 0);
    stats
}

/// The payloads that were set aside as mismatches of an event, and how often each was.
fn mismatches(store: &MemoryStore, id: &str) -> BTreeMap<String, u32> {
    let letters = store.dead_letters().into_iter();
    let letters = letters.filter(|(letter, _)| {
        letter.kind == DeadLetterKind::Mismatch && letter.event == Some(key(id))
    });
    letters
        .map(|(letter, times)| {
            let payload = letter.payload.unwrap().to_vec();
            (String::from_utf8(payload).unwrap(), times)
        })
        .collect()
}

/// Field case 092, and all that a dead letter says of both.
#[tokio::test(start_paused = true)]
async fn another_content_under_a_settled_key_is_set_aside_and_its_lane_goes_on() {
    for (one, other) in [
        ("9007199254740992", "9007199254740993"),
        ("18446744073709551615", "18446744073709551614"),
        ("0.1", "0.10000000000000000001"),
        ("1e400", "2e400"),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            log.produce(0, content("x", &[], one));
            handle(&log, 1, &store, JSON).await;
            let first = store.fingerprint("test", &key("x")).unwrap();

            log.produce(0, content("x", &[], other));
            log.produce(0, content("next", &[], one));
            let stats = handle(&log, 1, &store, JSON).await;

            assert_once(&store, ["x", "next"]);
            assert_eq!((stats.dead_lettered, stats.mismatches), (1, 1));
            assert_settled(&store, "x", DONE);
            assert_eq!(store.fingerprint("test", &key("x")), Some(first));
            let letters = store.dead_letters();
            let [(letter, 1)] = letters.as_slice() else {
                panic!("{letters:?}")
            };
            let ours = JSON.of(letter.payload.as_deref()).unwrap();
            assert_eq!(letter.kind, DeadLetterKind::Mismatch);
            assert_eq!(letter.event, Some(key("x")));
            assert_eq!(letter.fingerprint, Some(ours));
            assert_eq!(letter.settled_fingerprint, Some(first));
            for part in [
                first.to_string(),
                ours.to_string(),
                "it took effect".to_string(),
                format!("{} bytes", text("x", &[], other).len()),
            ] {
                assert!(letter.error.contains(&part), "{}", letter.error);
            }
        })
        .await;
    }
}

/// Field case 090.
#[tokio::test(start_paused = true)]
async fn what_counts_as_the_same_content_is_the_consumers_choice() {
    let (same, rewritten) = (
        r#"{"event_id":"x","a":1,"b":{"c":2,"d":3}}"#,
        "{\n \"b\": {\"d\": 3, \"c\": 2.0},\n \"a\": 1, \"event_id\": \"x\"\n}\n",
    );
    let other = r#"{"event_id":"x","a":2,"b":{"c":2,"d":3}}"#;
    for (setting, mismatching) in [
        (Fingerprint::Off, &[][..]),
        (Fingerprint::Payload, &[rewritten, other]),
        (JSON, &[other]),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            for payload in [same, same, rewritten, other] {
                log.produce(0, Message::new(payload));
                handle(&log, 1, &store, setting).await;
            }

            assert_once(&store, ["x"]);
            let expected = mismatching.iter().map(|&payload| (payload.into(), 1));
            assert_eq!(mismatches(&store, "x"), expected.collect());
            let stored = store.fingerprint("test", &key("x"));
            assert_eq!(stored, setting.of(Some(same.as_bytes())));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_setting_makes_no_mismatches() {
    for (before, after) in [
        (Fingerprint::Payload, JSON),
        (JSON, Fingerprint::Payload),
        (Fingerprint::Off, JSON),
        (JSON, Fingerprint::Off),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            log.produce(0, content("x", &[], "1"));
            handle(&log, 1, &store, before).await;

            log.produce(0, content("x", &[], "1"));
            log.produce(0, content("x", &[], "2"));
            let stats = handle(&log, 1, &store, after).await;

            assert_once(&store, ["x"]);
            assert_eq!((stats.duplicates, stats.mismatches), (2, 0));
        })
        .await;
    }
}

/// Repeats that wait in memory for their first share its end only if they are of its content.
#[tokio::test(start_paused = true)]
async fn followers_of_other_content_are_mismatches_whatever_becomes_of_their_first() {
    for (script, became, applied) in [
        (&["slow"][..], "it took effect", 1),
        (&["fail_late", "panic", "go"], "it took effect", 1),
        (&["reject_late"], "it was rejected: never", 0),
        (&["fail"], "it was set aside", 0),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 4), MemoryStore::new());
            let (one, other, third) = (
                text("x", script, "1"),
                text("x", script, "2"),
                text("x", script, "3"),
            );
            log.produce(0, Message::new(one.clone()));
            for (partition, payload) in [
                (1, &other),
                (2, &one),
                (3, &third),
                (1, &one),
                (2, &other),
                (3, &other),
            ] {
                log.produce(partition, Message::new(payload.clone()));
            }
            log.produce(0, content("last", &["go"], "1"));
            let stats = handle(&log, 4, &store, JSON).await;

            assert_eq!(effects(&store).get("x").copied().unwrap_or(0), applied);
            assert_eq!(effects(&store)["last"], 1);
            assert_eq!((stats.duplicates, stats.mismatches), (2, 4), "{script:?}");
            let letters = mismatches(&store, "x");
            assert_eq!(letters.keys().collect::<Vec<_>>(), [&other, &third]);
            for (letter, _) in store.dead_letters() {
                let mismatch = letter.kind == DeadLetterKind::Mismatch;
                assert_eq!(mismatch, letter.error.contains(became), "{}", letter.error);
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_first_goes_away_unsettled_its_follower_is_first() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        let failing = RetrySchedule::default()
            .base(Duration::from_mins(1))
            .max_attempts(10);
        log.produce(0, content("x", &["fail", "go"], "1"));
        let (source, handler) = (log.source(), Scripted::default());
        let member = source.member();
        let consumer = start(
            Consumer::new("test", source, store.clone(), handler.clone())
                .fingerprint(JSON)
                .retry(failing),
        );
        until("it has failed", || handler.times("x") == 1).await;
        log.produce(1, content("x", &[], "2"));
        until("the other one waits behind it", || {
            consumer.stats.snapshot().deliveries == 2
        })
        .await;

        log.revoke(member, 0, Duration::from_secs(10));
        until("the other one is handled", || log.committed(1) == 1).await;
        log.assign(member, 0);
        until_drained(&log, 2).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, ["x"]);
        assert_eq!((stats.applied, stats.mismatches), (1, 1));
        let letters = mismatches(&store, "x");
        assert_eq!(letters, [(text("x", &["fail", "go"], "1"), 1)].into());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_back_a_follower_of_other_content() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        queue.send(content("x", &["slow"], "1"));
        queue.send(content("x", &[], "2"));
        queue.send(content("x", &["slow"], "1"));
        let consumer = start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone()).fingerprint(JSON),
        );
        until("it runs", || {
            consumer.stats.snapshot().deliveries == 3 && handler.times("x") == 1
        })
        .await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, ["x"]);
        assert_eq!((stats.applied, stats.duplicates, stats.released), (1, 1, 1));
        assert_eq!(queue.remaining(), 1);

        let consumer = start(
            Consumer::new("test", queue.source(), store.clone(), handler.clone()).fingerprint(JSON),
        );
        until("the queue is empty", || queue.remaining() == 0).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!((stats.dead_lettered, stats.mismatches), (1, 1));
    })
    .await;
}

/// Invariant 6: without its dead letter it is not settled.
#[tokio::test(start_paused = true)]
async fn a_mismatch_whose_dead_letter_cannot_be_written_is_not_settled() {
    locally(async {
        let (log, memory) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, content("x", &[], "1"));
        handle(&log, 1, &memory, JSON).await;
        let store = Unreliable::new(memory.clone());
        for _ in 0..5 {
            store.fail_next(Call::SetAside, Blame::Outage);
        }
        log.produce(0, content("x", &[], "2"));
        log.produce(0, content("y", &[], "2"));

        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .fingerprint(JSON),
        );
        until("some attempts have failed", || store.injected().len() == 3).await;
        assert_eq!((log.committed(0), memory.dead_letters().len()), (1, 0));
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&memory, ["x", "y"]);
        assert_eq!((stats.mismatches, stats.attempts_charged), (1, 0));
        assert_eq!(mismatches(&memory, "x").len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_waits_behind_a_failed_event_of_its_lane() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        log.produce(0, content("x", &[], "1"));
        handle(&log, 1, &store, JSON).await;
        // So many that the batch has grown when the one that fails comes.
        let before = (0..20).map(|n| format!("e{n}"));
        for id in before.clone() {
            log.produce(0, content(&id, &[], "1"));
        }
        log.produce(0, content("a", &["fail", "fail_late", "go"], "1"));
        log.produce(0, content("x", &[], "2"));
        log.produce(0, content("b", &[], "1"));

        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .workers(1)
                .fingerprint(JSON)
                .retry(RetrySchedule::default().base(Duration::from_secs(30))),
        );
        until("its failure is charged", || {
            consumer.stats.snapshot().attempts_charged == 1
        })
        .await;
        assert_eq!(store.dead_letters().len(), 0);
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        let order = ["x".into()].into_iter().chain(before);
        let order: Vec<_> = order.chain(["a".into(), "b".into()]).collect();
        assert_eq!(store.rows("effect"), order);
        let other = text("x", &[], "2");
        assert_eq!(mismatches(&store, "x"), [(other, 1)].into());
        assert!(stats.units < stats.deliveries, "they ran in company");
    })
    .await;
}

/// Two processes, one key, two contents, at the same moment: one is first, whichever.
#[tokio::test(start_paused = true)]
async fn of_two_contents_at_the_same_time_one_takes_effect_and_the_other_is_a_mismatch() {
    locally(async {
        let (a, b, store) = (
            MemoryLog::new("a", 1),
            MemoryLog::new("b", 1),
            MemoryStore::new(),
        );
        for n in 0..20 {
            a.produce(0, content(&format!("e{n}"), &[], "1"));
            b.produce(0, content(&format!("e{n}"), &[], "2"));
        }
        let (one, other) = tokio::join!(handle(&a, 1, &store, JSON), handle(&b, 1, &store, JSON));

        assert_once(&store, (0..20).map(|n| format!("e{n}")));
        assert_eq!(one.applied + other.applied, 20);
        assert_eq!(one.mismatches + other.mismatches, 20);
    })
    .await;
}

/// Everything at once, by seed: of each key one content takes effect, and every other one that came
/// is a dead letter.
async fn storm(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let log = MemoryLog::with_commit_interval("t", 3, Duration::from_millis(300));
    let memory = MemoryStore::new();
    let store = Unreliable::with_probability(memory.clone(), seed, 0.05);
    let mut produced: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for _ in 0..150 {
        let id = format!("e{}", rng.random_range(0..40));
        let act = ["go", "go", "fail_late", "panic"][rng.random_range(0..4)];
        let payload = text(&id, &[act, "go"], &rng.random_range(0..3).to_string());
        log.produce(rng.random_range(0..3), Message::new(payload.clone()));
        produced.entry(id).or_default().insert(payload);
    }
    let new = |seed| {
        start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .seed(seed)
                .workers(2)
                .fingerprint(Fingerprint::Payload)
                .retry(RetrySchedule::default().max_attempts(1000)),
        )
    };
    let mut consumers = vec![new(1), new(2)];
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..500))).await;
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
    assert_once(&memory, produced.keys());
    for (id, payloads) in produced {
        let first = memory.fingerprint("test", &key(&id));
        let others = payloads.into_iter().filter(|payload| {
            let fingerprint = Fingerprint::Payload.of(Some(payload.as_bytes()));
            fingerprint != first
        });
        let set_aside: Vec<_> = mismatches(&memory, &id).into_keys().collect();
        assert_eq!(set_aside, others.collect::<Vec<_>>(), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_one_content_takes_effect_and_no_other_is_lost() {
    for seed in 0..30 {
        locally(async move {
            eprintln!("seed {seed}");
            storm(seed).await;
        })
        .await;
    }
}
