//! What is shown while it runs, and at the end.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::time::Instant;

use crate::books::{Audit, Settled};
use crate::crew::Totals;
use crate::stream::Record;

/// A bar on a terminal; elsewhere a line now and then.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    goal: Option<u64>,
    shown_at: Option<Instant>,
}

/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(2);

impl Progress {
    pub(crate) fn new(goal: Option<u64>) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = goal.map_or_else(ProgressBar::no_length, ProgressBar::new);
            let template = "{bar:30} {human_pos} of {human_len} events settled ({elapsed})\n{msg}";
            bar.with_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        Self {
            bar,
            goal,
            shown_at: None,
        }
    }

    pub(crate) fn show(&mut self, settled: u64, totals: &Totals, restarts: usize) {
        let text = format!(
            "{} deliveries, {} duplicates absorbed, {restarts} restarts after a crash",
            grouped(totals.deliveries),
            grouped(totals.duplicates)
        );
        if let Some(bar) = &self.bar {
            bar.set_position(settled);
            bar.set_message(text);
        } else if self.shown_at.is_none_or(|at| at.elapsed() >= LINE) {
            self.shown_at = Some(Instant::now());
            let goal = self.goal.map(|goal| format!(" of {}", grouped(goal)));
            eprintln!(
                "{}{} events settled: {text}",
                grouped(settled),
                goal.unwrap_or_default()
            );
        }
    }

    /// All is settled.
    pub(crate) fn audit(&self) {
        match &self.bar {
            Some(bar) => bar.set_message("checking the books"),
            None => eprintln!("checking the books"),
        }
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What it came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Distinct events that were settled, or (when it only produced) sent.
    pub(crate) events: u64,
    /// What became of them, by the database; `None` when it only produced.
    pub(crate) settled: Option<Settled>,
    /// What the consumers of this process counted.
    pub(crate) totals: Totals,
    pub(crate) restarts: usize,
    pub(crate) elapsed: Duration,
    pub(crate) audit: Option<Audit>,
    pub(crate) record: Option<Record>,
}

impl Report {
    /// Whether the books balance; also where there are none.
    pub(crate) fn is_good(&self) -> bool {
        self.audit.as_ref().is_none_or(Audit::balanced)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is shown to people, and as a whole number"
    )]
    fn events_per_second(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64().max(0.001);
        (self.events as f64 / seconds).round() as u64
    }

    pub(crate) fn table(&self) -> String {
        let mut rows = vec![("events", grouped(self.events))];
        if let Some(record) = &self.record {
            rows.push(("messages produced", grouped(record.messages)));
        }
        if let Some(settled) = self.settled {
            rows.extend([
                ("deliveries", grouped(self.totals.deliveries)),
                ("duplicates absorbed", grouped(self.totals.duplicates)),
                ("rejected", grouped(settled.rejected)),
                ("dead letters", grouped(settled.dead_letters)),
                ("failed attempts", grouped(self.totals.failed_attempts)),
                ("restarts after a crash", self.restarts.to_string()),
                ("transactions", grouped(self.totals.units)),
            ]);
        }
        rows.push(("seconds", format!("{:.1}", self.elapsed.as_secs_f64())));
        rows.push(("events a second", grouped(self.events_per_second())));
        let mut table = String::new();
        for (name, value) in rows {
            let _ = writeln!(table, "  {name:<24}{value:>12}");
        }
        if let Some(audit) = &self.audit {
            table += &verdict(audit);
        }
        table
    }

    pub(crate) fn json(&self) -> String {
        let settled = self.settled.unwrap_or_default();
        json!({
            "events": self.events,
            "messages": self.record.as_ref().map(|record| record.messages),
            "deliveries": self.totals.deliveries,
            "applied": settled.applied,
            "duplicates": self.totals.duplicates,
            "rejected": settled.rejected,
            "dead_letters": settled.dead_letters,
            "failed_attempts": self.totals.failed_attempts,
            "restarts": self.restarts,
            "seconds": self.elapsed.as_secs_f64(),
            "events_per_second": self.events_per_second(),
            "balanced": self.audit.as_ref().map(Audit::balanced),
        })
        .to_string()
    }
}

fn verdict(audit: &Audit) -> String {
    let count = |number: i64| grouped(number.unsigned_abs());
    if !audit.balanced() {
        let mut text = "\nThe books do not balance:\n".to_owned();
        for complaint in &audit.complaints {
            let _ = writeln!(text, "  {complaint}");
        }
        return text;
    }
    let against = match &audit.comparison {
        Some(comparison) if comparison.foreign_events > 0 => format!(
            "each event that was produced took effect exactly once; {} others were there before",
            count(comparison.foreign_events)
        ),
        Some(_) => "each event that was produced took effect exactly once".to_owned(),
        None => "each event has one debit and one equal credit".to_owned(),
    };
    format!(
        "\nThe books balance: {} transfers in {} entries, {against}.\n",
        count(audit.pairs.events),
        count(audit.pairs.entries)
    )
}

/// 1,234,567
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
