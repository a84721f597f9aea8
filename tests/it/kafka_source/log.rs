//! What is read, and how far it is committed.

use std::collections::BTreeSet;
use std::time::Duration;

use oneffect_core::{Settle, Settlement, Source, SourceEvent};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, Producer};

use super::broker::{PATIENCE, Topic, brokers};
use super::member::{Policy, ack, place};

/// Contract clauses 3 and 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_acknowledged_is_delivered_again_and_nothing_before_it() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    topic.produce(0, 0..10);
    let mut first = topic.join(Policy::Keep).await;
    first
        .until("ten records", |seen| seen.deliveries.len() == 10)
        .await;
    let settled = first.look(|seen| {
        let (six, rest) = seen.deliveries.split_at(6);
        let mut settled: Vec<Settlement> = six.iter().rev().map(ack).collect();
        settled.push(ack(&rest[2]));
        settled.push(Settlement {
            settle: Settle::Release(Duration::ZERO),
            ..ack(&rest[0])
        });
        settled
    });
    first.settle(settled);
    first.close().await;
    assert_eq!(topic.committed(0), Some(6));

    let mut second = topic.join(Policy::Settle).await;
    second
        .until("the rest", |seen| seen.offsets(0).last() == Some(&9))
        .await;
    assert_eq!(second.look(|seen| seen.offsets(0)), [6, 7, 8, 9]);
    second.close().await;
    assert_eq!(topic.committed(0), Some(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_offsets_are_committed_without_waiting_for_the_end() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    topic.produce(0, 0..3);
    let mut member = topic.join(Policy::Settle).await;
    member
        .until("three records", |seen| seen.deliveries.len() == 3)
        .await;
    until_committed(&topic, 0, 3).await;
    topic.produce(0, 3..5);
    until_committed(&topic, 0, 5).await;
    member.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_arrives_as_it_was_sent() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let producer = topic.producer();
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "trace",
            value: Some("1"),
        })
        .insert(Header {
            key: "nothing",
            value: None::<&str>,
        })
        .insert(Header {
            key: "trace",
            value: Some("2"),
        });
    topic.send(&producer, 0, Some("k"), Some("v"), Some(&headers));
    topic.send(&producer, 0, None, None, None);
    topic.send(&producer, 0, Some(""), Some(""), None);
    let large = "x".repeat(50_000);
    topic.send(&producer, 0, None, Some(&large), None);
    producer.flush(PATIENCE).unwrap();

    let mut member = topic.join(Policy::Settle).await;
    member
        .until("four records", |seen| seen.deliveries.len() == 4)
        .await;

    member.look(|seen| {
        let [full, tombstone, empty, big] = &seen.deliveries[..] else {
            panic!("more than four");
        };
        assert_eq!(full.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(full.payload.as_deref(), Some(&b"v"[..]));
        let headers: Vec<_> = full
            .headers
            .iter()
            .map(|(n, v)| (n, v.map(|v| &v[..])))
            .collect();
        let sent = [
            ("trace", Some(&b"1"[..])),
            ("nothing", None),
            ("trace", Some(&b"2"[..])),
        ];
        assert_eq!(headers, sent);
        assert!(full.published_at.is_some());
        assert_eq!(full.position.to_string(), format!("{}/0/0", topic.name));
        assert_eq!((&tombstone.key, &tombstone.payload), (&None, &None));
        assert_eq!(empty.key.as_deref(), Some(&b""[..]));
        assert_eq!(empty.payload.as_deref(), Some(&b""[..]));
        assert_eq!(big.payload.as_deref(), Some(large.as_bytes()));
        let name = seen.owned.values().next().unwrap();
        assert_eq!(**name, *format!("{}/0", topic.name));
    });
    member.close().await;
}

/// Field case 015: offsets that compaction has removed do not stall the watermark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_log_is_committed_to_its_end_though_settled_backwards() {
    let Some(brokers) = brokers() else { return };
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "500"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "100"),
    ];
    let topic = Topic::with(&brokers, 1, &config).await;
    let producer = topic.producer();
    let write = |from: usize, count: usize| {
        for number in from..from + count {
            let key = format!("k{}", number % 5);
            topic.send(&producer, 0, Some(&key), Some(&number.to_string()), None);
        }
        producer.flush(PATIENCE).unwrap();
    };
    write(0, 1000);
    let mut written = 1000;
    let started = tokio::time::Instant::now();
    loop {
        // The active segment is never cleaned: only what is written later makes it roll.
        write(written, 5);
        written += 5;
        let observer = Topic {
            group: format!("{}-{written}", topic.group),
            ..topic.clone()
        };
        let mut member = observer.join(Policy::Keep).await;
        let end = topic.end(0);
        member
            .until("the end", |seen| seen.offsets(0).last() == Some(&(end - 1)))
            .await;
        let left = member.look(|seen| seen.deliveries.len());
        member.close().await;
        if left < 500 {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the broker does not compact");
    }

    let mut member = topic.join(Policy::Keep).await;
    let end = topic.end(0);
    member
        .until("the end", |seen| seen.offsets(0).last() == Some(&(end - 1)))
        .await;
    let backwards: Vec<_> = member.look(|seen| seen.deliveries.iter().rev().map(ack).collect());
    assert!(i64::try_from(backwards.len()).unwrap() < end);
    member.settle(backwards);
    until_committed(&topic, 0, end).await;
    member.close().await;
}

/// Field case 017.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_an_aborted_transaction_are_not_delivered_and_do_not_stall_the_watermark() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let producer: BaseProducer = topic
        .client()
        .set("transactional.id", &topic.name)
        .create()
        .unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    for (value, commits) in [("a", true), ("b", false), ("c", true)] {
        producer.begin_transaction().unwrap();
        topic.send(&producer, 0, None, Some(value), None);
        producer.flush(PATIENCE).unwrap();
        if commits {
            producer.commit_transaction(PATIENCE).unwrap();
        } else {
            producer.abort_transaction(PATIENCE).unwrap();
        }
    }

    let mut member = topic.join(Policy::Settle).await;
    member.until("c", |seen| seen.deliveries.len() >= 2).await;
    member.look(|seen| {
        let values: Vec<_> = seen
            .deliveries
            .iter()
            .map(|d| d.payload.as_deref())
            .collect();
        assert_eq!(values, [Some(&b"a"[..]), Some(&b"c"[..])]);
        assert_eq!(seen.offsets(0), [0, 4]);
    });
    member.close().await;
    // Offset 5 is the marker of the last transaction: never beyond the last record + 1.
    assert_eq!((topic.committed(0), topic.end(0)), (Some(5), 6));
}

/// Field case 048, and contract clause 7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_that_nobody_takes_waits_and_none_of_it_is_dropped() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    topic.produce(0, 0..20_000);
    let hasty = topic.source().set("max.poll.interval.ms", "1500");
    let mut source = hasty.set("session.timeout.ms", "1500");
    source.open().await.unwrap();
    // Two poll intervals: polling must go on, though nothing that it returns can be taken.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut next_offset = 0;
    let mut largest = 0;
    while next_offset < 20_000 {
        let event = tokio::time::timeout(PATIENCE, source.next()).await;
        let event = event.expect("a record is missing").unwrap();
        assert!(!matches!(event, SourceEvent::Revoked(_)), "it was expelled");
        let SourceEvent::Deliveries(deliveries) = event else {
            continue;
        };
        largest = largest.max(deliveries.len());
        for delivery in &deliveries {
            assert_eq!(place(delivery), (0, next_offset));
            next_offset += 1;
        }
        source.settle(&deliveries.iter().map(ack).collect::<Vec<_>>());
    }
    assert!(
        largest <= 1000,
        "{largest} deliveries waited for the runtime"
    );
    Box::new(source).close(PATIENCE).await.unwrap();
    assert_eq!(topic.committed(0), Some(20_000));
}

/// Contract clause 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pausing_and_resuming_neither_loses_nor_repeats_a_record() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    topic.produce(0, 0..10_000);
    topic.produce(1, 0..10_000);
    let mut source = topic.source();
    source.open().await.unwrap();
    let mut next_offsets = [0, 0];
    let mut paused: BTreeSet<_> = BTreeSet::new();
    let started = tokio::time::Instant::now();
    while next_offsets != [10_000, 10_000] {
        let waiting = tokio::time::timeout(Duration::from_millis(50), source.next()).await;
        let Ok(event) = waiting else {
            // Nothing is on its way any more: all is paused.
            assert!(
                started.elapsed() < PATIENCE,
                "records stopped at {next_offsets:?}"
            );
            for id in std::mem::take(&mut paused) {
                source.resume(id);
                source.resume(id);
            }
            continue;
        };
        let SourceEvent::Deliveries(deliveries) = event.unwrap() else {
            continue;
        };
        for delivery in &deliveries {
            let (partition, offset) = place(delivery);
            let next_offset = &mut next_offsets[usize::try_from(partition).unwrap()];
            assert_eq!(offset, *next_offset, "partition {partition}");
            *next_offset += 1;
        }
        source.settle(&deliveries.iter().map(ack).collect::<Vec<_>>());
        let last = deliveries.last().unwrap().assignment;
        paused.insert(last);
        source.pause(last);
        source.pause(last);
    }
    Box::new(source).close(PATIENCE).await.unwrap();
}

/// Contract clause 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_future_of_next_loses_no_delivery() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let mut source = topic.source();
    source.open().await.unwrap();
    let writer = topic.clone();
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn_blocking(move || {
        for part in 0..20 {
            writer.produce(0, part * 50..(part + 1) * 50);
        }
    });
    let mut offsets = Vec::new();
    let started = tokio::time::Instant::now();
    while offsets.len() < 1000 {
        let next = tokio::time::timeout(Duration::from_micros(300), source.next()).await;
        if let Ok(Ok(SourceEvent::Deliveries(deliveries))) = next {
            offsets.extend(deliveries.iter().map(|delivery| place(delivery).1));
        }
        assert!(
            started.elapsed() < PATIENCE,
            "only {} records came",
            offsets.len()
        );
    }
    assert!(offsets.into_iter().eq(0..1000));
    Box::new(source).close(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_stop_receiving_nothing_is_delivered_but_settlements_are_taken() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    topic.produce(0, 0..5);
    let mut member = topic.join(Policy::Keep).await;
    member
        .until("five records", |seen| seen.deliveries.len() == 5)
        .await;
    member.stop_receiving();
    member.settle(member.look(|seen| [ack(&seen.deliveries[0])]));
    until_committed(&topic, 0, 1).await;
    topic.produce(0, 5..10);
    member.settle_all();
    until_committed(&topic, 0, 5).await;
    assert_eq!(member.look(|seen| seen.deliveries.len()), 5);
    member.close().await;
    assert_eq!(topic.committed(0), Some(5));
}

pub(crate) async fn until_committed(topic: &Topic, partition: i32, offset: i64) {
    let started = tokio::time::Instant::now();
    loop {
        let committed = topic.committed(partition);
        if committed == Some(offset) {
            return;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{committed:?} is committed, not {offset}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
