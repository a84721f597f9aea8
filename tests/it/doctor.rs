//! What is found out about real services before a consumer starts.

mod kafka;
mod postgres;
mod size;
mod sqlite;
mod sqs;

use oneffect_core::{Finding, Level};

/// The finding that says this.
fn finding<'a>(findings: &'a [Finding], part: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.what.contains(part));
    found.unwrap_or_else(|| panic!("nothing says {part:?}: {findings:#?}"))
}

fn problems(findings: &[Finding]) -> Vec<&Finding> {
    let problems = findings.iter();
    problems
        .filter(|finding| finding.level == Level::Problem)
        .collect()
}
