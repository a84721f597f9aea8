//! Kafka: retention, compaction, lag and its age; field cases 021, 036 and 123.

use std::time::Duration;

use oneffect_core::testing::MemoryStore;
use oneffect_core::{Consumer, Level, Longest, RunError, Source, Window, doctor, done, handler_fn};
use oneffect_kafka::Kafka;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{finding, problems};
use crate::kafka_source::broker::{PATIENCE, Topic, brokers};

const DAY: Duration = Duration::from_hours(24);
const DAY_MS: &str = "86400000";

/// A store with that window.
fn remembering(days: u32) -> MemoryStore {
    let store = MemoryStore::new();
    store.set_window_days(days);
    store
}

macro_rules! brokers {
    () => {
        match brokers() {
            Some(brokers) => brokers,
            None => return,
        }
    };
}

fn source(topics: &[&Topic]) -> Kafka {
    let names = topics.iter().map(|topic| topic.name.clone());
    Kafka::new(topics[0].brokers.clone(), topics[0].group.clone(), names)
}

fn commit(topic: &Topic, partition: i32, offset: i64) {
    let mut client = topic.client();
    client.set("group.id", &topic.group);
    let consumer: BaseConsumer = client.create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic.name, partition, Offset::Offset(offset))
        .unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
}

#[tokio::test]
async fn topics_bring_duplicates_for_as_long_as_they_keep_records() {
    let brokers = brokers!();
    let day = Topic::with(&brokers, 1, &[("retention.ms", DAY_MS)]).await;
    let default = Topic::create(&brokers, 1).await;
    let compact = Topic::with(&brokers, 1, &[("cleanup.policy", "compact")]).await;
    let both = [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", DAY_MS),
    ];
    let both = Topic::with(&brokers, 1, &both).await;
    let forever = Topic::with(&brokers, 1, &[("retention.ms", "-1")]).await;

    let mut source = source(&[&day, &default, &compact, &both, &forever]);
    let reaches = source.horizon().await;

    let longest: Vec<Longest> = reaches.iter().map(|reach| reach.longest).collect();
    let (one, week) = (Longest::For(DAY), Longest::For(DAY * 7));
    let unlimited = Longest::Unlimited;
    assert_eq!(
        longest,
        [one, week, unlimited, one, unlimited],
        "{reaches:#?}"
    );
    assert_eq!(reaches[0].path, format!("topic {}", day.name));
    assert!(reaches[2].found.contains("compact"), "{reaches:#?}");
}

#[tokio::test]
async fn what_the_broker_does_not_tell_is_unknown_with_its_reason() {
    let brokers = brokers!();
    let topic = Topic::create(&brokers, 1).await;
    let missing = Topic {
        name: format!("{}-missing", topic.name),
        ..topic.clone()
    };

    let mut some = source(&[&topic, &missing]);
    let reaches = some.horizon().await;
    assert_eq!(reaches[0].longest, Longest::For(DAY * 7), "{reaches:#?}");
    assert_eq!(reaches[1].longest, Longest::Unknown, "{reaches:#?}");

    // Nobody listens there.
    let mut nowhere = Kafka::new("127.0.0.1:1", "group", ["transfers"])
        .connect_timeout(Duration::from_millis(300));
    let reaches = nowhere.horizon().await;
    assert_eq!(reaches[0].longest, Longest::Unknown);
    assert!(reaches[0].found.contains("127.0.0.1:1"), "{reaches:#?}");
    let findings = nowhere.examine(Window::Days(8)).await;
    assert_eq!(doctor::worst(&findings), Level::Problem, "{findings:#?}");
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_a_problem() {
    let brokers = brokers!();
    let topic = Topic::create(&brokers, 1).await;
    let missing = Topic {
        name: format!("{}-missing", topic.name),
        ..topic.clone()
    };

    let findings = source(&[&topic, &missing]).examine(Window::Days(8)).await;

    let about = |name: &str| {
        let ends = format!("topic {name}, or it may not be seen");
        findings.iter().any(|finding| finding.what.ends_with(&ends))
    };
    assert!(about(&missing.name) && !about(&topic.name), "{findings:#?}");
    assert_eq!(doctor::worst(&findings), Level::Problem);
}

/// librdkafka's mock cluster, as the demo uses it, does not know the question.
#[tokio::test]
async fn a_broker_that_does_not_know_the_question_is_a_warning() {
    let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
    cluster.create_topic("transfers", 1, 1).unwrap();
    let mut source = Kafka::new(cluster.bootstrap_servers(), "group", ["transfers"]);
    let reaches = source.horizon().await;
    assert_eq!(reaches[0].longest, Longest::Unknown, "{reaches:#?}");
}

/// Field case 123.
#[tokio::test]
async fn a_window_shorter_than_the_retention_stops_the_start_unless_it_is_accepted() {
    let brokers = brokers!();
    let topic = Topic::create(&brokers, 1).await;
    let producer = topic.producer();
    let publish = |event: &str| {
        topic.send(&producer, 0, None, Some(event), None);
        producer.flush(PATIENCE).unwrap();
    };
    publish(r#"{"event_id":"a"}"#);
    let consumer = |days: u32| {
        let store = remembering(days);
        let handler = handler_fn(|_, _: oneffect_core::Raw| Box::pin(async { done() }));
        Consumer::new("ledger", source(&[&topic]), store, handler)
    };
    let applied = |consumer: &Consumer<_, _, _>| {
        let stats = consumer.stats();
        async move {
            while stats.snapshot().applied == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };

    let refused = consumer(7);
    let until = applied(&refused);
    let refused = refused.run(until).await;
    let Err(RunError::ShortWindow(check)) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(check.days_needed(), Some(8));
    assert_eq!(topic.committed(0), None);

    for started in [consumer(8), consumer(2).accept_short_window("a test")] {
        let until = applied(&started);
        let stats = tokio::time::timeout(PATIENCE, started.run(until)).await;
        assert_eq!(stats.unwrap().unwrap().applied, 1);
        // For the next, whose store knows of none.
        publish(r#"{"event_id":"b"}"#);
    }
}

#[tokio::test]
async fn the_trailing_marker_of_a_transaction_is_no_lag() {
    let brokers = brokers!();
    let topic = Topic::create(&brokers, 1).await;
    let mut client = topic.client();
    client.set("transactional.id", &topic.name);
    let producer: rdkafka::producer::BaseProducer = client.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    for number in ["0", "1"] {
        topic.send(&producer, 0, None, Some(number), None);
    }
    producer.commit_transaction(PATIENCE).unwrap();

    commit(&topic, 0, 2);
    let findings = source(&[&topic]).examine(Window::Days(8)).await;
    assert_eq!(topic.end(0), 3);
    assert_eq!(finding(&findings, " 0 records behind").level, Level::Ok);

    commit(&topic, 0, 1);
    let findings = source(&[&topic]).examine(Window::Days(8)).await;
    assert_eq!(finding(&findings, " 2 records behind").level, Level::Ok);
    assert!(problems(&findings).is_empty(), "{findings:#?}");
}

/// Field case 036: before offsets are set back, it is said what lies outside of the window.
#[tokio::test]
async fn a_backlog_that_is_older_than_the_window_is_a_problem_and_an_old_log_a_warning() {
    let brokers = brokers!();
    let topic = Topic::with(&brokers, 2, &[("retention.ms", "-1")]).await;
    let producer = topic.producer();
    let written_at = |days_ago: i64| {
        let now = rdkafka::Timestamp::now().to_millis().unwrap();
        now - days_ago * 86_400_000
    };
    for (partition, days_ago) in [(0, 10), (0, 0), (1, 1)] {
        let record: BaseRecord<'_, str, str> = BaseRecord::to(&topic.name)
            .partition(partition)
            .payload("{}")
            .timestamp(written_at(days_ago));
        producer.send(record).unwrap();
    }
    producer.flush(PATIENCE).unwrap();

    let findings = source(&[&topic]).examine(Window::Days(8)).await;
    let backlog = finding(&findings, "3 records are there");
    assert_eq!(backlog.level, Level::Problem, "{findings:#?}");
    assert!(backlog.what.contains("the oldest 10 d"), "{backlog}");

    commit(&topic, 0, 1);
    commit(&topic, 1, 0);
    let findings = source(&[&topic]).examine(Window::Days(8)).await;
    let backlog = finding(&findings, "2 records behind");
    assert_eq!(backlog.level, Level::Ok, "{findings:#?}");
    assert!(backlog.what.contains("the oldest 1 d"), "{backlog}");
    let old = finding(&findings, "the oldest record of topic");
    assert_eq!(old.level, Level::Warning, "{old}");
}

/// Field case 021: offsets that expire before the records do.
#[tokio::test]
async fn the_retention_of_offsets_is_read_from_the_broker() {
    let brokers = brokers!();
    let week = Topic::create(&brokers, 1).await;
    let findings = source(&[&week]).examine(Window::Unlimited).await;
    let offsets = finding(&findings, "offsets of a group without members");
    assert_eq!(offsets.level, Level::Ok, "{offsets}");

    let forever = Topic::with(&brokers, 1, &[("retention.ms", "-1")]).await;
    let findings = source(&[&forever]).examine(Window::Unlimited).await;
    let offsets = finding(&findings, "offsets of a group without members");
    assert_eq!(offsets.level, Level::Warning, "{offsets}");
    let mut latest = source(&[&forever]).set("auto.offset.reset", "latest");
    let findings = latest.examine(Window::Unlimited).await;
    let offsets = finding(&findings, "offsets of a group without members");
    assert_eq!(offsets.level, Level::Problem, "{offsets}");
}

/// Field case 021: an idle group has lost its offsets, so the whole topic comes again, and the inbox
/// knows all of it.
#[tokio::test]
async fn a_group_that_has_lost_its_offsets_doubles_nothing() {
    let brokers = brokers!();
    let topic = Topic::create(&brokers, 1).await;
    let store = remembering(8);
    let producer = topic.producer();
    let publish = |numbers: std::ops::Range<u32>| {
        for n in numbers {
            let event = format!(r#"{{"event_id":"{n}"}}"#);
            topic.send(&producer, 0, None, Some(&event), None);
        }
        producer.flush(PATIENCE).unwrap();
    };
    let run = async |deliveries: u64| {
        let handler = handler_fn(|_, _: oneffect_core::Raw| Box::pin(async { done() }));
        let consumer = Consumer::new("ledger", source(&[&topic]), store.clone(), handler);
        let stats = consumer.stats();
        let all = async move {
            while stats.snapshot().settled() < deliveries {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, consumer.run(all)).await;
        ended.unwrap().unwrap()
    };

    publish(0..200);
    assert_eq!(run(200).await.applied, 200);
    let client = topic.client();
    let admin: rdkafka::admin::AdminClient<rdkafka::client::DefaultClientContext> =
        client.create().unwrap();
    let options = rdkafka::admin::AdminOptions::new();
    let deleted = admin.delete_groups(&[&*topic.group], &options).await;
    deleted.unwrap().remove(0).unwrap();
    publish(200..201);
    let again = run(201).await;

    assert_eq!((again.applied, again.duplicates), (1, 200));
    assert_eq!(store.inbox("ledger").len(), 201);
}
