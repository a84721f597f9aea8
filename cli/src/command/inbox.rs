//! `oneffect inbox`.

use oneffect_core::{InboxPart, InboxReport};
use serde::Serialize;

use crate::code::Code;
use crate::console::Console;
use crate::database::Address;
use crate::text::{self, Lines};

pub(super) async fn run(
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let database = address.open().await?;
    let working = console.working("counting");
    let report = database.inbox().await?;
    drop(working);
    if json {
        console.print_json(&Shown::of(&report))?;
    } else {
        print(&report, address, console)?;
    }
    Ok(Code::Fine)
}

fn print(report: &InboxReport, address: &Address, console: &mut Console) -> anyhow::Result<()> {
    let mut lines = Lines::headed(&console.bold(address));
    lines.field("window", report.window);
    match report.floor {
        Some(floor) => lines.field("floor", format_args!("{floor}, the first day remembered")),
        None => lines.field("floor", "none: nothing is forgotten"),
    }
    lines.field(
        "today",
        format_args!("{}, by the database's clock, in UTC", report.today),
    );
    let (rows, bytes) = (text::grouped(report.rows()), text::size(report.bytes));
    lines.field("all", format_args!("about {rows} rows, {bytes}"));
    console.print(lines)?;

    let heading = ["part", "of", "rows>", "bytes>"]
        .map(str::to_owned)
        .to_vec();
    let row = |part: &InboxPart| {
        vec![
            part.kind.as_str().replace('_', " "),
            part.day.to_string(),
            text::grouped(part.rows),
            part.bytes.map_or_else(|| "-".to_owned(), text::size),
        ]
    };
    let rows: Vec<_> = [heading]
        .into_iter()
        .chain(report.parts.iter().map(row))
        .collect();
    console.print(format_args!("\n{}", text::table(&rows)))?;

    let heading = ["consumer", "days from", "failing>", "dead letters>"];
    let heading = heading.map(str::to_owned).to_vec();
    let consumers = report.consumers.iter().map(|consumer| {
        vec![
            text::plain(&consumer.name),
            text::plain(&consumer.days_from),
            text::grouped(consumer.failed),
            text::grouped(consumer.dead_letters),
        ]
    });
    let rows: Vec<_> = [heading].into_iter().chain(consumers).collect();
    Ok(console.print(format_args!("\n{}", text::table(&rows)))?)
}

/// The JSON of it.
#[derive(Serialize)]
struct Shown<'r> {
    window_days: Option<u64>,
    floor: Option<String>,
    today: String,
    rows: u64,
    bytes: u64,
    parts: Vec<ShownPart>,
    consumers: Vec<ShownConsumer<'r>>,
}

#[derive(Serialize)]
struct ShownPart {
    kind: &'static str,
    day: String,
    rows: u64,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct ShownConsumer<'r> {
    name: &'r str,
    days_from: &'r str,
    failing: u64,
    dead_letters: u64,
}

impl<'r> Shown<'r> {
    fn of(report: &'r InboxReport) -> Self {
        const DAY: u64 = 24 * 60 * 60;
        let parts = report.parts.iter().map(|part| ShownPart {
            kind: part.kind.as_str(),
            day: part.day.to_string(),
            rows: part.rows,
            bytes: part.bytes,
        });
        let consumers = report.consumers.iter().map(|consumer| ShownConsumer {
            name: &consumer.name,
            days_from: &consumer.days_from,
            failing: consumer.failed,
            dead_letters: consumer.dead_letters,
        });
        Self {
            window_days: report.window.length().map(|length| length.as_secs() / DAY),
            floor: report.floor.map(|day| day.to_string()),
            today: report.today.to_string(),
            rows: report.rows(),
            bytes: report.bytes,
            parts: parts.collect(),
            consumers: consumers.collect(),
        }
    }
}
