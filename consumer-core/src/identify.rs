//! Where the event id comes from.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::delivery::{Delivery, Position};
use crate::event_key::{EventId, EventKey, InvalidEventKey, Tenant};
use crate::handler::panic_message;
use crate::json_pointer::{JsonPointer, Scalar};

/// Where the event id comes from. The producer chose it, once; every delivery repeats it.
///
/// The default looks at the header (Kafka) or message attribute (SQS) `event-id`, then at
/// `/event_id` in the JSON payload. A delivery without a readable id is set aside.
#[derive(Clone)]
pub struct IdFrom(Place);

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
        Self(pointer.map_or_else(Place::Unusable, |pointer| {
            Place::HeaderOrJson("event-id".into(), pointer)
        }))
    }
}

impl IdFrom {
    /// From the JSON payload, at a pointer such as `/meta/id`: text, or an integer.
    pub fn json_pointer(pointer: &str) -> Self {
        Self(
            JsonPointer::parse(pointer).map_or_else(Place::Unusable, |parsed| {
                Place::Json(parsed, pointer.into())
            }),
        )
    }

    /// From a header or message attribute; of several with that name the last counts.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self(Place::Header(name.into()))
    }

    /// From a CloudEvent: the headers `ce_id` and `ce_source` (or `ce-id`, `ce-source`), else `id`
    /// and `source` in the JSON envelope. CloudEvents promises that *the pair* is unique, so the
    /// source becomes the tenant.
    pub fn cloud_event() -> Self {
        Self(Place::CloudEvent)
    }

    /// From the broker's own deduplication id (SQS FIFO queues). Only if the producer chooses it:
    /// a queue with content-based deduplication derives it from the body, and then two equal
    /// events are one.
    pub fn deduplication_id() -> Self {
        Self(Place::DeduplicationId)
    }

    /// From topic, partition and offset. Catches redeliveries by the broker, and nothing else: a
    /// producer's own repeat is a new event then, and so is everything that is copied to another
    /// topic. Call it only if the topic is never deleted and made again: a recreated topic counts
    /// its offsets from zero, and its first events would be taken for repeats of old ones.
    pub fn position_where_topic_is_never_recreated() -> Self {
        Self(Place::LogPosition)
    }

    /// From the queue's message id. Catches redeliveries by the queue, and nothing else: a producer
    /// that sends an event twice, as a retry after a timeout does, makes two messages. Call it only
    /// if it never does.
    pub fn message_id_where_producer_never_resends() -> Self {
        Self(Place::QueueMessageId)
    }

    /// From anywhere.
    pub fn closure(
        find: impl Fn(&Delivery) -> Result<EventKey, InvalidEventKey> + Send + Sync + 'static,
    ) -> Self {
        Self(Place::Closure(Arc::new(find)))
    }

    /// What is wrong with the setting itself.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if let Place::Unusable(reason) = &self.0 {
            return Err(reason.clone());
        }
        Ok(())
    }

    /// The event key of a delivery, or why it has none.
    pub(crate) fn identify(&self, delivery: &Delivery) -> Result<EventKey, Unidentified> {
        match &self.0 {
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
                    Ok(EventKey::new(EventId::new(position.to_string())?))
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
            // It runs in the task that owns all else, and would take it along.
            Place::Closure(find) => catch_unwind(AssertUnwindSafe(|| find(delivery)))
                .map_err(|panic| Unidentified::Panicked(panic_message(&*panic).into()))?
                .map_err(Unidentified::from),
            Place::Unusable(reason) => Err(Unidentified::Missing(reason.clone())),
        }
    }
}

impl fmt::Debug for IdFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
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

/// Why a delivery has no event key; the text is its dead letter's error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    #[error("no event id: looked at {0}")]
    Missing(String),
    #[error("no event id: the payload is not JSON")]
    NotJson(#[from] serde_json::Error),
    #[error("no event id: what stands in its place is {0}, and ids are text or integers")]
    NoScalar(&'static str),
    #[error("unusable event id: {0}")]
    Invalid(#[from] InvalidEventKey),
    #[error("no event id: looking for it panicked: {0}")]
    Panicked(Box<str>),
}

impl Unidentified {
    fn missing(place: fmt::Arguments<'_>) -> Self {
        Self::Missing(place.to_string())
    }
}

fn in_header(delivery: &Delivery, name: &str) -> Result<Option<EventId>, Unidentified> {
    let text = |bytes| {
        std::str::from_utf8(bytes).map_err(|_| InvalidEventKey::NotUtf8 { what: "event id" })
    };
    match delivery.headers.get(name) {
        Some(bytes) => Ok(Some(EventId::new(text(bytes)?)?)),
        None => Ok(None),
    }
}

fn in_json(delivery: &Delivery, pointer: &JsonPointer) -> Result<Option<EventId>, Unidentified> {
    let Some(payload) = &delivery.payload else {
        return Ok(None);
    };
    match pointer.find(payload)? {
        Some(Scalar::Text(id) | Scalar::Integer(id)) => Ok(Some(EventId::new(id)?)),
        Some(Scalar::Other(what)) => Err(Unidentified::NoScalar(what)),
        None => Ok(None),
    }
}

fn cloud_event(delivery: &Delivery) -> Result<EventKey, Unidentified> {
    let attribute = |name: &str| -> Result<Option<EventId>, Unidentified> {
        for separator in ["_", "-"] {
            if let Some(found) = in_header(delivery, &format!("ce{separator}{name}"))? {
                return Ok(Some(found));
            }
        }
        let pointer = JsonPointer::parse(&format!("/{name}")).map_err(Unidentified::Missing)?;
        in_json(delivery, &pointer)
    };
    let missing = |name| {
        Unidentified::missing(format_args!(
            "the CloudEvent's {name}: header \"ce_{name}\", or {name:?} in the JSON envelope"
        ))
    };
    // In binary mode the payload is the event's own data, and need not be JSON: the headers decide.
    let id = attribute("id")?.ok_or_else(|| missing("id"))?;
    let source = attribute("source")?.ok_or_else(|| missing("source"))?;
    Ok(EventKey {
        id,
        tenant: Tenant::new(source.to_string())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{AssignmentId, Headers};
    use bytes::Bytes;

    fn delivery(headers: &[(&'static str, &'static str)], payload: &'static str) -> Delivery {
        let position = Position::Log {
            topic: "orders".into(),
            partition: 3,
            offset: 42,
        };
        let mut delivery = Delivery::new(
            position,
            AssignmentId(1),
            42,
            Some(Bytes::from_static(payload.as_bytes())),
        );
        delivery.headers = headers
            .iter()
            .map(|&(n, v)| (n, Bytes::from_static(v.as_bytes())))
            .collect::<Headers>();
        delivery
    }

    fn id(from: &IdFrom, delivery: &Delivery) -> Result<String, String> {
        from.identify(delivery)
            .map(|key| key.to_string())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_default_prefers_the_header_to_the_payload() {
        let from = IdFrom::default();
        let both = delivery(&[("event-id", "h")], r#"{"event_id":"p"}"#);
        assert_eq!(id(&from, &both).unwrap(), "h");
        assert_eq!(
            id(&from, &delivery(&[], r#"{"event_id":"p"}"#)).unwrap(),
            "p"
        );
        assert_eq!(
            id(&from, &delivery(&[("event-id", "h")], "no json")).unwrap(),
            "h"
        );
    }

    #[test]
    fn what_has_no_id_says_where_it_was_looked_for() {
        let error = id(&IdFrom::default(), &delivery(&[], "{}")).unwrap_err();
        assert!(
            error.contains("event-id") && error.contains("/event_id"),
            "{error}"
        );
        assert!(id(&IdFrom::default(), &delivery(&[], "{")).is_err());
        assert!(id(&IdFrom::default(), &delivery(&[], r#"{"event_id":""}"#)).is_err());
        assert!(id(&IdFrom::default(), &delivery(&[], r#"{"event_id":1.5}"#)).is_err());
    }

    /// Field case 097: of repeated headers the last is the id.
    #[test]
    fn of_repeated_headers_the_last_counts() {
        let twice = delivery(&[("event-id", "a"), ("event-id", "b")], "");
        assert_eq!(id(&IdFrom::default(), &twice).unwrap(), "b");
    }

    #[test]
    fn a_cloud_event_is_known_by_source_and_id() {
        let from = IdFrom::cloud_event();
        let binary = delivery(&[("ce_id", "1"), ("ce_source", "/shop")], "\u{0}");
        assert_eq!(id(&from, &binary).unwrap(), "/shop:1");
        let structured = delivery(&[], r#"{"id":"1","source":"/shop"}"#);
        assert_eq!(
            from.identify(&binary).unwrap(),
            from.identify(&structured).unwrap()
        );
        assert!(id(&from, &delivery(&[], r#"{"id":"1"}"#)).is_err());
    }

    #[test]
    fn positions_are_ids_only_when_asked_for() {
        let from = IdFrom::position_where_topic_is_never_recreated();
        assert_eq!(id(&from, &delivery(&[], "")).unwrap(), "orders/3/42");
        assert!(
            id(
                &IdFrom::message_id_where_producer_never_resends(),
                &delivery(&[], "")
            )
            .is_err()
        );
    }

    #[test]
    fn a_pointer_that_cannot_be_is_refused_at_the_start() {
        assert!(IdFrom::json_pointer("id").validate().is_err());
        assert!(IdFrom::json_pointer("/id").validate().is_ok());
    }
}
