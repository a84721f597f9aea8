//! Whether the topics exist, found out before the first event.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use oneffect_core::SourceError;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::context::Context;
use crate::fault;

/// What the brokers say about a topic.
enum Answer {
    Exists,
    Missing,
    /// Not known yet: it is being created, or moved.
    NotYet,
    Denied,
}

/// A topic that was created a moment ago may not have reached every broker.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a subscription names topics by a regular expression, as librdkafka has it.
pub(crate) fn is_pattern(topic: &str) -> bool {
    topic.starts_with('^')
}

/// Waits until all topics are there.
pub(crate) fn check(
    consumer: &BaseConsumer<Context>,
    topics: &[String],
    brokers: &str,
    timeout: Duration,
) -> Result<(), SourceError> {
    let started = Instant::now();
    let mut missing: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = topics.iter().map(String::as_str).collect();
    open.retain(|topic| !is_pattern(topic));
    let mut answered_at = None;
    loop {
        let mut unanswered = None;
        let mut still_open = Vec::new();
        for &topic in &open {
            let left = timeout.saturating_sub(started.elapsed()).max(PAUSE);
            match ask(consumer, topic, left.min(PATIENCE)) {
                Ok(Answer::Exists) => {
                    missing.remove(topic);
                    continue;
                }
                Ok(Answer::Missing) => {
                    missing.insert(topic);
                }
                Ok(Answer::NotYet) => {}
                Ok(Answer::Denied) => return Err(fault::denied(&format!("topic `{topic}`"))),
                Err(error) => unanswered = Some(error),
            }
            still_open.push(topic);
        }
        open = still_open;
        if open.is_empty() {
            return Ok(());
        }
        // Errors wait in the queue until they are polled for; there are no records yet.
        while consumer.poll(Duration::ZERO).is_some() || consumer.context().take_served() {}
        if unanswered.is_none() {
            answered_at.get_or_insert_with(Instant::now);
        }
        let patience_is_over = answered_at.is_some_and(|at: Instant| at.elapsed() >= PATIENCE);
        if patience_is_over && !missing.is_empty() {
            return Err(not_there(&missing, brokers));
        }
        if started.elapsed() >= timeout {
            return Err(match unanswered {
                Some(error) => out_of_reach(consumer, brokers, timeout, error),
                None if missing.is_empty() => SourceError::fatal(format!(
                    "the topics {open:?} have no leader after {timeout:?}"
                )),
                None => not_there(&missing, brokers),
            });
        }
        if consumer.context().is_closing() {
            return Err(SourceError::fatal("closed while it was being opened"));
        }
        thread::sleep(PAUSE);
    }
}

fn ask(consumer: &BaseConsumer<Context>, topic: &str, timeout: Duration) -> KafkaResult<Answer> {
    let metadata = consumer.fetch_metadata(Some(topic), timeout)?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(Answer::Missing);
    };
    let Some(error) = found.error() else {
        return Ok(if found.partitions().is_empty() {
            Answer::Missing
        } else {
            Answer::Exists
        });
    };
    let code = Code::from(error);
    if matches!(
        code,
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::InvalidTopic
    ) {
        return Ok(Answer::Missing);
    }
    if matches!(code, Code::TopicAuthorizationFailed) {
        return Ok(Answer::Denied);
    }
    Ok(Answer::NotYet)
}

fn not_there(missing: &BTreeSet<&str>, brokers: &str) -> SourceError {
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    SourceError::misconfigured(format!(
        "no such topic at {brokers}: {}; create it, or correct the name",
        names.join(", ")
    ))
}

fn out_of_reach(
    consumer: &BaseConsumer<Context>,
    brokers: &str,
    timeout: Duration,
    error: KafkaError,
) -> SourceError {
    let reason = consumer.context().last_cause();
    let reason = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    SourceError::fatal(format!(
        "no broker of {brokers} answered within {timeout:?}{reason}; check the address, `security.protocol` and the credentials"
    ))
    .because(error)
}
