//! What a person should know about the topics, the group and the client's settings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oneffect_core::{Finding, Span, Window};

use crate::horizon::{Retention, retention};
use crate::inquiry::{Inquiry, Settings};
use crate::lag::{First, Observer, PartitionLag};
use crate::topics::is_pattern;

/// How long a member that was killed may keep its partitions before that is worth a word.
const LONG_SESSION: Duration = Duration::from_mins(1);

pub(crate) fn examine(inquiry: &Inquiry, window: Window) -> Vec<Finding> {
    let answers = inquiry.settings();
    let mut findings = client_settings(inquiry);
    if let Some(reason) = answers.away {
        findings.push(Finding::problem(
            reason,
            "a consumer would wait for them; nothing about topics and group was checked",
            "check the address, and that the brokers run",
        ));
        return findings;
    }
    for (topic, settings) in inquiry.topics.iter().zip(&answers.topics) {
        if answers.missing.contains(topic) {
            findings.push(Finding::problem(
                format!("there is no topic {topic}, or it may not be seen"),
                "a consumer of it does not start",
                "create it, mend its name, or allow DESCRIBE on it",
            ));
        } else if !is_pattern(topic) {
            findings.push(topic_settings(topic, settings));
        }
    }
    let longest = (answers.topics.iter())
        .filter_map(|settings| retention(settings.as_ref().ok()?))
        .max_by_key(|retention| match retention {
            Retention::For(length) => *length,
            Retention::Unlimited | Retention::Compacted => Duration::MAX,
        });
    let resets_to_latest = resets_to_latest(inquiry);
    findings.push(offsets_retention(
        &answers.broker,
        longest,
        resets_to_latest,
    ));
    findings.extend(waiting(inquiry, &answers.missing, window));
    findings
}

fn client_settings(inquiry: &Inquiry) -> Vec<Finding> {
    let client = inquiry
        .config
        .client_config(&inquiry.brokers, &inquiry.group);
    let mut findings = Vec::new();
    let session = client
        .get("session.timeout.ms")
        .and_then(|ms| ms.parse().ok());
    if let Some(session) = session.map(Duration::from_millis) {
        let what = format!("session.timeout.ms is {}", Span(session));
        findings.push(if session > LONG_SESSION {
            Finding::warning(
                what,
                "the work of a process that was killed lies for so long before others take it over",
                "shorten it; 10 s is this source's own choice",
            )
        } else {
            Finding::ok(what)
        });
    }
    if client.get("isolation.level") == Some("read_uncommitted") {
        findings.push(Finding::problem(
            "isolation.level is read_uncommitted",
            "events of transactions that the producer has aborted take effect",
            "leave it at read_committed",
        ));
    }
    if resets_to_latest(inquiry) {
        findings.push(Finding::warning(
            "auto.offset.reset is latest",
            "what was written before the group has offsets of a partition is never handled: also \
             what comes into a new partition before it is noticed",
            "leave it at earliest: the inbox tells what was handled before",
        ));
    }
    findings
}

fn resets_to_latest(inquiry: &Inquiry) -> bool {
    let reset = inquiry.config.properties.get("auto.offset.reset");
    reset.is_some_and(|reset| matches!(reset.as_str(), "latest" | "largest" | "end"))
}

fn topic_settings(topic: &str, settings: &Settings) -> Finding {
    let settings = match settings {
        Ok(settings) => settings,
        Err(reason) => {
            return Finding::warning(
                format!("the settings of topic {topic} are not known: {reason}"),
                "for how long it may bring duplicates was not checked",
                format!(
                    "allow DESCRIBE_CONFIGS on it, or say it yourself: \
                     replay_horizon(\"topic {topic}\", ..)"
                ),
            );
        }
    };
    let get = |name: &str| settings.get(name).map_or("unknown", String::as_str);
    let kept = match retention(settings) {
        Some(Retention::For(length)) => format!("keeps records for {}", Span(length)),
        Some(Retention::Unlimited) => "keeps records for ever".to_owned(),
        Some(Retention::Compacted) => "keeps the newest record of each key for ever".to_owned(),
        None => "does not say for how long it keeps records".to_owned(),
    };
    let policy = get("cleanup.policy");
    let size = match get("retention.bytes") {
        "-1" => String::new(),
        bytes => format!(", at most {bytes} bytes a partition"),
    };
    Finding::ok(format!("topic {topic} {kept}{size} ({policy})"))
}

/// A group that nobody is in loses its offsets some day, and begins again where
/// `auto.offset.reset` says.
fn offsets_retention(
    broker: &Settings,
    topics: Option<Retention>,
    resets_to_latest: bool,
) -> Finding {
    let minutes = match broker {
        Ok(settings) => settings.get("offsets.retention.minutes"),
        Err(reason) => {
            return Finding::warning(
                format!("offsets.retention.minutes is not known: {reason}"),
                "whether an idle group loses its offsets before the topics lose their records was \
                 not checked",
                "allow DESCRIBE_CONFIGS on the cluster",
            );
        }
    };
    let Some(minutes) = minutes.and_then(|minutes| minutes.parse().ok()) else {
        return Finding::warning(
            "the broker does not tell its offsets.retention.minutes",
            "whether an idle group loses its offsets was not checked",
            "ask whoever runs it",
        );
    };
    let kept = Duration::from_secs(60_u64.saturating_mul(minutes));
    let what = format!(
        "offsets of a group without members are kept for {}",
        Span(kept)
    );
    let records_outlive = match topics {
        Some(Retention::For(length)) => kept < length,
        Some(Retention::Unlimited | Retention::Compacted) => true,
        None => false,
    };
    match (records_outlive, resets_to_latest) {
        (false, _) => Finding::ok(what),
        (true, true) => Finding::problem(
            what,
            "after that auto.offset.reset skips to the end, and all that waits in the topics is \
             never handled",
            "set auto.offset.reset to earliest, or raise offsets.retention.minutes above the \
             topics' retention",
        ),
        (true, false) => Finding::warning(
            what,
            "records are kept for longer, so a group that was idle for that long reads all of them \
             again: the inbox knows them for duplicates as long as the window lasts",
            "raise offsets.retention.minutes above the topics' retention",
        ),
    }
}

fn waiting(inquiry: &Inquiry, missing: &[String], window: Window) -> Vec<Finding> {
    let unknown = |topic: &str, error: &dyn std::fmt::Display| {
        Finding::warning(
            format!(
                "what waits in topic {topic} for group {} is not known: {error}",
                inquiry.group
            ),
            "whether the group is too far behind was not checked",
            "see that the brokers are within reach and READ on topic and group is allowed",
        )
    };
    let observer = match Observer::new(inquiry) {
        Ok(observer) => observer,
        Err(error) => return vec![unknown(&inquiry.topics.join(", "), &error)],
    };
    let mut findings = Vec::new();
    let there = |topic: &&String| !is_pattern(topic) && !missing.contains(topic);
    for topic in inquiry.topics.iter().filter(there) {
        match observer.look_at(topic) {
            Ok(partitions) => {
                findings.push(lag(&inquiry.group, topic, &partitions, window, now()));
                findings.extend(old_records(topic, &partitions, window, now()));
            }
            Err(error) => findings.push(unknown(topic, &error)),
        }
    }
    findings
}

#[allow(
    clippy::disallowed_methods,
    reason = "only to say how old a broker's timestamp is; nothing is decided by it"
)]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// The oldest record's age, of those that have a timestamp.
fn oldest(firsts: impl Iterator<Item = First>, now: i64) -> Option<Duration> {
    let ages = firsts.filter_map(|first| match first {
        First::Record(Some(at)) => u64::try_from(now.saturating_sub(at)).ok(),
        First::Record(None) | First::Nothing | First::Unknown => None,
    });
    // To the second: more would say nothing, and be different each time.
    ages.max().map(|millis| Duration::from_secs(millis / 1000))
}

fn lag(group: &str, topic: &str, partitions: &[PartitionLag], window: Window, now: i64) -> Finding {
    let behind: i64 = partitions.iter().map(PartitionLag::behind).sum();
    let has_begun = partitions.iter().any(|lag| lag.committed.is_some());
    let mut what = format!("group {group} is {behind} records behind in topic {topic}");
    if !has_begun {
        what = format!("group {group} has no offsets in topic {topic}; {behind} records are there");
    }
    if behind == 0 {
        return Finding::ok(what);
    }
    let waiting = partitions.iter().filter(|lag| lag.behind() > 0);
    let Some(age) = oldest(waiting.map(|lag| lag.unread), now) else {
        return Finding::ok(what);
    };
    what = format!("{what}, the oldest {} old", Span(age));
    match window.length() {
        Some(window) if age >= window => Finding::problem(
            what,
            format!(
                "events are remembered for {}: what is older and has a day of its own will be a \
                 dead letter, since nobody can say whether it was handled before",
                Span(window)
            ),
            "to handle old history, start with ProcessAsNew { until }; else find out why the \
             group is so far behind",
        ),
        Some(window) if age >= window / 2 => Finding::warning(
            what,
            format!(
                "events are remembered for {}, and half of that has gone",
                Span(window)
            ),
            "find out why the group is so far behind",
        ),
        _ => Finding::ok(what),
    }
}

/// Brokers delete whole segments, so records may be there for longer than the retention says.
fn old_records(
    topic: &str,
    partitions: &[PartitionLag],
    window: Window,
    now: i64,
) -> Option<Finding> {
    let age = oldest(partitions.iter().map(|lag| lag.first), now)?;
    let what = format!("the oldest record of topic {topic} is {} old", Span(age));
    let window = window.length()?;
    Some(if age <= window {
        Finding::ok(what)
    } else {
        Finding::warning(
            what,
            format!(
                "events are remembered for {}; a group that is set back to the beginning reads \
                 records whose events are forgotten (brokers delete whole segments, and one that \
                 is not full stays for up to segment.ms longer than its records' retention)",
                Span(window)
            ),
            "do not set the group back that far; shorten segment.ms, or remember for longer",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use oneffect_core::Level;

    const DAY: i64 = 24 * 60 * 60 * 1000;
    const NOW: i64 = 20_000 * DAY;

    fn partition(committed: Option<i64>, end: i64, unread: First) -> PartitionLag {
        PartitionLag {
            partition: 0,
            committed,
            start: 0,
            end,
            unread,
            first: First::Nothing,
        }
    }

    fn of(partitions: &[PartitionLag]) -> Finding {
        lag("ledger", "t", partitions, Window::Days(8), NOW)
    }

    /// design.md, section 7.
    #[test]
    fn the_markers_of_transactions_at_the_end_are_no_lag() {
        let finding = of(&[partition(Some(3), 4, First::Nothing)]);
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.what.contains(" 0 records behind"), "{finding}");
    }

    #[test]
    fn a_backlog_older_than_the_window_is_a_problem() {
        for (age, level) in [(1, Level::Ok), (4, Level::Warning), (8, Level::Problem)] {
            let unread = First::Record(Some(NOW - age * DAY));
            let young = partition(Some(0), 5, First::Record(Some(NOW)));
            assert_eq!(of(&[young, partition(Some(7), 9, unread)]).level, level);
        }
        // A store that forgets nothing can be behind as far as it likes.
        let unread = partition(None, 5, First::Record(Some(0)));
        let finding = lag("ledger", "t", &[unread], Window::Unlimited, NOW);
        assert_eq!(finding.level, Level::Ok);
    }

    #[test]
    fn records_without_a_time_or_of_the_future_have_no_age() {
        for at in [None, Some(NOW + DAY)] {
            assert_eq!(
                of(&[partition(None, 5, First::Record(at))]).level,
                Level::Ok
            );
        }
    }

    #[test]
    fn the_first_offset_that_is_left_counts_not_one_that_is_gone() {
        let mut lag = partition(Some(3), 10, First::Unknown);
        lag.start = 8;
        assert_eq!(lag.behind(), 2);
    }

    /// Field case 021.
    #[test]
    fn offsets_that_expire_before_the_records_are_read_again_or_skipped() {
        let broker = |minutes: &str| {
            let entry = ("offsets.retention.minutes".to_owned(), minutes.to_owned());
            Ok(BTreeMap::from([entry]))
        };
        let week = Some(Retention::For(Duration::from_hours(7 * 24)));
        for (minutes, topics, latest, level) in [
            ("10080", week, false, Level::Ok),
            ("10080", week, true, Level::Ok),
            ("1", week, false, Level::Warning),
            ("1", week, true, Level::Problem),
            ("10080", Some(Retention::Compacted), false, Level::Warning),
            ("10080", Some(Retention::Unlimited), true, Level::Problem),
            ("1", None, false, Level::Ok),
            ("never", week, false, Level::Warning),
        ] {
            let finding = offsets_retention(&broker(minutes), topics, latest);
            assert_eq!(finding.level, level, "{finding}");
        }
        let denied = offsets_retention(&Err("denied".to_owned()), week, false);
        assert_eq!(denied.level, Level::Warning);
    }

    #[test]
    fn records_that_outlive_the_window_are_told_of() {
        let mut lag = partition(Some(5), 5, First::Nothing);
        lag.first = First::Record(Some(NOW - 10 * DAY));
        let finding = old_records("t", &[lag], Window::Days(8), NOW).unwrap();
        assert_eq!(finding.level, Level::Warning, "{finding}");
    }
}
