//! Where the event key comes from: the id, and the tenant that owns its namespace.

mod tenant;
mod time;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

pub use self::tenant::TenantFrom;
pub use self::time::TimeFrom;
pub(crate) use self::time::Untimed;

use crate::delivery::{Delivery, Position};
use crate::event_key::{EventId, EventKey, InvalidEventKey, Tenant};
use crate::handler::panic_message;
use crate::json_pointer::{JsonPointer, Scalar};

/// Where the event id comes from. The producer chose it, once; every delivery repeats it.
///
/// The default looks at the header (Kafka) or message attribute (SQS) `event-id`, then at
/// `/event_id` in the JSON payload. A delivery without a readable id is set aside.
///
/// Ids are compared by their bytes: no folding of case, no trimming, no Unicode normalisation.
/// [`IdFrom::normalise_uuids`] is the one exception, for those who ask for it.
#[derive(Clone)]
pub struct IdFrom {
    place: Place,
    normalise_uuids: bool,
}

#[derive(Clone)]
enum Place {
    HeaderOrJson(Box<str>, JsonPointer),
    Json(JsonPointer, Box<str>),
    Header(Box<str>),
    CloudEvent,
    DeduplicationId,
    LogPosition,
    QueueMessageId,
    Closure(Arc<Closure>),
    /// A pointer that does not parse: refused when the consumer starts.
    Unusable(String),
}

type Closure = dyn Fn(&Delivery) -> Result<EventKey, InvalidEventKey> + Send + Sync;

impl Default for IdFrom {
    fn default() -> Self {
        let pointer = JsonPointer::parse("/event_id");
        pointer
            .map_or_else(Place::Unusable, |pointer| {
                Place::HeaderOrJson("event-id".into(), pointer)
            })
            .into()
    }
}

impl IdFrom {
    /// From the JSON payload, at a pointer such as `/meta/id`: text, or an integer.
    pub fn json_pointer(pointer: &str) -> Self {
        JsonPointer::parse(pointer)
            .map_or_else(Place::Unusable, |parsed| {
                Place::Json(parsed, pointer.into())
            })
            .into()
    }

    /// From a header or message attribute; of several with that name the last counts.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Place::Header(name.into()).into()
    }

    /// From a CloudEvent: the headers `ce_id` and `ce_source` (or `ce-id`, `ce-source`), else `id`
    /// and `source` in the JSON envelope. CloudEvents promises that *the pair* is unique, so the
    /// source becomes the tenant.
    pub fn cloud_event() -> Self {
        Place::CloudEvent.into()
    }

    /// From the broker's own deduplication id (SQS FIFO queues). Only if the producer chooses it:
    /// a queue with content-based deduplication derives it from the body, and then two equal
    /// events are one.
    pub fn deduplication_id() -> Self {
        Place::DeduplicationId.into()
    }

    /// From topic, partition and offset, and the record's timestamp, in milliseconds. Catches
    /// redeliveries by the broker, and nothing else: a producer's own repeat is a new event then,
    /// and so is everything that is copied to another topic. Call it only if no producer ever sends
    /// an event twice.
    ///
    /// The timestamp tells a topic from one of its name that was deleted before: a recreated topic
    /// counts its offsets from zero, and its first events would be taken for repeats of old ones.
    pub fn position_where_producer_never_resends() -> Self {
        Place::LogPosition.into()
    }

    /// From the queue's message id. Catches redeliveries by the queue, and nothing else: a producer
    /// that sends an event twice, as a retry after a timeout does, makes two messages. Call it only
    /// if it never does.
    pub fn message_id_where_producer_never_resends() -> Self {
        Place::QueueMessageId.into()
    }

    /// From anywhere. The closure gives the whole event key, its tenant included.
    pub fn closure(
        find: impl Fn(&Delivery) -> Result<EventKey, InvalidEventKey> + Send + Sync + 'static,
    ) -> Self {
        Place::Closure(Arc::new(find)).into()
    }

    /// Takes all ways of writing a UUID for one: upper case, in braces, without hyphens, as a URN.
    /// Without this they are different ids. For producers that write one event's id in several
    /// ways; any other 32 hexadecimal digits read as a UUID as well, which changes their case.
    ///
    /// The inbox does not remember how an id was written: switched on or off later, events that
    /// come again under another spelling than their first are new.
    #[must_use]
    pub fn normalise_uuids(mut self) -> Self {
        self.normalise_uuids = true;
        self
    }

    /// What is wrong with the setting itself.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if let Place::Unusable(reason) = &self.place {
            return Err(reason.clone());
        }
        Ok(())
    }

    /// Whether the tenant comes with the id.
    pub(crate) fn brings_tenant(&self) -> bool {
        matches!(self.place, Place::CloudEvent | Place::Closure(_))
    }

    /// The event key of a delivery, or why it has none.
    pub(crate) fn identify(&self, delivery: &Delivery) -> Result<EventKey, Unidentified> {
        let mut key = self.find(delivery)?;
        if self.normalise_uuids {
            key.id = key.id.with_uuid_normalised();
        }
        Ok(key)
    }

    fn find(&self, delivery: &Delivery) -> Result<EventKey, Unidentified> {
        match &self.place {
            Place::HeaderOrJson(name, pointer) => match in_header(delivery, name)? {
                Some(id) => Ok(EventKey::new(id)),
                None => in_json(delivery, pointer)?
                    .map(EventKey::new)
                    .ok_or_else(|| {
                        Unidentified::missing(format_args!(
                            "header {name:?} and at {:?} in the payload",
                            "/event_id"
                        ))
                    }),
            },
            Place::Json(pointer, text) => in_json(delivery, pointer)?
                .map(EventKey::new)
                .ok_or_else(|| Unidentified::missing(format_args!("{text:?} in the payload"))),
            Place::Header(name) => in_header(delivery, name)?
                .map(EventKey::new)
                .ok_or_else(|| Unidentified::missing(format_args!("header {name:?}"))),
            Place::CloudEvent => cloud_event(delivery),
            Place::DeduplicationId => match &delivery.deduplication_id {
                Some(id) => Ok(EventKey::new(EventId::new(id)?)),
                None => Err(Unidentified::missing(format_args!(
                    "the deduplication id, which only FIFO queues have"
                ))),
            },
            Place::LogPosition => match &delivery.position {
                position @ Position::Log { .. } => {
                    let sent = delivery.published_at.map(millis);
                    let sent = sent.map_or_else(String::new, |millis| format!("@{millis}"));
                    Ok(EventKey::new(EventId::new(format!("{position}{sent}"))?))
                }
                Position::Queue { .. } => Err(Unidentified::missing(format_args!(
                    "topic, partition and offset, which a queue does not have"
                ))),
            },
            Place::QueueMessageId => match &delivery.position {
                Position::Queue { message_id, .. } => Ok(EventKey::new(EventId::new(message_id)?)),
                Position::Log { .. } => Err(Unidentified::missing(format_args!(
                    "the message id, which only queues have"
                ))),
            },
            Place::Closure(find) => caught(|| find(delivery)),
            Place::Unusable(reason) => Err(Unidentified::Missing(reason.clone())),
        }
    }
}

impl From<Place> for IdFrom {
    fn from(place: Place) -> Self {
        Self {
            place,
            normalise_uuids: false,
        }
    }
}

impl fmt::Debug for IdFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::HeaderOrJson(name, pointer) => write!(f, "IdFrom({name:?}, {pointer:?})"),
            Place::Json(_, pointer) => write!(f, "IdFrom({pointer:?})"),
            Place::Header(name) => write!(f, "IdFrom({name:?})"),
            Place::CloudEvent => f.write_str("IdFrom(CloudEvent)"),
            Place::DeduplicationId => f.write_str("IdFrom(deduplication id)"),
            Place::LogPosition => f.write_str("IdFrom(position)"),
            Place::QueueMessageId => f.write_str("IdFrom(message id)"),
            Place::Closure(_) => f.write_str("IdFrom(closure)"),
            Place::Unusable(reason) => write!(f, "IdFrom({reason})"),
        }
    }
}

/// Since 1970; one before that is as good as any other.
fn millis(time: SystemTime) -> u128 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_else(|before| before.duration()).as_millis()
}

/// A user's closure runs in the task that owns all else, and a panic would take that along.
fn caught<T>(find: impl FnOnce() -> Result<T, InvalidEventKey>) -> Result<T, Unidentified> {
    catch_unwind(AssertUnwindSafe(find))
        .map_err(|panic| Unidentified::Panicked(panic_message(&*panic).into()))?
        .map_err(Unidentified::from)
}

/// Why a delivery has no event key; the text is its dead letter's error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    #[error("no event id: looked at {0}")]
    Missing(String),
    #[error("no tenant: looked at {0}")]
    NoTenant(String),
    #[error("no event key: the payload is not JSON")]
    NotJson(#[from] serde_json::Error),
    #[error(
        "no event key: what stands in its place is {0}, and ids and tenants are text or integers"
    )]
    NoScalar(&'static str),
    #[error("unusable event key")]
    Invalid(#[from] InvalidEventKey),
    #[error("no event key: looking for it panicked: {0}")]
    Panicked(Box<str>),
}

impl Unidentified {
    fn missing(place: fmt::Arguments<'_>) -> Self {
        Self::Missing(place.to_string())
    }
}

/// The text in a header; `None` when there is no such header.
fn header_text<'d>(
    delivery: &'d Delivery,
    name: &str,
    what: &'static str,
) -> Result<Option<&'d str>, Unidentified> {
    let Some(bytes) = delivery.headers.get(name) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidEventKey::NotUtf8 { what })?;
    Ok(Some(text))
}

/// The text or integer in the payload; `None` when nothing is there.
fn json_text(delivery: &Delivery, pointer: &JsonPointer) -> Result<Option<String>, Unidentified> {
    let Some(payload) = &delivery.payload else {
        return Ok(None);
    };
    match pointer.find(payload)? {
        Some(Scalar::Text(text) | Scalar::Integer(text)) => Ok(Some(text)),
        Some(Scalar::Other(what)) => Err(Unidentified::NoScalar(what)),
        None => Ok(None),
    }
}

fn in_header(delivery: &Delivery, name: &str) -> Result<Option<EventId>, Unidentified> {
    let text = header_text(delivery, name, "event id")?;
    Ok(text.map(EventId::new).transpose()?)
}

fn in_json(delivery: &Delivery, pointer: &JsonPointer) -> Result<Option<EventId>, Unidentified> {
    let text = json_text(delivery, pointer)?;
    Ok(text.map(EventId::new).transpose()?)
}

/// A tenant that a delivery says it has.
fn given_tenant(text: impl Into<Box<str>>) -> Result<Tenant, InvalidEventKey> {
    let text = text.into();
    if text.is_empty() {
        return Err(InvalidEventKey::EmptyTenant);
    }
    Tenant::new(text)
}

fn cloud_event(delivery: &Delivery) -> Result<EventKey, Unidentified> {
    let attribute = |name: &str, what| -> Result<Option<Cow<'_, str>>, Unidentified> {
        for separator in ["_", "-"] {
            if let Some(found) = header_text(delivery, &format!("ce{separator}{name}"), what)? {
                return Ok(Some(found.into()));
            }
        }
        let pointer = JsonPointer::parse(&format!("/{name}")).map_err(Unidentified::Missing)?;
        Ok(json_text(delivery, &pointer)?.map(Cow::from))
    };
    let missing = |name| {
        Unidentified::missing(format_args!(
            "the CloudEvent's {name}: header \"ce_{name}\", or {name:?} in the JSON envelope"
        ))
    };
    // In binary mode the payload is the event's own data, and need not be JSON: the headers decide.
    let id = attribute("id", "event id")?.ok_or_else(|| missing("id"))?;
    let source = attribute("source", "tenant")?.ok_or_else(|| missing("source"))?;
    Ok(EventKey {
        id: EventId::new(id)?,
        tenant: given_tenant(source)?,
    })
}

#[cfg(test)]
mod tests;
