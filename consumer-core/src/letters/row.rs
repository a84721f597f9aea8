//! A dead letter as a row of a SQL database.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{Letter, LetterId, LetterSummary, RedriveAs, RedriveRequest, RequestedRedrive};
use crate::dead_letter::{DeadLetter, DeadLetterKind, storable};
use crate::delivery::{AssignmentId, Delivery, Headers, Order, Position};
use crate::event_key::{EventId, EventKey, Tenant};
use crate::fingerprint::Fingerprint16;
use crate::store::StoreError;

/// What a SQL store keeps of a letter, column by column: it binds them, and reads them back. Times
/// are in microseconds since 1970.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "as in Letter and DeadLetter")]
pub struct LetterRow {
    pub id: i64,
    /// The consumer's name.
    pub consumer: String,
    pub source_key: Vec<u8>,
    pub kind: String,
    pub event_id: Option<Vec<u8>>,
    pub tenant: Option<Vec<u8>>,
    pub fingerprint: Option<Vec<u8>>,
    pub settled_fingerprint: Option<Vec<u8>>,
    pub source: String,
    pub log_partition: Option<i32>,
    pub log_offset: Option<i64>,
    pub message_id: Option<String>,
    pub deduplication_id: Option<String>,
    /// Whether the source knows an order.
    pub ordered: bool,
    pub message_group: Option<Vec<u8>>,
    pub lane: Option<Vec<u8>>,
    pub raw_key: Option<Bytes>,
    pub payload: Option<Bytes>,
    /// As [`Headers::to_json`] writes them.
    pub headers: String,
    /// How long it was, where it was cut.
    pub raw_key_length: Option<i64>,
    /// How long it was, where it was cut; in lists, wherever it is.
    pub payload_length: Option<i64>,
    pub headers_dropped: i32,
    /// `None` when unknown, or when no calendar has it.
    pub published_at: Option<i64>,
    pub first_at: i64,
    pub last_at: i64,
    pub deliveries: i32,
    pub attempts: i32,
    pub error: String,
    /// `None` while nobody has asked for it.
    pub redrive_requested_at: Option<i64>,
    pub redrive_due_at: Option<i64>,
    pub redrive_attempts: i32,
    pub redrive_as_new: bool,
    /// Of lists: whether something was cut.
    pub is_cut: bool,
}

impl LetterRow {
    /// The columns of a letter that is to be written.
    pub fn of(letter: &DeadLetter) -> Self {
        let text = |text: &str| storable(text, DeadLetter::MAX_ERROR_LEN);
        let event = letter.event.as_ref();
        let (log_partition, log_offset, message_id) = match &letter.position {
            Position::Log {
                partition, offset, ..
            } => (Some(*partition), Some(*offset), None),
            Position::Queue { message_id, .. } => (None, None, Some(text(message_id))),
        };
        let message_group = match &letter.order {
            Order::Group(group) => Some(group.to_vec()),
            Order::Assignment | Order::None => None,
        };
        let length = |length: Option<u64>| length.and_then(|length| i64::try_from(length).ok());
        Self {
            source_key: letter.source_key.into(),
            kind: letter.kind.as_str().into(),
            event_id: event.map(|event| event.id.to_bytes().into()),
            tenant: event.map(|event| event.tenant.as_str().into()),
            fingerprint: letter.fingerprint.map(|print| print.to_bytes().to_vec()),
            settled_fingerprint: (letter.settled_fingerprint)
                .map(|print| print.to_bytes().to_vec()),
            source: text(letter.position.source()),
            log_partition,
            log_offset,
            message_id,
            deduplication_id: letter.deduplication_id.as_deref().map(text),
            ordered: letter.order != Order::None,
            message_group,
            lane: letter.lane().map(Vec::from),
            raw_key: letter.key.clone(),
            payload: letter.payload.clone(),
            headers: letter.headers.to_json(),
            raw_key_length: length(letter.cut.key),
            payload_length: length(letter.cut.payload),
            headers_dropped: i32::try_from(letter.cut.headers).unwrap_or(i32::MAX),
            published_at: letter.published_at.and_then(calendar_micros),
            attempts: i32::try_from(letter.attempts).unwrap_or(i32::MAX),
            error: text(&letter.error),
            ..Self::default()
        }
    }

    /// The letter of a whole row.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for what no version up to this one has written.
    pub fn into_letter(self) -> Result<Letter, StoreError> {
        let event = self.event()?;
        let kind = self.kind()?;
        let mut delivery =
            Delivery::new(self.position()?, AssignmentId(0), 0, self.payload.clone());
        delivery.order = self.order();
        delivery.key.clone_from(&self.raw_key);
        delivery.headers =
            Headers::from_json(&self.headers).ok_or_else(|| self.unreadable("headers"))?;
        delivery.deduplication_id = self.deduplication_id.as_deref().map(Into::into);
        delivery.published_at = self.published_at.map(time_of_micros);
        let attempts = count(self.attempts);
        let mut letter = DeadLetter::new(&delivery, event, kind, attempts, &self.error);
        letter.source_key = self.source_key[..]
            .try_into()
            .map_err(|_| self.unreadable("source_key"))?;
        let fingerprint =
            |bytes: &Option<Vec<u8>>| bytes.as_deref().and_then(Fingerprint16::from_bytes);
        letter.fingerprint = fingerprint(&self.fingerprint);
        letter.settled_fingerprint = fingerprint(&self.settled_fingerprint);
        letter.cut.payload = self.payload_length.and_then(|len| len.try_into().ok());
        letter.cut.key = self.raw_key_length.and_then(|len| len.try_into().ok());
        letter.cut.headers = count(self.headers_dropped);
        Ok(Letter {
            id: LetterId(self.id),
            redrive: self.redrive(),
            first_at: time_of_micros(self.first_at),
            last_at: time_of_micros(self.last_at),
            deliveries: count(self.deliveries),
            consumer: self.consumer.into(),
            letter,
        })
    }

    /// The summary of a row that is in a list.
    ///
    /// # Errors
    /// As [`LetterRow::into_letter`].
    pub fn into_summary(self) -> Result<LetterSummary, StoreError> {
        Ok(LetterSummary {
            id: LetterId(self.id),
            kind: self.kind()?,
            event: self.event()?,
            position: self.position()?,
            payload_len: self.payload_length.and_then(|len| len.try_into().ok()),
            is_cut: self.is_cut,
            attempts: count(self.attempts),
            first_at: time_of_micros(self.first_at),
            last_at: time_of_micros(self.last_at),
            deliveries: count(self.deliveries),
            redrive: self.redrive(),
            consumer: self.consumer.into(),
            key: self.raw_key,
            error: self.error,
        })
    }

    /// The request of a row that is marked; the store says how long it has to wait yet.
    ///
    /// # Errors
    /// As [`LetterRow::into_letter`].
    pub fn into_requested(self, wait: Duration) -> Result<RequestedRedrive, StoreError> {
        Ok(RequestedRedrive {
            id: LetterId(self.id),
            event: self.event()?,
            position: self.position()?,
            order: self.order(),
            key: self.raw_key.clone(),
            lane: self.lane.as_deref().and_then(|lane| lane.try_into().ok()),
            redrive_as: self.redrive_as(),
            attempts: count(self.redrive_attempts),
            wait,
        })
    }

    fn kind(&self) -> Result<DeadLetterKind, StoreError> {
        DeadLetterKind::parse(&self.kind).ok_or_else(|| self.unreadable("kind"))
    }

    fn event(&self) -> Result<Option<EventKey>, StoreError> {
        let Some(id) = &self.event_id else {
            return Ok(None);
        };
        let tenant = std::str::from_utf8(self.tenant.as_deref().unwrap_or_default())
            .map_err(|_| self.unreadable("tenant"))?;
        Ok(Some(EventKey {
            id: EventId::from_bytes(id).map_err(|_| self.unreadable("event_id"))?,
            tenant: Tenant::new(tenant).map_err(|_| self.unreadable("tenant"))?,
        }))
    }

    fn position(&self) -> Result<Position, StoreError> {
        let source = self.source.as_str();
        match (self.log_partition, self.log_offset, &self.message_id) {
            (Some(partition), Some(offset), None) => Ok(Position::Log {
                topic: source.into(),
                partition,
                offset,
            }),
            (None, None, Some(message_id)) => Ok(Position::Queue {
                queue: source.into(),
                message_id: message_id.as_str().into(),
            }),
            _ => Err(self.unreadable("position")),
        }
    }

    fn order(&self) -> Order {
        match &self.message_group {
            _ if !self.ordered => Order::None,
            Some(group) => Order::Group(group.clone().into()),
            None => Order::Assignment,
        }
    }

    fn redrive_as(&self) -> RedriveAs {
        if self.redrive_as_new {
            RedriveAs::New
        } else {
            RedriveAs::Itself
        }
    }

    fn redrive(&self) -> Option<RedriveRequest> {
        let requested_at = time_of_micros(self.redrive_requested_at?);
        Some(RedriveRequest {
            requested_at,
            redrive_as: self.redrive_as(),
            attempts: count(self.redrive_attempts),
            due_at: self.redrive_due_at.map_or(requested_at, time_of_micros),
        })
    }

    fn unreadable(&self, column: &str) -> StoreError {
        StoreError::misconfigured(format!(
            "the dead letter {} has a {column} that this version of oneffect does not know: update \
             the program, or look at the row in dead_letter_readable",
            self.id
        ))
    }
}

fn count(stored: i32) -> u32 {
    stored.try_into().unwrap_or_default()
}

/// Microseconds since 1970. Producers may stamp anything, and a letter that cannot be written would
/// hold its lane for ever: what no calendar has is left out.
fn calendar_micros(time: SystemTime) -> Option<i64> {
    const YEARS_1_TO_9999: Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;
    micros(time).filter(|micros| YEARS_1_TO_9999.contains(micros))
}

/// How SQL stores are told of a time: in microseconds since 1970, as far as they can be counted.
pub fn micros(time: SystemTime) -> Option<i64> {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).ok();
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => Some(-micros(before.duration())?),
    }
}

/// The time that [`micros`] told of. One that the system cannot count to is that of 1970.
pub fn time_of_micros(micros: i64) -> SystemTime {
    let since = Duration::from_micros(micros.unsigned_abs());
    let time = if micros < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_calendar_has_is_left_out() {
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_secs(1);
        assert_eq!(calendar_micros(epoch + second), Some(1_000_000));
        assert_eq!(calendar_micros(epoch - second), Some(-1_000_000));
        // What a producer gets that stamps microseconds as if they were milliseconds.
        let absurd = Duration::from_millis(1_764_590_400_000_123);
        assert_eq!(calendar_micros(epoch + absurd), None);
        assert_eq!(calendar_micros(epoch - absurd), None);
        for micros in [0, 1, -1, 1_764_590_400_000_123] {
            assert_eq!(calendar_micros(time_of_micros(micros)), Some(micros));
        }
    }
}
