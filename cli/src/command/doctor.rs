//! `oneffect doctor`.

mod sources;

use oneffect_core::doctor::worst;
use oneffect_core::{ConsumerConfig, Finding, Level};

use crate::code::Code;
use crate::console::Console;
use crate::database::Address;
use crate::options::doctor::Doctor;
use crate::text;

pub(super) async fn run(
    doctor: &Doctor,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let mut sources = sources::named(doctor, console)?;
    let mut config = ConsumerConfig::default();
    config.replay_horizons.clone_from(&doctor.horizons);
    let database = address.connect(false).await?;
    let working = console.working("looking at the database and the brokers");
    let findings = database.examine(&mut sources, &config).await;
    drop(working);
    for finding in &findings {
        if json {
            console.print_json(finding)?;
        } else {
            let lines = lines(finding, console);
            console.print(lines)?;
        }
    }
    if !json {
        print_verdict(&findings, console)?;
        if sources.is_empty() {
            console.note(
                "no broker was named, so the window was compared with nothing: see --help\n",
            )?;
        }
    }
    Ok(match worst(&findings) {
        Level::Problem => Code::Problems,
        Level::Ok | Level::Warning | _ => Code::Fine,
    })
}

fn lines(finding: &Finding, console: &Console) -> String {
    let level = match finding.level {
        Level::Ok => console.good("ok     "),
        Level::Problem => console.bad("problem"),
        Level::Warning | _ => console.warn("warning"),
    };
    let mut lines = format!("{level}  {}\n", text::plain(&finding.what));
    for line in finding.why.lines().chain(finding.to_do.lines()) {
        lines.push_str("           ");
        lines.push_str(&text::plain(line));
        lines.push('\n');
    }
    lines
}

fn print_verdict(findings: &[Finding], console: &mut Console) -> anyhow::Result<()> {
    let count = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let verdict = format!("{problems} problems, {warnings} warnings");
    let verdict = if problems == 0 {
        console.good(verdict)
    } else {
        console.bad(verdict)
    };
    Ok(console.print(format_args!("{verdict}\n"))?)
}
