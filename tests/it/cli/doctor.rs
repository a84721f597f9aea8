//! `oneffect doctor`.

use std::time::Duration;

use oneffect_cli::Code;
use oneffect_core::{DaysFrom, DuplicateAges, Store};
use serde_json::Value;

use super::{Operated, Ran, on_each_database, oneffect, run_with};
use crate::support::{service, unique};

on_each_database! {
    the_database_alone_is_looked_at,
    duplicates_that_were_seen_are_told_by_their_age,
    a_window_that_is_too_short_is_a_problem,
    a_broker_that_does_not_answer_is_a_warning,
}

fn parts<'l>(lines: &'l [Value], part: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["part"] == part).collect()
}

/// How it ended, and the lines of its JSON.
fn verdict(ran: &Ran) -> (Code, Vec<Value>) {
    let lines = ran.lines();
    let verdict = lines.last().unwrap();
    assert_eq!(verdict["part"], "verdict");
    let has_problems = verdict["problems"] != 0;
    assert_eq!(ran.code == Code::Problems, has_problems, "{ran:?}");
    (ran.code, lines)
}

async fn the_database_alone_is_looked_at<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };

    let (code, lines) = verdict(&oneffect(&database, &["doctor", "--json"]).await);
    let text = oneffect(&database, &["doctor"]).await;

    assert_eq!(code, Code::Fine, "{lines:?}");
    let window = parts(&lines, "window")[0];
    assert_eq!(window["is_long_enough"], true);
    assert_eq!(window["reaches"], serde_json::json!([]));
    assert!(text.out.contains("--kafka or --sqs"), "{}", text.out);
    assert!(text.out.contains("0 problems"), "{}", text.out);
}

async fn duplicates_that_were_seen_are_told_by_their_age<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let store = database.store();
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    store.open("mail", DaysFrom::Id).await.unwrap();
    let mut ages = DuplicateAges::default();
    ages.record_many(Duration::from_secs(2), 99);
    ages.record(Duration::from_hours(26));
    store.note_duplicate_ages(consumer, &ages).await.unwrap();

    let (_, lines) = verdict(&oneffect(&database, &["doctor", "--json"]).await);
    let text = oneffect(&database, &["doctor"]).await;

    let duplicates = parts(&lines, "duplicates");
    assert_eq!(duplicates[0]["consumer"], "ledger");
    assert_eq!(duplicates[0]["count"], 100);
    assert_eq!(duplicates[0]["p50_seconds"], 2);
    assert_eq!(duplicates[0]["oldest_seconds"], 26 * 60 * 60);
    assert_eq!(duplicates[1]["count"], 0);
    assert_eq!(duplicates[1]["oldest_seconds"], Value::Null);
    assert!(
        text.out.contains("100 seen: half came within 2 s"),
        "{}",
        text.out
    );
    assert!(
        text.out.contains("the oldest after 1 d 2 h"),
        "{}",
        text.out
    );
}

/// Field case 123. Topics are kept for a week unless somebody says otherwise.
async fn a_window_that_is_too_short_is_a_problem<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let Some(brokers) = service("KAFKA_BROKERS") else {
        return;
    };
    let topic = unique("doctor");
    create(&brokers, &topic).await;
    let kafka = [
        "doctor", "--kafka", &brokers, "--topic", &topic, "--group", &topic,
    ];

    let fine = oneffect(&database, &[&kafka, &["--json"][..]].concat()).await;
    let (code, lines) = verdict(&fine);
    assert_eq!(code, Code::Fine, "{lines:?}");
    let reach = &parts(&lines, "window")[0]["reaches"][0];
    assert_eq!(reach["path"], format!("topic {topic}"));
    assert_eq!(reach["seconds"], 7 * 24 * 60 * 60);
    let of_kafka = |line: &&&Value| line["of"].as_str().unwrap().starts_with("kafka");
    assert!(
        parts(&lines, "finding").iter().any(|line| of_kafka(&line)),
        "{lines:?}"
    );

    let horizon = ["--replay-horizon", "webhooks=3d"];
    let short = oneffect(&database, &[&kafka[..], &horizon, &["--json"]].concat()).await;
    let (code, lines) = verdict(&short);
    assert_eq!(code, Code::Problems);
    let window = parts(&lines, "window")[0];
    assert_eq!(window["is_long_enough"], false);
    assert_eq!(window["days_needed"], 11);
    let text = oneffect(&database, &[&kafka[..], &horizon].concat()).await;
    assert!(text.out.contains("too short"), "{}", text.out);
    assert!(text.out.contains("webhooks"), "{}", text.out);
}

async fn create(brokers: &str, topic: &str) {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    use rdkafka::client::DefaultClientContext;
    use rdkafka::config::ClientConfig;

    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let topic = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    admin
        .create_topics([&topic], &AdminOptions::new())
        .await
        .unwrap();
}

async fn a_broker_that_does_not_answer_is_a_warning<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };

    let away = [
        "doctor",
        "--kafka",
        "127.0.0.1:1",
        "--topic",
        "t",
        "--group",
        "g",
        "--json",
    ];
    let (code, lines) = verdict(&oneffect(&database, &away).await);

    assert_eq!(code, Code::Fine);
    let reach = &parts(&lines, "window")[0]["reaches"][0];
    assert_eq!(reach["is_known"], false, "{lines:?}");
    assert_ne!(lines.last().unwrap()["warnings"], 0);
}

#[tokio::test]
async fn a_source_that_is_named_by_half_is_a_usage_error() {
    for (command, says) in [
        (&["doctor", "--kafka", "h:1"][..], "--topic"),
        (&["doctor", "--topic", "t"], "--group"),
        (&["doctor", "--topic", "t", "--group", "g"], "KAFKA_BROKERS"),
        (&["doctor", "--replay-horizon", "webhooks"], "NAME=TIME"),
    ] {
        let options = ["--database", "x.db"].map(str::to_owned).to_vec();
        let ran = run_with(options, command, None).await;
        assert_eq!(ran.code, Code::Usage, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
}
