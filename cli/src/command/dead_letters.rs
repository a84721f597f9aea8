//! `oneffect dead-letters`.

mod redrive;
mod show;

use oneffect_core::{LetterFilter, LetterId, LetterSummary};
use serde::Serialize;

use super::shown::{self, ShownLetter};
use crate::code::{Code, NotFound, Unusable};
use crate::console::Console;
use crate::database::{Address, Database};
use crate::options::letters::{DeadLetters, Which};
use crate::text;

/// How many letters are fetched at once.
const PAGE: u32 = 1000;

pub(super) async fn run(
    command: &DeadLetters,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    match command {
        DeadLetters::List {
            which,
            limit,
            after,
        } => {
            let database = address.open().await?;
            let mut filter = which.filter();
            filter.limit = Some(*limit);
            filter.after = after.map(LetterId);
            list(&filter, &database, json, console).await
        }
        DeadLetters::Show { id, payload } => {
            let database = address.open().await?;
            let letter = database.show_letter(LetterId(*id)).await?;
            let letter = letter.ok_or_else(|| missing(*id, address))?;
            show::run(&letter, *payload, json, console)
        }
        DeadLetters::Redrive(redrive) => redrive::run(redrive, address, json, console).await,
        DeadLetters::Discard { which, agreed } => {
            check_said(which)?;
            let database = address.open().await?;
            discard(which, agreed.yes, address, &database, json, console).await
        }
    }
}

fn missing(id: i64, address: &Address) -> NotFound {
    NotFound(format!(
        "there is no dead letter {id} in {address} (any more): `oneffect dead-letters list` has \
         those there are"
    ))
}

/// An empty filter would mean all of them, which nobody should say by mistake.
fn check_said(which: &Which) -> Result<(), Unusable> {
    if which.is_said() {
        return Ok(());
    }
    Err(Unusable(
        "which dead letters? Give their numbers, or a filter such as --kind or --error, or --all"
            .to_owned(),
    ))
}

async fn list(
    filter: &LetterFilter,
    database: &Database,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let letters = database.list_letters(filter).await?;
    if json {
        for letter in &letters {
            console.print_json(&ShownLetter::of(letter))?;
        }
        return Ok(Code::Fine);
    }
    if letters.is_empty() {
        console.print("no dead letters\n")?;
        return Ok(Code::Fine);
    }
    let heading = [
        "id>",
        "kind",
        "consumer",
        "event",
        "from",
        "last at",
        "attempts>",
        "error",
    ];
    let heading = heading.map(str::to_owned).to_vec();
    let rows = letters.iter().map(row);
    console.print(text::table(
        &[heading].into_iter().chain(rows).collect::<Vec<_>>(),
    ))?;
    let is_full = filter
        .limit
        .is_some_and(|limit| letters.len() >= limit as usize);
    if let (true, Some(last)) = (is_full, letters.last()) {
        console.note(format_args!(
            "there may be more: --after {} goes on, --limit shows more at once\n",
            last.id
        ))?;
    }
    Ok(Code::Fine)
}

fn row(letter: &LetterSummary) -> Vec<String> {
    let mark = match &letter.redrive {
        Some(_) => "(to be redriven) ",
        None => "",
    };
    let error = letter.error.lines().next().unwrap_or_default();
    vec![
        letter.id.to_string(),
        letter.kind.as_str().to_owned(),
        text::plain(&letter.consumer),
        shown::event(letter.event.as_ref()),
        text::plain(&letter.position.to_string()),
        text::moment(letter.last_at),
        letter.attempts.to_string(),
        format!("{mark}{}", text::cut(error, 60)),
    ]
}

/// How many letters there are; of letters that were named, that each is there.
async fn count(which: &Which, address: &Address, database: &Database) -> anyhow::Result<u64> {
    let mut filter = which.filter();
    filter.limit = Some(PAGE);
    let mut count = 0;
    let mut missing_ids: Vec<_> = filter.ids.clone();
    loop {
        let page = database.list_letters(&filter).await?;
        count += page.len() as u64;
        missing_ids.retain(|id| page.iter().all(|letter| letter.id != *id));
        filter.after = page.last().map(|letter| letter.id);
        if page.len() < PAGE as usize {
            break;
        }
    }
    match (missing_ids.first(), count) {
        (Some(id), _) => Err(missing(id.0, address).into()),
        (None, 0) => {
            let none = format!("there are no such dead letters in {address}; nothing was changed");
            Err(NotFound(none).into())
        }
        (None, count) => Ok(count),
    }
}

fn letters(count: u64) -> String {
    match count {
        1 => "1 dead letter".to_owned(),
        n => format!("{n} dead letters"),
    }
}

#[derive(Serialize)]
struct Discarded {
    discarded: u64,
}

async fn discard(
    which: &Which,
    yes: bool,
    address: &Address,
    database: &Database,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let count = count(which, address, database).await?;
    let what = format!(
        "This deletes {} in {address} for good; the events have had no effect, and will have none.",
        letters(count)
    );
    console.confirm(yes, &what)?;
    let discarded = database.discard_letters(&which.filter()).await?;
    if json {
        console.print_json(&Discarded { discarded })?;
    } else {
        console.print(format_args!("{} discarded\n", letters(discarded)))?;
    }
    Ok(Code::Fine)
}
