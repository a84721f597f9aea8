//! Opening and closing, and what ends a source.

use std::time::Duration;

use oneffect_core::testing::MemoryStore;
use oneffect_core::{
    Cause, Consumer, IdFrom, Raw, Source, SourceError, SourceEvent, done, handler_fn,
};
use oneffect_kafka::Kafka;
use rdkafka::mocking::MockCluster;

use super::broker::{PATIENCE, Topic, brokers};
use super::member::{Member, Policy};
use crate::support::until;

/// Field case 032.
#[tokio::test]
async fn topics_that_do_not_exist_are_all_named_when_the_source_is_opened() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let topics = ["no-such-oders", &topic.name, "no-such-paymnets"];
    let mut source = Kafka::new(&brokers, &topic.group, topics);

    let opened = tokio::time::timeout(Duration::from_secs(10), source.open()).await;

    let Err(SourceError::Misconfigured { message, .. }) = opened.expect("it took too long") else {
        panic!("it was opened");
    };
    assert!(
        message.contains("`no-such-oders`, `no-such-paymnets`"),
        "{message}"
    );
    assert!(!message.contains(&topic.name), "{message}");
}

#[tokio::test]
async fn a_broker_that_does_not_answer_is_named_with_what_went_wrong() {
    let mut source =
        Kafka::new("127.0.0.1:9", "group", ["topic"]).connect_timeout(Duration::from_secs(1));
    let opened = tokio::time::timeout(PATIENCE, source.open()).await;
    let error = opened
        .expect("it took too long")
        .expect_err("it was opened");
    let message = error.to_string();
    assert!(
        message.contains("127.0.0.1:9") && message.contains("refused"),
        "{message}"
    );
    Box::new(source).close(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_setting_that_breaks_the_guarantee_is_refused_before_anything_is_connected() {
    let mut source =
        Kafka::new("127.0.0.1:9", "group", ["topic"]).set("enable.auto.commit", "true");
    let opened = source.open().await;
    let Err(SourceError::Misconfigured { message, .. }) = opened else {
        panic!("it was not refused");
    };
    assert!(message.contains("enable.auto.commit"), "{message}");
}

#[tokio::test]
async fn a_setting_that_the_client_does_not_know_is_named() {
    let mut source = Kafka::new("127.0.0.1:9", "group", ["topic"]).set("fetch.mim.bytes", "1");
    let Err(SourceError::Misconfigured { message, .. }) = source.open().await else {
        panic!("it was not refused");
    };
    assert!(message.contains("fetch.mim.bytes"), "{message}");
}

/// Field case 038: on a runtime with one thread, which a client that blocks would stop.
#[tokio::test]
async fn a_source_that_is_started_and_stopped_twenty_times_closes_each_time() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    topic.produce(0, 0..20);
    for cycle in 0..20 {
        let mut member = topic.join(Policy::Keep).await;
        member
            .until("twenty records", |seen| seen.deliveries.len() == 20)
            .await;
        let closed = member.close_within(PATIENCE).await;
        assert!(closed.is_ok(), "cycle {cycle}: {closed:?}");
    }
}

#[tokio::test]
async fn a_source_that_was_never_opened_closes() {
    let source = Kafka::new("127.0.0.1:9", "group", ["topic"]);
    Box::new(source).close(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_dropped_leaves_the_group() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let mut dropped = topic.source().set("session.timeout.ms", "300000");
    dropped.open().await.unwrap();
    let assigned = tokio::time::timeout(PATIENCE, dropped.next())
        .await
        .unwrap();
    assert!(
        matches!(assigned, Ok(SourceEvent::Assigned(_))),
        "{assigned:?}"
    );
    drop(dropped);
    let mut next = topic.join(Policy::Settle).await;
    next.until("the partition", |seen| seen.partitions() == [0])
        .await;
    next.close().await;
}

/// Field case 040: the broker is gone, and stopping does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_closing_gives_up_at_its_deadline_and_says_so() {
    let (cluster, topic) = mock();
    topic.produce(0, 0..1);
    let mut member = Member::start(topic.source(), Policy::Keep).await;
    member
        .until("a record", |seen| seen.deliveries.len() == 1)
        .await;
    cluster.broker_down(1).unwrap();
    member.settle_all();

    let closing = member.close_within(Duration::from_secs(1));
    let closed = tokio::time::timeout(PATIENCE, closing)
        .await
        .expect("it waited for the broker");

    assert!(
        matches!(closed, Err(SourceError::Unclean { .. })),
        "{closed:?}"
    );
    cluster.broker_up(1).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_all_brokers_is_reported_once_and_finding_one_again_too() {
    let (cluster, topic) = mock();
    let mut member = Member::start(topic.source(), Policy::Settle).await;
    member
        .until("joining", |seen| seen.connected == [true])
        .await;
    cluster.broker_down(1).unwrap();
    member
        .until("the loss", |seen| seen.connected == [true, false])
        .await;
    cluster.broker_up(1).unwrap();
    member
        .until("the return", |seen| seen.connected.last() == Some(&true))
        .await;
    topic.produce(0, 0..1);
    member
        .until("a record", |seen| seen.deliveries.len() == 1)
        .await;
    member.close().await;
}

/// A second process with the same identity takes over; going on would make two of one member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_that_is_fenced_ends_and_names_the_setting() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 1).await;
    let source = || topic.source().set("group.instance.id", "one");
    let mut first = Member::start(source(), Policy::Settle).await;
    first
        .until("the partition", |seen| seen.partitions() == [0])
        .await;
    let mut second = Member::start(source(), Policy::Settle).await;
    second
        .until("the partition", |seen| seen.partitions() == [0])
        .await;
    first.until("the end", |seen| seen.error.is_some()).await;
    first.look(|seen| {
        let error = seen.error.as_ref().unwrap();
        assert!(matches!(error, SourceError::Fatal { .. }), "{error:?}");
        assert!(error.to_string().contains("group.instance.id"), "{error}");
    });
    first.close().await;
    second.close().await;
}

/// A cluster in this process, whose broker can be taken down.
fn mock() -> (MockCluster<'static, impl rdkafka::ClientContext>, Topic) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("topic", 1, 1).unwrap();
    let topic = Topic {
        brokers: cluster.bootstrap_servers(),
        name: "topic".to_owned(),
        group: "group".to_owned(),
    };
    (cluster, topic)
}

/// Field case 172: nothing gives up, and nobody has to restart anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_away_turns_readiness_red_and_its_events_are_handled_when_it_is_back() {
    let (cluster, topic) = mock();
    let source = Kafka::new(&topic.brokers, &topic.group, [&topic.name])
        .set("session.timeout.ms", "6000")
        .set("reconnect.backoff.max.ms", "1000");
    let store = MemoryStore::new();
    let handler = handler_fn(|_, _: Raw| Box::pin(async { done() }));
    let consumer = Consumer::new("test", source, store.clone(), handler)
        .event_id(IdFrom::position_where_producer_never_resends());
    let (health, stats) = (consumer.health(), consumer.stats());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = consumer.run(async {
        let _ = stopped.await;
    });
    let outage = async {
        topic.produce(0, 0..10);
        until("the first are handled", async || {
            stats.snapshot().applied == 10 && health.snapshot().is_ready()
        })
        .await;
        cluster.broker_down(1).unwrap();
        until("it is said that the broker is away", async || {
            health.snapshot().has(Cause::SourceAway)
        })
        .await;
        cluster.broker_up(1).unwrap();
        topic.produce(0, 10..20);
        until("all are handled", async || {
            stats.snapshot().applied == 20 && health.snapshot().is_ready()
        })
        .await;
        stop.send(()).unwrap();
    };
    let (ended, ()) = tokio::join!(run, outage);
    assert_eq!(ended.unwrap().dead_lettered, 0);
    assert_eq!(store.inbox("test").len(), 20);
}
