//! From librdkafka's message to ours.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use oneffect_core::Headers;
use rdkafka::message::{BorrowedMessage, Headers as _, Message};

use crate::arena::Arena;

/// A record, copied out of librdkafka's memory.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) payload: Option<Bytes>,
    pub(crate) headers: Headers,
    pub(crate) published_at: Option<SystemTime>,
}

impl Record {
    pub(crate) fn copy(message: &BorrowedMessage<'_>, arena: &mut Arena) -> Self {
        let millis = message.timestamp().to_millis();
        let published_at = millis
            .and_then(|millis| u64::try_from(millis).ok())
            .and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(|key| arena.copy(key)),
            payload: message.payload().map(|payload| arena.copy(payload)),
            headers: headers(message, arena),
            published_at,
        }
    }
}

/// Stands for a header's name that is not UTF-8.
const UNREADABLE_NAME: &str = "\u{fffd}";

fn headers(message: &BorrowedMessage<'_>, arena: &mut Arena) -> Headers {
    let mut copied = Headers::default();
    let Some(headers) = message.headers() else {
        return copied;
    };
    for index in 0..headers.count() {
        // rdkafka panics on a name that is not UTF-8, which any producer can write. One such record
        // must not end the consumer, and end it again after each restart.
        let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(index)));
        match header {
            Ok(Some(header)) => {
                let value = header.value.map(|value| arena.copy(value));
                copied.push(header.key, value);
            }
            Ok(None) => {}
            Err(_) => copied.push(UNREADABLE_NAME, None),
        }
    }
    copied
}
