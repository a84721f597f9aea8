//! `oneffect dead-letters show`.

use oneffect_core::{DeadLetter, Headers, Letter};
use serde::Serialize;

use crate::code::Code;
use crate::command::shown::{ShownBytes, ShownRedrive};
use crate::console::Console;
use crate::text::{self, Lines};

/// How much of a payload and of a header is shown to people; JSON has all of it.
const SHOWN: usize = 4000;

pub(super) fn run(
    letter: &Letter,
    payload_alone: bool,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    if payload_alone {
        console.print_bytes(letter.letter.payload.as_deref().unwrap_or_default())?;
    } else if json {
        console.print_json(&Shown::of(letter))?;
    } else {
        print(letter, console)?;
    }
    Ok(Code::Fine)
}

fn print(stored: &Letter, console: &mut Console) -> anyhow::Result<()> {
    let letter = &stored.letter;
    let mut lines = Lines::headed(&console.bold(format_args!("dead letter {}", stored.id)));
    lines.field("kind", console.bad(letter.kind.as_str()));
    lines.field("consumer", text::plain(&stored.consumer));
    if let Some(event) = &letter.event {
        lines.field("event id", text::plain(&event.id.to_string()));
        if !event.tenant.as_str().is_empty() {
            lines.field("tenant", text::plain(event.tenant.as_str()));
        }
    }
    lines.field("from", text::plain(&letter.position.to_string()));
    if let Some(at) = letter.published_at {
        lines.field("published", text::moment(at));
    }
    let (first, last) = (text::moment(stored.first_at), text::moment(stored.last_at));
    lines.field("set aside", format_args!("{first}, last {last}"));
    lines.field(
        "attempts",
        format_args!("{}, delivered {} times", letter.attempts, stored.deliveries),
    );
    lines.field("error", "");
    lines.block(&letter.error);
    if let Some(fingerprint) = letter.fingerprint {
        lines.field("fingerprint", fingerprint);
    }
    if let Some(fingerprint) = letter.settled_fingerprint {
        lines.field("settled", fingerprint);
    }
    if let Some(redrive) = &stored.redrive {
        let (at, due) = (
            text::moment(redrive.requested_at),
            text::moment(redrive.due_at),
        );
        let attempts = redrive.attempts;
        lines.field(
            "redrive",
            format_args!("asked for at {at}, failed {attempts} times, due {due}"),
        );
    }
    print_content(letter, &mut lines);
    Ok(console.print(lines)?)
}

fn print_content(letter: &DeadLetter, lines: &mut Lines) {
    if let Some(key) = &letter.key {
        lines.field("key", text::bytes(key, SHOWN));
    }
    for (name, value) in letter.headers.iter() {
        let value = value.map_or_else(|| "null".to_owned(), |value| text::bytes(value, SHOWN));
        lines.field("header", format_args!("{}: {value}", text::plain(name)));
    }
    match &letter.payload {
        None => lines.field("payload", "none: a tombstone"),
        Some(payload) => {
            lines.field("payload", format_args!("{} bytes", payload.len()));
            lines.field("", text::bytes(payload, SHOWN));
        }
    }
    let cut = letter.cut;
    for (what, len) in [("payload", cut.payload), ("key", cut.key)] {
        if let Some(len) = len {
            lines.field("cut", format_args!("the {what} had {len} bytes"));
        }
    }
    if cut.headers > 0 {
        lines.field("cut", format_args!("{} more headers", cut.headers));
    }
}

/// The JSON of a letter.
#[derive(Serialize)]
struct Shown<'l> {
    id: i64,
    consumer: &'l str,
    kind: &'static str,
    event_id: Option<String>,
    tenant: Option<&'l str>,
    position: String,
    key: Option<ShownBytes<'l>>,
    payload: Option<ShownBytes<'l>>,
    /// In the order they came: a name and its value.
    headers: Vec<(&'l str, Option<ShownBytes<'l>>)>,
    deduplication_id: Option<&'l str>,
    published_at: Option<String>,
    fingerprint: Option<String>,
    settled_fingerprint: Option<String>,
    attempts: u32,
    deliveries: u32,
    error: &'l str,
    first_at: String,
    last_at: String,
    /// How much there was of what was cut.
    cut: Option<ShownCut>,
    redrive: Option<ShownRedrive>,
}

#[derive(Serialize)]
struct ShownCut {
    payload_len: Option<u64>,
    key_len: Option<u64>,
    headers_dropped: u32,
}

impl<'l> Shown<'l> {
    fn of(stored: &'l Letter) -> Self {
        let letter = &stored.letter;
        let event = letter.event.as_ref();
        let is_cut = !letter.cut.is_nothing();
        Self {
            id: stored.id.0,
            consumer: &stored.consumer,
            kind: letter.kind.as_str(),
            event_id: event.map(|event| event.id.to_string()),
            tenant: event.map(|event| event.tenant.as_str()),
            position: letter.position.to_string(),
            key: letter.key.as_deref().map(ShownBytes::of),
            payload: letter.payload.as_deref().map(ShownBytes::of),
            headers: shown_headers(&letter.headers),
            deduplication_id: letter.deduplication_id.as_deref(),
            published_at: letter.published_at.map(text::moment),
            fingerprint: letter.fingerprint.map(|print| print.to_string()),
            settled_fingerprint: letter.settled_fingerprint.map(|print| print.to_string()),
            attempts: letter.attempts,
            deliveries: stored.deliveries,
            error: &letter.error,
            first_at: text::moment(stored.first_at),
            last_at: text::moment(stored.last_at),
            cut: is_cut.then_some(ShownCut {
                payload_len: letter.cut.payload,
                key_len: letter.cut.key,
                headers_dropped: letter.cut.headers,
            }),
            redrive: stored.redrive.as_ref().map(ShownRedrive::of),
        }
    }
}

fn shown_headers(headers: &Headers) -> Vec<(&str, Option<ShownBytes<'_>>)> {
    let shown = headers
        .iter()
        .map(|(name, value)| (name, value.map(|value| ShownBytes::of(value))));
    shown.collect()
}
