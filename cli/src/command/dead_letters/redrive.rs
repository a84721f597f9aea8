//! `oneffect dead-letters redrive`: marks them; the consumers, which have the handlers, do the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use oneffect_core::{LetterFilter, LetterId, LetterSummary, RedriveAs, Requested};
use serde::Serialize;
use tokio::time::sleep;

use super::{PAGE, check_said, count, letters};
use crate::code::Code;
use crate::console::Console;
use crate::database::{Address, Database};
use crate::options::letters::Redrive;
use crate::text;

/// How often it is looked whether they are handled.
const LOOK: Duration = Duration::from_millis(500);

/// After how many looks without any progress the person who waits is asked to look elsewhere.
const IDLE: u32 = 40;

#[derive(Serialize)]
struct Shown {
    requested: u64,
    refused: Vec<ShownRefusal>,
    /// Of those that were waited for: those that are no dead letters any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    redriven: Option<u64>,
    /// And those that have failed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<Vec<i64>>,
}

#[derive(Serialize)]
struct ShownRefusal {
    id: i64,
    why: String,
}

#[derive(Serialize)]
struct Cancelled {
    cancelled: u64,
}

pub(super) async fn run(
    redrive: &Redrive,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    check_said(&redrive.which)?;
    let database = address.open().await?;
    let filter = redrive.which.filter();
    let count = count(&redrive.which, address, &database).await?;
    if redrive.cancel {
        let cancelled = database.cancel_redrive(&filter).await?;
        if json {
            console.print_json(&Cancelled { cancelled })?;
        } else {
            let cancelled = letters(cancelled);
            console.print(format_args!("{cancelled} will not be redriven\n"))?;
        }
        return Ok(Code::Fine);
    }
    let redrive_as = if redrive.as_new {
        RedriveAs::New
    } else {
        RedriveAs::Itself
    };
    // A letter that somebody names was looked at; what a filter finds may surprise.
    let is_agreed = redrive.agreed.yes || (redrive.which.names_each() && !redrive.as_new);
    console.confirm(is_agreed, &what(count, redrive_as, address))?;
    // Those that are waited for are looked up before the consumers can be through with them.
    let mut waiting = BTreeSet::new();
    if redrive.wait {
        waiting = marked(&database, &filter, |_| true).await?;
    }
    let requested = database.request_redrive(&filter, redrive_as).await?;
    let ended = if redrive.wait {
        for (refused, _) in &requested.refused {
            waiting.remove(refused);
        }
        Some(wait(&database, waiting, console).await?)
    } else {
        None
    };
    print(&requested, ended.as_ref(), json, console)?;
    let has_failed = ended.is_some_and(|ended| !ended.failed.is_empty());
    let is_fine = requested.refused.is_empty() && !has_failed;
    Ok(if is_fine { Code::Fine } else { Code::Problems })
}

fn what(count: u64, redrive_as: RedriveAs, address: &Address) -> String {
    let letters = letters(count);
    match redrive_as {
        RedriveAs::New => format!(
            "This has {letters} in {address} handled as new events: what has had its effect before, \
             which nobody can tell, has it again."
        ),
        RedriveAs::Itself | _ => format!("This has {letters} in {address} handled again."),
    }
}

/// The letters among those that a filter finds of which something is true.
async fn marked(
    database: &Database,
    filter: &LetterFilter,
    is_meant: impl Fn(&LetterSummary) -> bool,
) -> anyhow::Result<BTreeSet<LetterId>> {
    let mut filter = filter.clone();
    filter.limit = Some(PAGE);
    let mut found = BTreeSet::new();
    loop {
        let page = database.list_letters(&filter).await?;
        filter.after = page.last().map(|letter| letter.id);
        found.extend(
            page.iter()
                .filter(|letter| is_meant(letter))
                .map(|letter| letter.id),
        );
        if page.len() < PAGE as usize {
            return Ok(found);
        }
    }
}

struct Ended {
    redriven: u64,
    failed: Vec<LetterId>,
}

/// Until none of them is marked any more.
async fn wait(
    database: &Database,
    letters: BTreeSet<LetterId>,
    console: &mut Console,
) -> anyhow::Result<Ended> {
    let all = letters.len() as u64;
    let bar = console.counting("redriven, or failed again", all);
    let mut filter = LetterFilter::default();
    filter.ids = letters.into_iter().collect();
    let mut looks = 0;
    loop {
        let waiting = marked(database, &filter, |letter| letter.redrive.is_some()).await?;
        let done = all.saturating_sub(waiting.len() as u64);
        bar.at(done);
        if waiting.is_empty() {
            break;
        }
        looks += 1;
        if looks == IDLE && done == 0 {
            console.note("none is handled yet: is a consumer of that name running?\n")?;
        }
        sleep(LOOK).await;
    }
    let failed = marked(database, &filter, |_| true).await?;
    Ok(Ended {
        redriven: all.saturating_sub(failed.len() as u64),
        failed: failed.into_iter().collect(),
    })
}

fn print(
    requested: &Requested,
    ended: Option<&Ended>,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<()> {
    if json {
        let refused = requested.refused.iter().map(|(id, why)| ShownRefusal {
            id: id.0,
            why: why.to_string(),
        });
        let failed = |ended: &Ended| ended.failed.iter().map(|id| id.0).collect();
        console.print_json(&Shown {
            requested: requested.requested,
            refused: refused.collect(),
            redriven: ended.map(|ended| ended.redriven),
            failed: ended.map(failed),
        })?;
        return Ok(());
    }
    let marked = letters(requested.requested);
    match ended {
        None => console.print(format_args!(
            "{marked} to be redriven, by the running consumers of their names\n"
        ))?,
        Some(ended) => {
            console.print(format_args!("{} redriven\n", letters(ended.redriven)))?;
            for id in &ended.failed {
                let failed = console.bad("failed again");
                console.print(format_args!("{id}: {failed}\n"))?;
            }
        }
    }
    for (id, why) in &requested.refused {
        let why = text::plain(&why.to_string());
        console.print(format_args!("{id}: {} {why}\n", console.bad("refused:")))?;
    }
    Ok(())
}
