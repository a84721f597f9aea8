//! `oneffect maintain`.

use oneffect_core::Maintained;
use serde::Serialize;

use crate::code::Code;
use crate::console::Console;
use crate::database::Address;
use crate::text::Lines;

#[derive(Serialize)]
struct Shown {
    floor: Option<String>,
    window_days: Option<u32>,
    created: u64,
    dropped: u64,
    doubled: u64,
    postponed: bool,
}

pub(super) async fn run(
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let database = address.open().await?;
    let working = console.working("maintaining the inbox");
    let done = database.maintain().await?;
    drop(working);
    if json {
        console.print_json(&Shown {
            floor: done.floor.map(|day| day.to_string()),
            window_days: done.window_days,
            created: done.created,
            dropped: done.dropped,
            doubled: done.doubled,
            postponed: done.postponed,
        })?;
    } else {
        print(&done, address, console)?;
    }
    Ok(match done.doubled {
        0 => Code::Fine,
        _ => Code::Problems,
    })
}

fn print(done: &Maintained, address: &Address, console: &mut Console) -> anyhow::Result<()> {
    let mut lines = Lines::headed(&console.bold(address));
    match done.floor {
        Some(floor) => lines.field(
            "floor",
            format_args!("{floor}, the first day that is remembered"),
        ),
        None => lines.field("floor", "none: nothing is forgotten"),
    }
    if let Some(days) = done.window_days {
        lines.field("window", format_args!("{days} days"));
    }
    lines.field("created", done.created);
    lines.field("dropped", done.dropped);
    if done.postponed {
        lines.field(
            "postponed",
            "something has to wait for a running unit: run this again",
        );
    }
    if done.doubled > 0 {
        let found = format!(
            "{} keys are kept under two days, so their effects may have happened twice: the producer \
             does not repeat the events' times",
            done.doubled
        );
        lines.field("doubled", console.bad(found));
    }
    Ok(console.print(lines)?)
}
