//! For how long a topic may bring duplicates: for as long as it keeps records.

use std::collections::BTreeMap;
use std::time::Duration;

use oneffect_core::{Reach, Span};

use crate::inquiry::{Answers, Settings};
use crate::topics::is_pattern;

/// The way through each topic.
pub(crate) fn reaches(topics: &[String], answers: Answers) -> Vec<Reach> {
    topics
        .iter()
        .zip(answers.topics)
        .map(|(topic, settings)| reach(topic, settings))
        .collect()
}

fn reach(topic: &str, settings: Settings) -> Reach {
    let path = format!("topic {topic}");
    if is_pattern(topic) {
        let why = "a pattern: which topics it stands for is not known before they are assigned";
        return Reach::unknown(path, why);
    }
    let settings = match settings {
        Ok(settings) => settings,
        Err(reason) => return Reach::unknown(path, reason),
    };
    match retention(&settings) {
        Some(Retention::For(length)) => {
            let segment = millis(&settings, "segment.ms").unwrap_or_default();
            Reach::lasting(
                path,
                length,
                format!(
                    "retention.ms of the topic; up to {} more where a segment is not full",
                    Span(segment)
                ),
            )
        }
        Some(Retention::Compacted) => Reach::unlimited(
            path,
            "cleanup.policy is compact: the last record of each key is kept for ever",
        ),
        Some(Retention::Unlimited) => Reach::unlimited(path, "retention.ms is -1: for ever"),
        None => Reach::unknown(path, "the broker does not tell the topic's retention.ms"),
    }
}

/// For how long a topic keeps its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    For(Duration),
    Unlimited,
    /// Only the newest record of each key, but for ever.
    Compacted,
}

/// `None` when the settings do not say.
pub(crate) fn retention(settings: &BTreeMap<String, String>) -> Option<Retention> {
    let policies = settings
        .get("cleanup.policy")
        .map_or("delete", String::as_str);
    let has = |policy: &str| policies.split(',').any(|one| one.trim() == policy);
    // With both policies old records are deleted as well as superseded ones.
    if has("compact") && !has("delete") {
        return Some(Retention::Compacted);
    }
    let retention: i64 = settings.get("retention.ms")?.parse().ok()?;
    Some(match u64::try_from(retention) {
        Ok(millis) => Retention::For(Duration::from_millis(millis)),
        Err(_) => Retention::Unlimited,
    })
}

pub(crate) fn millis(settings: &BTreeMap<String, String>, name: &str) -> Option<Duration> {
    let millis = settings.get(name)?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneffect_core::Longest;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    fn longest(topic: &str, settings: &[(&str, &str)]) -> Longest {
        let settings = settings.iter();
        let settings = settings.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        reach(topic, Ok(settings.collect())).longest
    }

    #[test]
    fn a_topic_brings_duplicates_for_as_long_as_it_keeps_records() {
        let day = Longest::For(Duration::from_millis(DAY));
        for (policy, retention, expected) in [
            ("delete", "86400000", day),
            ("compact,delete", "86400000", day),
            ("delete, compact", "86400000", day),
            ("compact", "86400000", Longest::Unlimited),
            ("delete", "-1", Longest::Unlimited),
            ("delete", "soon", Longest::Unknown),
        ] {
            let settings = [("cleanup.policy", policy), ("retention.ms", retention)];
            assert_eq!(longest("t", &settings), expected, "{policy} {retention}");
        }
        assert_eq!(longest("t", &[]), Longest::Unknown);
        let settings = [("retention.ms", "86400000")];
        assert_eq!(longest("^t.*", &settings), Longest::Unknown);
    }

    #[test]
    fn what_the_broker_refuses_to_tell_is_unknown_with_its_reason() {
        let reach = reach("t", Err("denied".to_owned()));
        assert_eq!((reach.longest, &*reach.found), (Longest::Unknown, "denied"));
    }
}
