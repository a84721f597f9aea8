//! `oneffect doctor`.

use std::time::Duration;

use oneffect_cli::Code;
use oneffect_core::{DaysFrom, DuplicateAges, Store};
use serde_json::Value;

use super::{Operated, Ran, on_each_database, oneffect, run_with};
use crate::store_contract::sqlite::OnSqlite;
use crate::support::{service, unique};

on_each_database! {
    the_database_alone_is_looked_at,
    duplicates_that_were_seen_are_told_by_their_age,
    a_window_that_is_too_short_is_a_problem,
    a_broker_that_does_not_answer_is_a_problem,
    an_inbox_that_is_not_there_is_a_problem,
}

/// What it found. The exit code follows from that.
fn findings(ran: &Ran) -> Vec<Value> {
    let findings = ran.lines();
    let has_problems = findings.iter().any(|finding| finding["level"] == "problem");
    let expected = if has_problems {
        Code::Problems
    } else {
        Code::Fine
    };
    assert_eq!(ran.code, expected, "{ran:?}");
    for finding in &findings {
        for field in ["what", "why", "to_do"] {
            assert!(finding[field].is_string(), "{finding}");
        }
    }
    findings
}

fn finding<'f>(findings: &'f [Value], part: &str) -> &'f Value {
    let says = |finding: &&Value| finding["what"].as_str().unwrap().contains(part);
    findings
        .iter()
        .find(says)
        .unwrap_or_else(|| panic!("nothing says {part}: {findings:#?}"))
}

async fn the_database_alone_is_looked_at<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };

    let findings = findings(&oneffect(&database, &["doctor", "--json"]).await);
    let text = oneffect(&database, &["doctor"]).await;

    assert_eq!(finding(&findings, "version")["level"], "ok");
    assert!(text.out.contains("version"), "{}", text.out);
    assert!(text.out.contains("problems, "), "{}", text.out);
    assert!(text.err.contains("no broker was named"), "{}", text.err);
}

async fn duplicates_that_were_seen_are_told_by_their_age<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let store = database.store();
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    let mut ages = DuplicateAges::default();
    ages.record_many(Duration::from_secs(2), 99);
    ages.record(Duration::from_hours(26));
    store.note_duplicate_ages(consumer, &ages).await.unwrap();

    let text = oneffect(&database, &["doctor"]).await;

    assert!(
        text.out.contains("100 duplicates of consumer ledger"),
        "{}",
        text.out
    );
    assert!(
        text.out.contains("the oldest after 1 d 2 h"),
        "{}",
        text.out
    );
}

async fn an_inbox_that_is_not_there_is_a_problem<D: Operated>() {
    let Some(database) = D::unmigrated().await else {
        return;
    };

    let ran = oneffect(&database, &["doctor", "--json"]).await;

    assert_eq!(ran.code, Code::Problems);
    assert_eq!(finding(&findings(&ran), "no inbox")["level"], "problem");
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

    let fine = findings(&oneffect(&database, &[&kafka, &["--json"][..]].concat()).await);
    let window = finding(&fine, "a window of");
    assert_eq!(window["level"], "ok", "{window}");
    assert!(
        window["why"]
            .as_str()
            .unwrap()
            .contains(&format!("topic {topic}")),
        "{window}"
    );

    let horizon = ["--replay-horizon", "webhooks=3d"];
    let short = oneffect(&database, &[&kafka[..], &horizon, &["--json"]].concat()).await;
    assert_eq!(short.code, Code::Problems);
    let short = findings(&short);
    let window = finding(&short, "a window of");
    assert_eq!(window["level"], "problem");
    assert!(
        window["why"].as_str().unwrap().contains("webhooks"),
        "{window}"
    );
    let text = oneffect(&database, &[&kafka[..], &horizon].concat()).await;
    assert!(text.out.contains("too short"), "{}", text.out);
    assert!(!text.err.contains("no broker"), "{}", text.err);
}

async fn a_broker_that_does_not_answer_is_a_problem<D: Operated>() {
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
    let findings = findings(&oneffect(&database, &away).await);

    assert_eq!(finding(&findings, "no broker of")["level"], "problem");
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

/// Credentials come from the environment, as the services' do.
#[tokio::test]
async fn a_queue_is_looked_at() {
    let Some(endpoint) = service("SQS_ENDPOINT") else {
        return;
    };
    let database = OnSqlite::migrated().await;
    let client = crate::support::sqs_client(&endpoint);
    let queue = client
        .create_queue()
        .queue_name(unique("doctor"))
        .send()
        .await
        .unwrap();
    let url = queue.queue_url.unwrap();

    let doctor = [
        "doctor",
        "--sqs",
        &url,
        "--sqs-endpoint",
        &endpoint,
        "--json",
    ];
    let findings = findings(&oneffect(&database, &doctor).await);

    let name = url.rsplit('/').next().unwrap();
    let window = finding(&findings, "a window of");
    assert_eq!(window["level"], "ok", "{window}");
    assert!(window["why"].as_str().unwrap().contains(name), "{window}");
}
