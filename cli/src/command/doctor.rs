//! `oneffect doctor`.

mod sources;

use std::time::Duration;

use oneffect_core::{
    ConsumerConfig, DuplicateAges, Finding, Level, Longest, Reach, Span, Window, WindowCheck,
};
use serde::Serialize;

use crate::code::Code;
use crate::console::Console;
use crate::database::{Address, Database};
use crate::options::doctor::Doctor;
use crate::text;

pub(super) async fn run(
    doctor: &Doctor,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let mut sources = sources::named(doctor, console)?;
    let database = address.connect(false).await?;
    let mut report = Report::new(json);

    report.head(address, console)?;
    let working = console.working("looking at the database");
    let findings = database.examine().await;
    drop(working);
    report.findings("database", &findings, console)?;

    let window = database.window().await;
    let mut reaches = Vec::new();
    let mut longest_hold = Duration::ZERO;
    for (name, source) in &mut sources {
        report.head(&*name, console)?;
        let working = console.working("looking at the broker");
        let shown = window.as_ref().copied().unwrap_or(Window::Unlimited);
        let findings = source.examine(shown).await;
        reaches.extend(source.horizon().await);
        longest_hold = longest_hold.max(source.longest_hold(true));
        drop(working);
        report.findings(name, &findings, console)?;
    }

    report.head("window", console)?;
    match window {
        Ok(window) => {
            let retries = ConsumerConfig::default()
                .longest_failure()
                .min(longest_hold);
            let check = WindowCheck::new(window, reaches, &doctor.horizons, retries);
            report.window(&check, sources.is_empty(), console)?;
        }
        Err(error) => {
            let finding = Finding::problem(
                format!("the window is not known: {error:#}"),
                "whether duplicates may come after their events are forgotten was not checked",
                "make an inbox with `oneffect migrate up`, or let the role read it",
            );
            report.findings("window", &[finding], console)?;
        }
    }
    duplicates(&database, &mut report, console).await?;
    report.verdict(console)
}

/// What the duplicates that were seen say of the window. A database that cannot tell has been found
/// out before.
async fn duplicates(
    database: &Database,
    report: &mut Report,
    console: &mut Console,
) -> anyhow::Result<()> {
    let Ok(inbox) = database.inbox().await else {
        return Ok(());
    };
    report.head("duplicates", console)?;
    for consumer in &inbox.consumers {
        let ages = database.duplicate_ages(consumer.id).await?;
        report.ages(&consumer.name, &ages, console)?;
    }
    Ok(())
}

/// What was found so far.
struct Report {
    json: bool,
    problems: usize,
    warnings: usize,
}

/// The lines of JSON, told apart by `part`.
#[derive(Serialize)]
#[serde(tag = "part", rename_all = "snake_case")]
enum Line<'l> {
    Finding {
        of: &'l str,
        #[serde(flatten)]
        finding: &'l Finding,
    },
    Window {
        window_seconds: Option<u64>,
        horizon_seconds: Option<u64>,
        is_long_enough: bool,
        days_needed: Option<u64>,
        retries_seconds: u64,
        reaches: Vec<ShownReach<'l>>,
    },
    Duplicates {
        consumer: &'l str,
        count: u64,
        /// An age that half of them did not exceed, and so on; `None` where there were none.
        p50_seconds: Option<u64>,
        p99_seconds: Option<u64>,
        p9999_seconds: Option<u64>,
        oldest_seconds: Option<u64>,
    },
    Verdict {
        problems: usize,
        warnings: usize,
    },
}

#[derive(Serialize)]
struct ShownReach<'l> {
    path: &'l str,
    /// `None` where there is no end, and where nobody knows.
    seconds: Option<u64>,
    is_known: bool,
    found: &'l str,
}

impl<'l> ShownReach<'l> {
    fn of(reach: &'l Reach) -> Self {
        Self {
            path: &reach.path,
            seconds: match reach.longest {
                Longest::For(length) => Some(length.as_secs()),
                Longest::Unlimited | Longest::Unknown | _ => None,
            },
            is_known: reach.longest != Longest::Unknown,
            found: &reach.found,
        }
    }
}

impl Report {
    fn new(json: bool) -> Self {
        Self {
            json,
            problems: 0,
            warnings: 0,
        }
    }

    fn head(&self, what: impl std::fmt::Display, console: &mut Console) -> anyhow::Result<()> {
        if !self.json {
            let heading = console.bold(what);
            console.print(format_args!("{heading}\n"))?;
        }
        Ok(())
    }

    fn findings(
        &mut self,
        of: &str,
        findings: &[Finding],
        console: &mut Console,
    ) -> anyhow::Result<()> {
        for finding in findings {
            match finding.level {
                Level::Ok => {}
                Level::Problem => self.problems += 1,
                Level::Warning | _ => self.warnings += 1,
            }
            if self.json {
                console.print_json(&Line::Finding { of, finding })?;
            } else {
                let lines = finding_lines(finding, console);
                console.print(lines)?;
            }
        }
        Ok(())
    }

    fn window(
        &mut self,
        check: &WindowCheck,
        is_alone: bool,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let is_long_enough = check.is_long_enough();
        self.problems += usize::from(!is_long_enough);
        self.warnings += check.unknown().count();
        if self.json {
            return Ok(console.print_json(&Line::Window {
                window_seconds: check.window.length().map(|length| length.as_secs()),
                horizon_seconds: check.horizon().map(|length| length.as_secs()),
                is_long_enough,
                days_needed: check.days_needed(),
                retries_seconds: check.retries.as_secs(),
                reaches: check.reaches.iter().map(ShownReach::of).collect(),
            })?);
        }
        if is_alone && check.reaches.is_empty() {
            let window = check.window;
            console.print(format_args!(
                "  {window}; say with --kafka or --sqs where events come from, to have it compared\n"
            ))?;
            return Ok(());
        }
        let arithmetic = check.to_string();
        let (lines, verdict) = arithmetic.rsplit_once('\n').unwrap_or(("", &arithmetic));
        for line in lines.lines() {
            console.print(format_args!("{}\n", text::plain(line)))?;
        }
        let verdict = text::plain(verdict);
        let verdict = if is_long_enough {
            console.good(verdict)
        } else {
            console.bad(verdict)
        };
        Ok(console.print(format_args!("  {verdict}\n"))?)
    }

    fn ages(
        &self,
        consumer: &str,
        ages: &DuplicateAges,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let quantile = |share| ages.quantile(share);
        if self.json {
            let seconds = |age: Option<Duration>| age.map(|age| age.as_secs());
            return Ok(console.print_json(&Line::Duplicates {
                consumer,
                count: ages.count(),
                p50_seconds: seconds(quantile(0.5)),
                p99_seconds: seconds(quantile(0.99)),
                p9999_seconds: seconds(quantile(0.9999)),
                oldest_seconds: seconds(ages.oldest()),
            })?);
        }
        let consumer = text::plain(consumer);
        let seen = match (quantile(0.5), quantile(0.9999), ages.oldest()) {
            (Some(half), Some(most), Some(oldest)) => format!(
                "{} seen: half came within {}, 99.99 % within {}, the oldest after {}",
                text::grouped(ages.count()),
                Span(half),
                Span(most),
                Span(oldest)
            ),
            _ => "none seen".to_owned(),
        };
        Ok(console.print(format_args!("  {consumer}: {seen}\n"))?)
    }

    fn verdict(self, console: &mut Console) -> anyhow::Result<Code> {
        let (problems, warnings) = (self.problems, self.warnings);
        let is_fine = problems == 0;
        if self.json {
            console.print_json(&Line::Verdict { problems, warnings })?;
        } else {
            let verdict = format!("{problems} problems, {warnings} warnings");
            let verdict = if is_fine {
                console.good(verdict)
            } else {
                console.bad(verdict)
            };
            console.print(format_args!("{verdict}\n"))?;
        }
        Ok(if is_fine { Code::Fine } else { Code::Problems })
    }
}

fn finding_lines(finding: &Finding, console: &Console) -> String {
    let level = match finding.level {
        Level::Ok => console.good("ok      "),
        Level::Problem => console.bad("problem "),
        Level::Warning | _ => console.warn("warning "),
    };
    let mut lines = format!("  {level}  {}\n", text::plain(&finding.what));
    for more in [&finding.why, &finding.to_do] {
        for line in more.lines() {
            lines.push_str("            ");
            lines.push_str(&text::plain(line));
            lines.push('\n');
        }
    }
    lines
}
