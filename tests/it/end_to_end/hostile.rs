//! The same hostile stream, for each pair of a broker and a database.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Running;
use super::brokers::{Broker, OnFifoQueue, OnKafka, OnStandardQueue, Sent};
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::{Event, Probe};
use crate::child::{Child, Spec};
use crate::support::until;

const EVENTS: usize = 400;

/// A stream with repeats near and far, failures, rejections, and bytes that nobody can read.
struct Stream {
    messages: Vec<Sent>,
    /// The ids that must have exactly one effect.
    good: BTreeSet<String>,
    settled: usize,
    unreadable: usize,
}

fn stream(seed: u64) -> Stream {
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut messages, mut good) = (Vec::new(), BTreeSet::new());
    for n in 0..EVENTS {
        let mut event = Event::new(format!("e{n}"));
        match n % 50 {
            7 => event.reject = true,
            13 => event.fail = 2,
            29 => (event.panic, event.fail) = (true, 1),
            _ => {}
        }
        if !event.reject {
            good.insert(event.event_id.clone());
        }
        let message = Sent {
            lane: rng.random_range(0..8),
            payload: serde_json::to_vec(&event).unwrap(),
        };
        if rng.random_bool(0.2) {
            // Near, in the same lane, or somewhere else much later.
            messages.push(message.clone());
        }
        messages.push(message);
    }
    let mut repeats = messages.clone();
    repeats.shuffle(&mut rng);
    messages.extend(repeats.into_iter().take(EVENTS / 10));
    let unreadable = ["not json", "{\"no\": \"id\"}", "{\"event_id\": \"\"}"];
    for (n, payload) in unreadable.into_iter().enumerate() {
        let at = rng.random_range(0..messages.len());
        messages.insert(
            at,
            Sent {
                lane: u32::try_from(n).unwrap(),
                payload: payload.into(),
            },
        );
    }
    Stream {
        messages,
        good,
        settled: EVENTS,
        unreadable: unreadable.len(),
    }
}

/// Duplicates, failures, a poison message, a second consumer that joins and leaves, a stop in good
/// order, and a process that is killed in mid-batch: E = 1 for every event, and the broker has
/// nothing left.
async fn takes_effect_once<B: Broker, D: Database>(seed: u64)
where
    Probe: oneffect::Handler<D::Store>,
{
    let (Some(broker), Some(database)) = (B::fresh().await, D::fresh().await) else {
        return;
    };
    let stream = stream(seed);
    let (early, late) = stream.messages.split_at(stream.messages.len() / 2);
    broker.send(early).await;

    let child = Child::start(&Spec {
        broker: broker.spec(),
        database: database.spec(),
        delay_ms: 10,
        crash_guard: None,
    });
    until("the child has had effects", async || {
        database.effects().await.len() > 20
    })
    .await;
    child.kill();

    let first = Running::start(&broker, &database).await;
    until("the first consumer has taken over", async || {
        first.stats.snapshot().applied > 10
    })
    .await;
    let second = Running::start(&broker, &database).await;
    until("the second consumer has joined", async || {
        second.stats.snapshot().connected
    })
    .await;
    broker.send(late).await;
    // The first may be through with all of it before the second gets its share.
    until("the second consumer has its share", async || {
        second.stats.snapshot().deliveries > 0 || broker.is_drained().await
    })
    .await;
    second.stop().await;
    first.stop().await;

    let last = Running::start(&broker, &database).await;
    until("all is settled", async || broker.is_drained().await).await;
    until("the inbox is full", async || {
        database.settled().await == i64::try_from(stream.settled).unwrap()
    })
    .await;
    last.stop().await;

    let effects = database.effects().await;
    let doubled: Vec<_> = effects.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    let missing: Vec<_> = stream
        .good
        .iter()
        .filter(|id| !effects.contains_key(*id))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(
        effects.len(),
        stream.good.len(),
        "a rejected event has no effect"
    );
    let letters = database.dead_letters().await;
    assert_eq!(
        letters.get("poison"),
        Some(&i64::try_from(stream.unreadable).unwrap()),
        "{letters:?}"
    );
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(database.idle_in_transaction().await, 0);
    assert!(broker.is_drained().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_to_postgres_takes_effect_once() {
    takes_effect_once::<OnKafka, OnPostgres>(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_to_sqlite_takes_effect_once() {
    takes_effect_once::<OnKafka, OnSqlite>(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standard_queue_to_postgres_takes_effect_once() {
    takes_effect_once::<OnStandardQueue, OnPostgres>(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_queue_to_postgres_takes_effect_once() {
    takes_effect_once::<OnFifoQueue, OnPostgres>(4).await;
}
