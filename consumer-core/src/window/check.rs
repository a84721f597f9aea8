//! The arithmetic.

use std::fmt;
use std::time::Duration;

use super::Window;
use super::reach::{Longest, Reach, ReplayHorizon};
use crate::consumer::ConsumerConfig;
use crate::source::Source;
use crate::span::Span;

/// Whether a window is as long as the longest way a duplicate can take. It prints as the
/// arithmetic, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowCheck {
    /// How long a settled event key is remembered.
    pub window: Window,
    /// All ways, the declared ones last.
    pub reaches: Vec<Reach>,
    /// How long a delivery may wait behind an event of its lane that fails until it is set aside.
    pub retries: Duration,
}

impl WindowCheck {
    /// Compares a window with what the source says and what was declared.
    ///
    /// A declared horizon of the name of one of the source's ways replaces what the source says of
    /// it. Any other leads into the source, so the longest of the source's ways comes on top of it.
    pub fn new(
        window: Window,
        mut reaches: Vec<Reach>,
        declared: &[ReplayHorizon],
        retries: Duration,
    ) -> Self {
        let (speaking, outside): (Vec<_>, Vec<_>) = declared
            .iter()
            .partition(|horizon| reaches.iter().any(|reach| reach.path == horizon.name));
        for reach in &mut reaches {
            if let Some(horizon) = speaking.iter().find(|horizon| horizon.name == reach.path) {
                reach.found = format!("declared; {}: {}", reach.longest, reach.found);
                reach.longest = Longest::For(horizon.after);
            }
        }
        let longest = longest_known(&reaches);
        reaches.extend(outside.into_iter().map(|horizon| {
            let after = horizon.after;
            let (all, found) = match longest {
                None => (after, "declared".to_owned()),
                Some(longest) => (
                    after.saturating_add(longest),
                    format!(
                        "declared {}, and then {} as above",
                        Span(after),
                        Span(longest)
                    ),
                ),
            };
            Reach::lasting(horizon.name.clone(), all, found)
        }));
        Self {
            window,
            reaches,
            retries,
        }
    }

    /// The same, of what a source says and a consumer is configured with.
    pub(crate) async fn of(
        window: Window,
        source: &mut dyn Source,
        config: &ConsumerConfig,
    ) -> Self {
        let reaches = source.horizon().await;
        // A delivery waits for the events of its lane ahead of it, for as long as the source lets it.
        let retries = config.longest_failure().min(source.longest_hold(true));
        Self::new(window, reaches, &config.replay_horizons, retries)
    }

    /// How long after its first delivery an event may come again, as far as is known; `None` when
    /// there is no end.
    pub fn horizon(&self) -> Option<Duration> {
        let unlimited = |reach: &Reach| reach.longest == Longest::Unlimited;
        if self.reaches.iter().any(unlimited) {
            return None;
        }
        let longest = longest_known(&self.reaches).unwrap_or_default();
        Some(longest.saturating_add(self.retries))
    }

    /// Whether no duplicate comes after its event is forgotten, as far as is known.
    pub fn is_long_enough(&self) -> bool {
        match (self.window.length(), self.horizon()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(window), Some(horizon)) => window >= horizon,
        }
    }

    /// The ways of which nobody could say how long they take.
    pub fn unknown(&self) -> impl Iterator<Item = &Reach> {
        let unknown = |reach: &&Reach| reach.longest == Longest::Unknown;
        self.reaches.iter().filter(unknown)
    }

    /// The shortest window that is long enough, in whole days; `None` when none is.
    pub fn days_needed(&self) -> Option<u64> {
        const DAY: u64 = 24 * 60 * 60;
        let horizon = self.horizon()?;
        let begun = u64::from(horizon.subsec_nanos() > 0);
        Some(horizon.as_secs().saturating_add(begun).div_ceil(DAY))
    }

    fn verdict(&self) -> String {
        match (self.window.length(), self.horizon()) {
            (None, _) => "the window is long enough: nothing is forgotten".to_owned(),
            (Some(_), None) => {
                let path = (self.reaches.iter())
                    .find(|reach| reach.longest == Longest::Unlimited)
                    .map_or("", |reach| &reach.path);
                format!("no window is as long: say how far back \"{path}\" will ever be read again")
            }
            (Some(window), Some(horizon)) => match window.checked_sub(horizon) {
                Some(spare) => format!("the window is long enough, by {}", Span(spare)),
                None => format!(
                    "the window is too short by {}: {} days would do",
                    Span(horizon.saturating_sub(window)),
                    self.days_needed().unwrap_or_default()
                ),
            },
        }
    }
}

fn longest_known(reaches: &[Reach]) -> Option<Duration> {
    let known = reaches.iter().filter_map(|reach| match reach.longest {
        Longest::For(length) => Some(length),
        Longest::Unlimited | Longest::Unknown => None,
    });
    known.max()
}

impl fmt::Display for WindowCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.reaches.iter().map(|reach| reach.path.chars().count());
        let width = names.chain([RETRIES.len()]).max().unwrap_or_default();
        let mut line = |name: &str, length: &dyn fmt::Display, found: &str| {
            writeln!(f, "  {name:width$}  {length:12}{found}").map(|()| ())
        };
        for reach in &self.reaches {
            line(&reach.path, &reach.longest, &reach.found)?;
        }
        let retries = Span(self.retries);
        line(
            RETRIES,
            &retries,
            "an event ahead of it may fail until it is set aside",
        )?;
        match self.horizon() {
            Some(horizon) => line(
                "= horizon",
                &Span(horizon),
                "the longest of these, and the retries",
            )?,
            None => line("= horizon", &Longest::Unlimited, "")?,
        }
        line(
            "window",
            &self.window,
            "how long a settled event is remembered",
        )?;
        write!(f, "{}", self.verdict())
    }
}

const RETRIES: &str = "+ retries";

#[cfg(test)]
mod tests {
    use super::*;

    const fn days(days: u64) -> Duration {
        Duration::from_hours(24 * days)
    }

    fn topic(retention: u64) -> Reach {
        Reach::lasting(
            "topic transfers",
            days(retention),
            "retention.ms of the topic",
        )
    }

    fn check(window: u32, reaches: &[Reach], declared: &[(&str, u64)]) -> WindowCheck {
        let declared: Vec<_> = declared
            .iter()
            .map(|(name, after)| ReplayHorizon::new(*name, days(*after)))
            .collect();
        let retries = Duration::from_hours(1);
        WindowCheck::new(Window::Days(window), reaches.to_vec(), &declared, retries)
    }

    /// Field case 123.
    #[test]
    fn a_window_must_be_as_long_as_the_longest_way() {
        let queue = Reach::lasting("queue orders, redriven", days(14), "");
        let compacted = Reach::unlimited("topic state", "compacted");
        let unknown = Reach::unknown("topic audit", "not allowed");
        for (window, reaches, declared, enough) in [
            (8, vec![topic(7)], vec![], true),
            // The retries count.
            (7, vec![topic(7)], vec![], false),
            (2, vec![topic(7), queue.clone()], vec![], false),
            (14, vec![topic(7), queue.clone()], vec![], false),
            (15, vec![topic(7), queue], vec![], true),
            // A sender's last retry stays in the topic for as long as the first.
            (8, vec![topic(7)], vec![("webhooks", 3)], false),
            (11, vec![topic(7)], vec![("webhooks", 3)], true),
            (8, vec![], vec![("webhooks", 3)], true),
            // What is kept for ever needs an explicit horizon, by its name.
            (1000, vec![compacted.clone()], vec![], false),
            (1000, vec![compacted.clone()], vec![("webhooks", 3)], false),
            (8, vec![compacted.clone()], vec![("topic state", 7)], true),
            (8, vec![compacted], vec![("topic state", 8)], false),
            // What nobody knows is no reason to refuse.
            (8, vec![topic(7), unknown.clone()], vec![], true),
            (8, vec![unknown.clone()], vec![], true),
            (8, vec![unknown], vec![("topic audit", 20)], false),
        ] {
            let check = check(window, &reaches, &declared);
            assert_eq!(check.is_long_enough(), enough, "{check}");
        }
    }

    #[test]
    fn a_store_that_forgets_nothing_is_always_good_enough() {
        let reaches = vec![Reach::unlimited("topic state", "compacted")];
        let check = WindowCheck::new(Window::Unlimited, reaches, &[], Duration::ZERO);
        assert!(check.is_long_enough());
    }

    #[test]
    fn the_days_that_would_do_do() {
        for retention in 0..20 {
            let short = check(0, &[topic(retention)], &[]);
            let needed = u32::try_from(short.days_needed().unwrap()).unwrap();
            assert!(check(needed, &[topic(retention)], &[]).is_long_enough());
            assert!(!check(needed - 1, &[topic(retention)], &[]).is_long_enough());
        }
    }

    #[test]
    fn the_arithmetic_prints_line_by_line() {
        let check = check(8, &[topic(7)], &[("webhooks", 3)]);
        let lines = "  topic transfers  7 d         retention.ms of the topic
  webhooks         10 d        declared 3 d, and then 7 d as above
  + retries        1 h         an event ahead of it may fail until it is set aside
  = horizon        10 d 1 h    the longest of these, and the retries
  window           8 d         how long a settled event is remembered
the window is too short by 2 d 1 h: 11 days would do";
        assert_eq!(check.to_string(), lines);
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let reach = Reach::lasting("x", Duration::MAX, "");
        let declared = [ReplayHorizon::new("y", Duration::MAX)];
        let (window, retries) = (Window::Days(u32::MAX), Duration::MAX);
        let check = WindowCheck::new(window, vec![reach], &declared, retries);
        assert!(!check.is_long_enough());
        assert!(check.to_string().contains("too short"));
    }
}
