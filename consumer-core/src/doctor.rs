//! Looks at everything a consumer depends on, for people: before it runs, or because it does not.
//!
//! [`examine`] asks the store and the sources what they see ([`Store::examine`],
//! [`Source::examine`]) and compares the window with the longest way a duplicate can take. It takes
//! part in nothing and changes nothing, so it may run beside a consumer at any time.

mod clock;

pub use clock::ClockProbe;

use crate::consumer::ConsumerConfig;
use crate::duplicate_ages::DuplicateAges;
use crate::finding::{Finding, Level};
use crate::handler::error_chain;
use crate::source::Source;
use crate::span::Span;
use crate::store::Store;
use crate::window::{Window, WindowCheck};

/// Examines a store and the sources of its consumers. `config` is what the consumers are configured
/// with: its replay horizons and retries count.
///
/// # Cancel safety
/// Changes nothing, so it may be dropped at any time.
pub async fn examine<S: Store>(
    store: &S,
    sources: &mut [Box<dyn Source>],
    config: &ConsumerConfig,
) -> Vec<Finding> {
    let mut findings = store.examine().await;
    let window = match store.window().await {
        Ok(window) => Some(window),
        Err(error) => {
            findings.push(Finding::warning(
                format!("the window is not known: {}", error_chain(&error)),
                "whether events are remembered for long enough was not checked",
                "see that the database is within reach, and migrated",
            ));
            None
        }
    };
    for source in sources {
        if let Some(window) = window {
            let check = WindowCheck::of(window, source.as_mut(), config).await;
            findings.push(window_finding(source.system(), &check, config));
        }
        // Where nobody knows the window, a backlog cannot be too old for it.
        let window = window.unwrap_or(Window::Unlimited);
        findings.extend(source.examine(window).await);
    }
    findings
}

/// The worst level of all; [`Level::Ok`] where there is nothing.
pub fn worst(findings: &[Finding]) -> Level {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(Level::Ok)
}

fn window_finding(system: &str, check: &WindowCheck, config: &ConsumerConfig) -> Finding {
    let arithmetic = check.to_string();
    let window = check.window;
    let mut finding = if !check.is_long_enough() {
        let to_do = "remember events for longer, have the broker keep them for a shorter time, or \
                     say `accept_short_window` and why: without that the consumer does not start";
        let what = format!("a window of {window} is too short for what {system} may deliver again");
        Finding::problem(what, arithmetic, to_do)
    } else if check.unknown().next().is_some() {
        let what = format!("whether a window of {window} is enough for {system} is not known");
        let to_do = "allow what could not be read, or say how long it takes by `replay_horizon` \
                     with the path's name";
        Finding::warning(what, arithmetic, to_do)
    } else {
        let what = format!("a window of {window} is enough for what {system} may deliver again");
        Finding {
            why: arithmetic,
            ..Finding::ok(what)
        }
    };
    if let (Level::Problem, Some(reason)) = (finding.level, &config.accept_short_window) {
        finding.level = Level::Warning;
        finding.to_do = format!("nothing: it was accepted, since {reason}");
    }
    finding
}

/// Where the days of a consumer's events come from, as the store keeps it
/// ([`DaysFrom::as_str`](crate::DaysFrom::as_str)): for stores.
pub fn days_from(consumer: &str, kept: &str) -> Finding {
    let source = if kept == crate::DaysFrom::Producer.as_str() {
        "a time that the producer repeats"
    } else {
        "the times inside their ids"
    };
    Finding::ok(format!(
        "consumer {consumer} takes the days of its events from {source}"
    ))
}

/// What the ages of a consumer's duplicates say about the window: for stores, which know both.
pub fn duplicate_ages(consumer: &str, ages: &DuplicateAges, window: Window) -> Finding {
    /// Of the window; what comes later is close to not being recognised at all.
    const LATE: (u32, u32) = (3, 4);
    let (Some(most), Some(oldest)) = (ages.quantile(0.9999), ages.oldest()) else {
        return Finding::ok(format!(
            "no duplicates of consumer {consumer} have come yet"
        ));
    };
    let days = oldest.as_secs() / (24 * 60 * 60) + 1;
    let what = format!(
        "99.99 % of {} duplicates of consumer {consumer} came within {}; the oldest after {}: a \
         window of {days} d would have caught them all",
        ages.count(),
        Span(most),
        Span(oldest),
    );
    match window.length() {
        Some(window) if oldest >= window * LATE.0 / LATE.1 => Finding::warning(
            what,
            format!(
                "that is close to the window of {}, and duplicates that come after it are not \
                 recognised, nor counted here",
                Span(window)
            ),
            "find out where they come from; remember events for longer",
        ),
        _ => Finding::ok(what),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{MemoryLog, MemoryStore};
    use crate::window::Reach;

    const DAY: Duration = Duration::from_hours(24);

    /// A store with that window.
    fn remembering(days: u32) -> MemoryStore {
        let store = MemoryStore::new();
        store.set_window_days(days);
        store
    }

    async fn level_of_window(days: u32, reach: Reach, config: &ConsumerConfig) -> Level {
        let store = remembering(days);
        let source = MemoryLog::new("t", 1).source().reaching([reach]);
        let findings = examine(&store, &mut [Box::new(source)], config).await;
        worst(&findings)
    }

    #[tokio::test]
    async fn a_short_window_is_a_problem_and_an_unknown_path_a_warning() {
        let week = || Reach::lasting("topic t", DAY * 7, "");
        let mut config = ConsumerConfig::default();
        let unknown = Reach::unknown("topic t", "denied");
        assert_eq!(level_of_window(8, week(), &config).await, Level::Ok);
        assert_eq!(level_of_window(7, week(), &config).await, Level::Problem);
        assert_eq!(level_of_window(8, unknown, &config).await, Level::Warning);
        config.accept_short_window = Some("nobody resets it".into());
        assert_eq!(level_of_window(7, week(), &config).await, Level::Warning);
    }

    #[tokio::test]
    async fn a_store_that_is_away_is_no_reason_not_to_look_at_the_source() {
        let store = remembering(8);
        store.set_down(true);
        let source = MemoryLog::new("t", 1).source();
        let config = ConsumerConfig::default();
        let findings = examine(&store, &mut [Box::new(source)], &config).await;
        assert_eq!(worst(&findings), Level::Warning);
    }

    #[test]
    fn the_ages_of_duplicates_say_which_window_would_have_been_enough() {
        let mut ages = DuplicateAges::default();
        let none = duplicate_ages("ledger", &ages, Window::Days(8));
        assert_eq!(none.level, Level::Ok);

        ages.record_many(Duration::from_mins(190), 9_999);
        ages.record(Duration::from_hours(26));
        let finding = duplicate_ages("ledger", &ages, Window::Days(8));
        assert_eq!(finding.level, Level::Ok);
        assert_eq!(
            finding.what,
            "99.99 % of 10000 duplicates of consumer ledger came within 3 h 10 min; the oldest \
             after 1 d 2 h: a window of 2 d would have caught them all"
        );
        let close = duplicate_ages("ledger", &ages, Window::Days(1));
        assert_eq!(close.level, Level::Warning);
    }
}
