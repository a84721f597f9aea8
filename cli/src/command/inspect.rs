//! `oneffect inspect`.

use oneffect_core::{EventId, EventKey, EventRecord, Filed, LetterSummary, Settled, SettledRecord};
use serde::Serialize;
use uuid::Uuid;

use super::shown::{ShownBytes, ShownLetter};
use crate::code::{Code, NotFound, Unusable};
use crate::console::Console;
use crate::database::{Address, Database};
use crate::options::Inspect;
use crate::text::{self, Lines};

/// How much of a reply is shown to people; JSON has all of it.
const SHOWN: usize = 400;

pub(super) async fn run(
    inspect: &Inspect,
    address: &Address,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let id = EventId::new(&inspect.id).map_err(|error| Unusable(error.to_string()))?;
    let database = address.open().await?;
    let records = database.inspect(&id).await?;
    let is_known = !records.is_empty();
    let records: Vec<_> = records
        .into_iter()
        .filter(|record| is_asked_for(inspect, record))
        .collect();
    if records.is_empty() {
        let advice = if is_known {
            "; others do, see it without --consumer and --tenant".to_owned()
        } else {
            another_form(&id, &database).await?
        };
        return Err(NotFound(format!(
            "no consumer in {address} knows the event {}{advice}",
            text::plain(&inspect.id)
        ))
        .into());
    }
    for record in &records {
        if json {
            console.print_json(&Shown::of(record))?;
        } else {
            print(record, console)?;
        }
    }
    Ok(Code::Fine)
}

fn is_asked_for(inspect: &Inspect, record: &EventRecord) -> bool {
    let EventRecord { consumer, key, .. } = record;
    inspect
        .consumer
        .as_ref()
        .is_none_or(|asked| asked == consumer)
        && inspect
            .tenant
            .as_ref()
            .is_none_or(|asked| asked == key.tenant.as_str())
}

/// Ids are compared byte by byte, so the same UUID in another form is another id, as a rule by
/// mistake.
async fn another_form(id: &EventId, database: &Database) -> anyhow::Result<String> {
    let text = id.to_string();
    let Ok(uuid) = Uuid::try_parse(&text) else {
        return Ok(String::new());
    };
    let hyphenated = uuid.hyphenated().to_string();
    for other in [
        hyphenated.to_uppercase(),
        uuid.simple().to_string(),
        hyphenated,
    ] {
        let is_known = other != text && !database.inspect(&EventId::new(&other)?).await?.is_empty();
        if is_known {
            return Ok(format!("; {other} is known, which is another id"));
        }
    }
    Ok(String::new())
}

fn print(record: &EventRecord, console: &mut Console) -> anyhow::Result<()> {
    let EventKey { id, tenant } = &record.key;
    let mut lines = Lines::headed(&console.bold(text::plain(&record.consumer)));
    lines.field("event id", text::plain(&id.to_string()));
    if !tenant.as_str().is_empty() {
        lines.field("tenant", text::plain(tenant.as_str()));
    }
    for settled in &record.settled {
        print_settled(settled, &mut lines, console);
    }
    match record.settled.len() {
        0 => lines.field("outcome", "none yet: it is not settled"),
        1 => {}
        n => {
            let doubled = format!("its effect may have happened {n} times");
            lines.field("attention", console.bad(doubled));
        }
    }
    if let Some(failed) = &record.failed {
        let next = text::moment(failed.next_attempt_at);
        let attempts = failed.attempts;
        lines.field(
            "attempts",
            format_args!("{attempts}, the next not before {next}"),
        );
        lines.block(&failed.last_error);
    }
    for letter in &record.dead_letters {
        print_letter(letter, &mut lines, console);
    }
    Ok(console.print(lines)?)
}

fn print_settled(settled: &SettledRecord, lines: &mut Lines, console: &Console) {
    let outcome = settled.outcome.as_str();
    let outcome = match settled.outcome {
        Settled::Done { .. } => console.good(outcome),
        Settled::Rejected { .. } | Settled::Dead | _ => console.bad(outcome),
    };
    let at = text::moment(settled.recorded_at);
    let filed = match settled.filed {
        Filed::OwnDay(day) => format!("its own day {day}"),
        Filed::OpenPeriod(day) => format!("the open period since {day}"),
    };
    lines.field("outcome", format_args!("{outcome} at {at}, under {filed}"));
    match &settled.outcome {
        Settled::Rejected { reason } => lines.field("reason", text::plain(reason)),
        Settled::Done { reply: Some(reply) } => {
            let shown = text::bytes(reply, SHOWN);
            lines.field("reply", format_args!("{shown} ({} bytes)", reply.len()));
        }
        Settled::Done { reply: None } | Settled::Dead | _ => {}
    }
    if let Some(fingerprint) = settled.fingerprint {
        lines.field("fingerprint", fingerprint);
    }
}

fn print_letter(letter: &LetterSummary, lines: &mut Lines, console: &Console) {
    let kind = console.bad(letter.kind.as_str());
    let (id, attempts, deliveries) = (letter.id, letter.attempts, letter.deliveries);
    let position = text::plain(&letter.position.to_string());
    lines.field(
        "dead letter",
        format_args!("{id}: {kind} after {attempts} attempts, from {position}"),
    );
    let (first, last) = (text::moment(letter.first_at), text::moment(letter.last_at));
    lines.field(
        "",
        format_args!("delivered {deliveries} times, first {first}, last {last}"),
    );
    lines.block(&letter.error);
    if letter.redrive.is_some() {
        lines.field("", "to be redriven by the running consumers");
    }
}

/// The JSON of a record.
#[derive(Serialize)]
struct Shown<'r> {
    consumer: &'r str,
    tenant: &'r str,
    event_id: String,
    /// The day that the id says the event is of.
    own_day: Option<String>,
    settled: Vec<ShownSettled<'r>>,
    failed: Option<ShownFailed<'r>>,
    dead_letters: Vec<ShownLetter<'r>>,
}

#[derive(Serialize)]
struct ShownSettled<'r> {
    outcome: &'static str,
    reason: Option<&'r str>,
    reply: Option<ShownBytes<'r>>,
    fingerprint: Option<String>,
    recorded_at: String,
    /// Where the row is: exactly one of the two.
    day: Option<String>,
    open_period: Option<String>,
}

#[derive(Serialize)]
struct ShownFailed<'r> {
    attempts: u32,
    next_attempt_at: String,
    last_error: &'r str,
}

impl<'r> Shown<'r> {
    fn of(record: &'r EventRecord) -> Self {
        let EventKey { id, tenant } = &record.key;
        Self {
            consumer: &record.consumer,
            tenant: tenant.as_str(),
            event_id: id.to_string(),
            own_day: id.day().map(|day| day.to_string()),
            settled: record.settled.iter().map(ShownSettled::of).collect(),
            failed: record.failed.as_ref().map(|failed| ShownFailed {
                attempts: failed.attempts,
                next_attempt_at: text::moment(failed.next_attempt_at),
                last_error: &failed.last_error,
            }),
            dead_letters: record.dead_letters.iter().map(ShownLetter::of).collect(),
        }
    }
}

impl<'r> ShownSettled<'r> {
    fn of(settled: &'r SettledRecord) -> Self {
        let (reason, reply) = match &settled.outcome {
            Settled::Rejected { reason } => (Some(&**reason), None),
            Settled::Done { reply } => (None, reply.as_deref()),
            Settled::Dead | _ => (None, None),
        };
        let (day, open_period) = match settled.filed {
            Filed::OwnDay(day) => (Some(day.to_string()), None),
            Filed::OpenPeriod(day) => (None, Some(day.to_string())),
        };
        Self {
            outcome: settled.outcome.as_str(),
            reason,
            reply: reply.map(ShownBytes::of),
            fingerprint: settled
                .fingerprint
                .map(|fingerprint| fingerprint.to_string()),
            recorded_at: text::moment(settled.recorded_at),
            day,
            open_period,
        }
    }
}
