//! The clauses, one function each; [`source_contract!`](crate::source_contract) makes tests of them.

// Panicking is how a clause says that it is broken.
#![allow(clippy::missing_panics_doc)]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::reader::{Reader, settlements};
use super::{Fixture, Message};
use crate::delivery::{AssignmentId, Delivery};
use crate::source::{Settle, Source};

/// The fixture, or the end of the test when its broker is not there.
macro_rules! fresh {
    ($fixture:ty) => {
        match <$fixture>::fresh().await {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers
        .map(|number| Message::new(number.to_string()))
        .collect()
}

/// What was in the payloads, in the order of the deliveries.
fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    let number = |delivery: &Delivery| {
        let text = std::str::from_utf8(delivery.payload.as_deref()?).ok()?;
        text.parse().ok()
    };
    deliveries
        .iter()
        .map(|delivery| number(delivery).unwrap_or(usize::MAX))
        .collect()
}

/// The same sorted, for sources without order.
fn sorted(deliveries: &[Delivery]) -> Vec<usize> {
    let mut numbers = numbers(deliveries);
    numbers.sort_unstable();
    numbers
}

/// Clause 1.
pub async fn every_delivery_belongs_to_an_assignment_that_was_announced<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..3)).await;

    let mut reader = Reader::open(&fixture).await;
    // The reader checks it with every event.
    let deliveries = reader.receive(3).await;

    let mut tags: Vec<_> = deliveries
        .iter()
        .map(|delivery| (delivery.assignment, delivery.tag))
        .collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(
        tags.len(),
        3,
        "two deliveries of one assignment have the same tag"
    );
    reader.close().await;
}

/// Clause 2.
pub async fn an_assignment_that_comes_back_has_another_id<F: Fixture>() {
    let fixture = fresh!(F);
    let mut reader = Reader::assigned(&fixture).await;
    let before = reader.assignments.clone();

    if reader.reassign(&fixture, |_| {}).await {
        assert!(before.is_disjoint(&reader.assignments));
    }
    reader.close().await;
}

/// Clause 3.
pub async fn what_was_not_acknowledged_comes_again_after_a_close<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..3)).await;
    let mut reader = Reader::open(&fixture).await;
    reader.receive(3).await;
    reader.close().await;

    let mut reader = Reader::open(&fixture).await;
    let again = reader.receive(3).await;

    assert_eq!(sorted(&again), [0, 1, 2]);
    reader.close().await;
}

/// Clause 3.
pub async fn what_a_crashed_source_had_comes_again<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut crashed = Reader::open(&fixture).await;
    crashed.receive(1).await;
    drop(crashed);

    let mut reader = Reader::open(&fixture).await;
    let again = reader.receive(1).await;

    assert_eq!(numbers(&again), [0]);
    reader.close().await;
}

/// Clause 4.
pub async fn what_was_acknowledged_does_not_come_again<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..3)).await;
    let mut reader = Reader::open(&fixture).await;
    let mut deliveries = reader.receive(3).await;
    deliveries.sort_by_key(|delivery| numbers(std::slice::from_ref(delivery)));
    // A log only forgets from its beginning, and then whatever order the acknowledgements come in.
    reader.settle(&deliveries[1..2], Settle::Ack);
    reader.settle(&deliveries[..1], Settle::Ack);
    reader.close().await;

    let mut reader = Reader::open(&fixture).await;
    let mut again = reader.receive(1).await;
    again.extend(reader.receive_until_quiet(F::QUIET).await);

    assert_eq!(numbers(&again), [2]);
    reader.close().await;
}

/// Clause 4, when the assignment ends before the source does.
pub async fn what_is_settled_before_letting_go_of_an_assignment_counts<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..2)).await;
    let mut reader = Reader::open(&fixture).await;
    let deliveries = reader.receive(2).await;

    let acknowledge = settlements(&deliveries[..1], Settle::Ack);
    if reader
        .reassign(&fixture, |source| source.settle(&acknowledge))
        .await
    {
        let mut again = reader.receive(1).await;
        again.extend(reader.receive_until_quiet(F::QUIET).await);
        assert_eq!(numbers(&again), [1]);
    }
    reader.close().await;
}

/// Clause 5.
pub async fn a_settlement_for_an_ended_assignment_changes_nothing<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut reader = Reader::open(&fixture).await;
    let deliveries = reader.receive(1).await;

    if reader.reassign(&fixture, |_| {}).await {
        // Also when the same message is out again, under the same tag perhaps.
        reader.receive(1).await;
        reader.settle(&deliveries, Settle::Ack);
        reader.close().await;

        let mut reader = Reader::open(&fixture).await;
        assert_eq!(numbers(&reader.receive(1).await), [0]);
        reader.close().await;
    }
}

/// Clause 5, for sources whose assignment lives as long as they do.
pub async fn a_settlement_for_an_unknown_assignment_changes_nothing<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut reader = Reader::open(&fixture).await;
    let mut deliveries = reader.receive(1).await;

    deliveries[0].assignment = AssignmentId(u64::MAX);
    reader.settle(&deliveries, Settle::Ack);
    reader.close().await;

    let mut reader = Reader::open(&fixture).await;
    assert_eq!(numbers(&reader.receive(1).await), [0]);
    reader.close().await;
}

/// Clause 6.
pub async fn dropping_the_future_of_next_loses_nothing<F: Fixture>() {
    const MESSAGES: usize = 100;
    /// Joining a group takes a while, and is disturbed as well.
    const LAST_ATTEMPT: usize = 4_000;
    let fixture = fresh!(F);
    let mut reader = Reader::open(&fixture).await;

    let mut received = Vec::new();
    for attempt in 0..LAST_ATTEMPT {
        if attempt < MESSAGES {
            fixture.produce(numbered(attempt..attempt + 1)).await;
        } else if !reader.assignments.is_empty() {
            break;
        }
        // Dropped at its first await point some times, then at its second, and so on.
        let event = polled_at_most(attempt / 3 % 4, reader.source.next());
        let event = timeout(Duration::from_millis(20), event).await;
        if let Some(event) = event.ok().flatten() {
            reader.note(event, |_| {});
        }
        // A FIFO group has no more until what it handed out is settled.
        let deliveries = std::mem::take(&mut reader.waiting);
        reader.settle(&deliveries, Settle::Ack);
        received.extend(deliveries);
    }
    while received.len() < MESSAGES {
        let deliveries = reader.receive(1).await;
        reader.settle(&deliveries, Settle::Ack);
        received.extend(deliveries);
    }

    let expected: Vec<_> = (0..MESSAGES).collect();
    assert_eq!(sorted(&received), expected);
    reader.close().await;
}

/// What the future yields within so many polls after the first; then it is dropped.
async fn polled_at_most<T>(mut polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let result = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    });
    result.await
}

/// Clause 7.
pub async fn deliveries_of_one_order_come_in_that_order<F: Fixture>() {
    if !F::ORDERED {
        return;
    }
    let fixture = fresh!(F);
    let mut reader = Reader::assigned(&fixture).await;
    fixture.produce(numbered(0..30)).await;
    fixture.produce(numbered(30..60)).await;

    // A FIFO group has no more until these are settled.
    let mut received = Vec::new();
    while received.len() < 60 {
        let deliveries = reader.receive(1).await;
        reader.settle(&deliveries, Settle::Ack);
        received.extend(deliveries);
    }

    let expected: Vec<_> = (0..60).collect();
    assert_eq!(numbers(&received), expected);
    reader.close().await;
}

/// Clause 8.
pub async fn a_paused_assignment_stays_and_gets_nothing_until_it_is_resumed<F: Fixture>() {
    let fixture = fresh!(F);
    let mut reader = Reader::assigned(&fixture).await;
    let assignments = reader.assignments.clone();
    for _ in 0..2 {
        for assignment in &assignments {
            reader.source.pause(*assignment);
        }
    }
    reader.receive_until_quiet(F::QUIET).await;

    fixture.produce(numbered(0..3)).await;
    let while_paused = reader.receive_until_quiet(F::QUIET).await;
    for _ in 0..2 {
        for assignment in &assignments {
            reader.source.resume(*assignment);
        }
    }
    let resumed = reader.receive(3).await;

    assert_eq!(sorted(&while_paused), [0; 0]);
    assert_eq!(sorted(&resumed), [0, 1, 2]);
    assert_eq!(reader.assignments, assignments);
    reader.close().await;
}

/// The promise of [`Source::stop_receiving`].
pub async fn after_stop_receiving_nothing_is_handed_out_and_settlements_count<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut reader = Reader::open(&fixture).await;
    let deliveries = reader.receive(1).await;

    reader.source.stop_receiving();
    fixture.produce(numbered(1..2)).await;
    let after_stop = reader.receive_until_quiet(F::QUIET).await;
    reader.settle(&deliveries, Settle::Ack);
    reader.close().await;

    assert_eq!(numbers(&after_stop), [0; 0]);
    let mut reader = Reader::open(&fixture).await;
    let mut left = reader.receive(1).await;
    left.extend(reader.receive_until_quiet(F::QUIET).await);
    assert_eq!(numbers(&left), [1]);
    reader.close().await;
}

/// The promise of [`Settle::Release`]. Where nothing is handed out again while the source goes on,
/// it must not count as settled.
pub async fn what_is_released_comes_again_but_not_before_its_delay<F: Fixture>() {
    const DELAY: Duration = Duration::from_secs(2);
    /// The broker's clock is not ours, and may round.
    const GRAIN: Duration = Duration::from_millis(100);
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut reader = Reader::open(&fixture).await;
    let deliveries = reader.receive(1).await;

    let released_at = Instant::now();
    reader.settle(&deliveries, Settle::Release(DELAY));
    if !F::HANDS_OUT_AGAIN {
        reader.close().await;
        reader = Reader::open(&fixture).await;
    }
    let again = reader.receive(1).await;

    assert_eq!(numbers(&again), [0]);
    if F::HANDS_OUT_AGAIN {
        assert!(
            released_at.elapsed() + GRAIN >= DELAY,
            "after {:?}",
            released_at.elapsed()
        );
    }
    reader.close().await;
}

/// The promise of [`Delivery::receive_count`].
pub async fn deliveries_say_how_often_they_were_received<F: Fixture>() {
    let fixture = fresh!(F);
    fixture.produce(numbered(0..1)).await;
    let mut reader = Reader::open(&fixture).await;
    let first = reader.receive(1).await;

    if F::COUNTS_RECEIVES {
        reader.settle(&first, Settle::Release(Duration::ZERO));
        let second = reader.receive(1).await;
        assert_eq!(
            (first[0].receive_count, second[0].receive_count),
            (Some(1), Some(2))
        );
    } else {
        assert_eq!(first[0].receive_count, None);
    }
    reader.close().await;
}

/// Bytes are handed on as they are; only the kinds that the broker knows are sent.
pub async fn payloads_and_headers_arrive_as_they_were_sent<F: Fixture>() {
    let fixture = fresh!(F);
    let mut messages = vec![
        Message::new("caf\u{e9} \"\n\u{1f980}")
            .header("trace", "\u{e9}")
            .header("b", "1"),
    ];
    if F::TOMBSTONES {
        messages.push(Message::tombstone().header("kind", "tombstone"));
    }
    if F::EMPTY_PAYLOADS {
        messages.push(Message::new("").header("kind", "empty"));
    }
    if F::HEADER_LISTS {
        let list = Message::new("list")
            .header("b", "1")
            .header("a", "2")
            .header("b", "3");
        messages.push(list.null_header("b").header("c", ""));
    }

    // One after the other, so that sources without order need no telling apart.
    let mut reader = Reader::open(&fixture).await;
    for message in messages {
        fixture.produce(vec![message.clone()]).await;
        let deliveries = reader.receive(1).await;
        reader.settle(&deliveries, Settle::Ack);

        assert_eq!(deliveries[0].payload, message.payload);
        if F::HEADER_LISTS {
            assert_eq!(deliveries[0].headers, message.headers);
        }
        for (name, _) in message.headers.iter() {
            assert_eq!(
                deliveries[0].headers.get(name),
                message.headers.get(name),
                "{name}"
            );
        }
    }
    reader.close().await;
}

/// The promise of [`Source::close`], with deliveries unsettled and the source paused.
pub async fn a_close_ends_within_its_deadline<F: Fixture>() {
    const DEADLINE: Duration = Duration::from_secs(10);
    let fixture = fresh!(F);
    fixture.produce(numbered(0..20)).await;
    let mut reader = Reader::open(&fixture).await;
    let deliveries = reader.receive(2).await;
    reader.settle(&deliveries[..1], Settle::Ack);
    reader.source.pause(deliveries[0].assignment);
    reader.source.stop_receiving();

    // Being late by a moment is no failure of a machine under load.
    let closed = timeout(DEADLINE * 2, reader.source.close(DEADLINE)).await;

    assert!(matches!(closed, Ok(Ok(()))), "{closed:?}");
}
