//! What several commands show alike.

use oneffect_core::{EventKey, LetterSummary, RedriveAs, RedriveRequest};
use serde::Serialize;

use crate::text;

/// The JSON of bytes: `text` where they are UTF-8, else `hex`.
#[derive(Serialize)]
pub(super) struct ShownBytes<'b> {
    len: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl<'b> ShownBytes<'b> {
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok();
        Self {
            len: bytes.len(),
            text,
            hex: text.is_none().then(|| text::hex(bytes)),
        }
    }
}

/// The JSON of a dead letter in a list.
#[derive(Serialize)]
pub(super) struct ShownLetter<'l> {
    id: i64,
    consumer: &'l str,
    kind: &'static str,
    event_id: Option<String>,
    tenant: Option<&'l str>,
    position: String,
    key: Option<ShownBytes<'l>>,
    payload_len: Option<u64>,
    cut: bool,
    attempts: u32,
    deliveries: u32,
    error: &'l str,
    first_at: String,
    last_at: String,
    redrive: Option<ShownRedrive>,
}

#[derive(Serialize)]
pub(super) struct ShownRedrive {
    requested_at: String,
    as_new: bool,
    attempts: u32,
    due_at: String,
}

impl<'l> ShownLetter<'l> {
    pub(super) fn of(letter: &'l LetterSummary) -> Self {
        let event = letter.event.as_ref();
        Self {
            id: letter.id.0,
            consumer: &letter.consumer,
            kind: letter.kind.as_str(),
            event_id: event.map(|event| event.id.to_string()),
            tenant: event.map(|event| event.tenant.as_str()),
            position: letter.position.to_string(),
            key: letter.key.as_deref().map(ShownBytes::of),
            payload_len: letter.payload_len,
            cut: letter.is_cut,
            attempts: letter.attempts,
            deliveries: letter.deliveries,
            error: &letter.error,
            first_at: text::moment(letter.first_at),
            last_at: text::moment(letter.last_at),
            redrive: letter.redrive.as_ref().map(ShownRedrive::of),
        }
    }
}

impl ShownRedrive {
    pub(super) fn of(request: &RedriveRequest) -> Self {
        Self {
            requested_at: text::moment(request.requested_at),
            as_new: request.redrive_as == RedriveAs::New,
            attempts: request.attempts,
            due_at: text::moment(request.due_at),
        }
    }
}

/// An event key as a person reads it.
pub(super) fn event(event: Option<&EventKey>) -> String {
    event.map_or_else(|| "-".to_owned(), |event| text::plain(&event.to_string()))
}
