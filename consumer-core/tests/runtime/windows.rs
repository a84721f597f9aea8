//! A consumer that would forget events too early does not start.

use std::time::Duration;

use oneffect_core::testing::{MemoryLog, MemoryLogSource, MemoryStore, Message};
use oneffect_core::{Consumer, ConsumerConfig, Reach, RunError, Stats};

use crate::bench::Scripted;

const DAY: Duration = Duration::from_hours(24);

/// A store with that window.
fn remembering(days: u32) -> MemoryStore {
    let store = MemoryStore::new();
    store.set_window_days(days);
    store
}

type Ledger = Consumer<MemoryLogSource, MemoryStore, Scripted>;
type Change = fn(Ledger) -> Ledger;

/// Runs a consumer of one event, if it starts.
async fn run(store: MemoryStore, reaches: Vec<Reach>, change: Change) -> Result<Stats, RunError> {
    let log = MemoryLog::new("transfers", 1);
    log.produce(0, Message::new(r#"{"event_id":"a"}"#));
    let source = log.source().reaching(reaches);
    let consumer = change(Consumer::new("ledger", source, store, Scripted::default()));
    let stats = consumer.stats();
    let all_done = async move {
        while stats.snapshot().settled() < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = consumer.run(all_done).await;
    // A refused consumer has never been in the group.
    if ended.is_err() {
        assert_eq!((log.owner(0), log.committed(0)), (None, 0));
    }
    ended
}

fn week() -> Vec<Reach> {
    vec![Reach::lasting(
        "topic transfers",
        DAY * 7,
        "retention.ms of the topic",
    )]
}

/// Field case 123.
#[tokio::test(start_paused = true)]
async fn a_window_shorter_than_the_longest_path_stops_the_start_with_the_arithmetic() {
    let store = remembering(7);

    let refused = run(store, week(), |consumer| consumer).await.unwrap_err();

    let RunError::ShortWindow(check) = &refused else {
        panic!("{refused:?}");
    };
    assert!(!check.is_long_enough());
    let said = refused.to_string();
    for part in [
        "topic transfers",
        "7 d",
        "too short by",
        "8 days",
        "accept_short_window",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_window_that_is_accepted_by_name_does_not_stop_the_start() {
    let store = remembering(1);
    let accept: Change = |consumer| consumer.accept_short_window("nobody resets this group");
    assert_eq!(run(store, week(), accept).await.unwrap().applied, 1);

    let store = remembering(1);
    let unexplained = run(store, week(), |c| c.accept_short_window(" ")).await;
    assert!(matches!(unexplained, Err(RunError::Config(_))));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_long_enough_starts_as_far_as_is_known() {
    for reaches in [
        week(),
        vec![Reach::unknown("topic transfers", "denied")],
        vec![],
    ] {
        let store = remembering(8);
        assert_eq!(run(store, reaches, |c| c).await.unwrap().applied, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_publishes_again_counts_with_the_brokers_retention_on_top() {
    let webhooks: Change = |c| c.replay_horizon("webhooks", DAY * 3);
    let store = remembering(10);
    let refused = run(store, week(), webhooks).await;
    assert!(matches!(refused, Err(RunError::ShortWindow(_))));

    let store = remembering(11);
    assert_eq!(run(store, week(), webhooks).await.unwrap().applied, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_ever_needs_an_explicit_horizon() {
    let kept = || vec![Reach::unlimited("topic state", "cleanup.policy is compact")];
    let store = || remembering(30);

    let refused = run(store(), kept(), |c| c).await.unwrap_err();
    assert!(refused.to_string().contains("\"topic state\""), "{refused}");

    let explicit: Change = |c| c.replay_horizon("topic state", DAY * 20);
    assert_eq!(run(store(), kept(), explicit).await.unwrap().applied, 1);
}

/// Kafka's default retention is 7 days, and PostgreSQL and SQLite remember for 8 by default.
#[test]
fn the_default_retries_fit_between_the_default_retention_and_the_default_window() {
    let config = ConsumerConfig::default();
    let attempts = config.handler_timeout * config.retry.max_attempts;
    assert!(config.retry.longest_total() + attempts < DAY);
}
