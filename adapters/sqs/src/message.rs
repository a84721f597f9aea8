//! From a message of SQS to a delivery.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as Name};
use bytes::Bytes;
use oneffect_core::{AssignmentId, Delivery, Headers, Order, Position};

use crate::body::{BASE64, ENCODING_ATTRIBUTE, decode_base64};
use crate::ledger::Receipt;

/// A source has one queue and holds it as long as it lives.
pub(crate) const ASSIGNMENT: AssignmentId = AssignmentId(1);

/// The queue that messages come from.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) is_fifo: bool,
}

/// What settling the message takes; `None` if it does not say, which no message of SQS does.
pub(crate) fn receipt<'a>(message: &'a Message, queue: &Queue) -> Option<Receipt<'a>> {
    Some(Receipt {
        message_id: message.message_id()?,
        handle: message.receipt_handle()?,
        // A standard queue may have groups too, for fairness among them and not for order.
        group: (system_attribute(message, &Name::MessageGroupId))
            .filter(|_| queue.is_fifo)
            .map(str::as_bytes),
    })
}

pub(crate) fn delivery(
    message: &Message,
    receipt: &Receipt<'_>,
    queue: &Queue,
    tag: u64,
) -> Delivery {
    let position = Position::Queue {
        queue: Arc::clone(&queue.name),
        message_id: receipt.message_id.into(),
    };
    let (payload, headers) = content(message);
    let mut delivery = Delivery::new(position, ASSIGNMENT, tag, Some(payload));
    delivery.headers = headers;
    delivery.order = match receipt.group {
        Some(group) => Order::Group(Bytes::copy_from_slice(group)),
        None => Order::None,
    };
    delivery.receive_count = number(message, &Name::ApproximateReceiveCount);
    delivery.published_at = number(message, &Name::SentTimestamp)
        .and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    delivery.deduplication_id =
        system_attribute(message, &Name::MessageDeduplicationId).map(Into::into);
    delivery
}

/// The bytes that were sent, and what came along. A body that was encoded for the way is decoded,
/// and the mark of that removed, so that both can be sent on as they are. One that says so and is
/// not remains as it came, mark and all: what reads it will tell.
fn content(message: &Message) -> (Bytes, Headers) {
    let mut attributes: Vec<_> = (message.message_attributes())
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), bytes(value)))
        .collect();
    // SQS gives them in no order.
    attributes.sort_unstable_by_key(|(name, _)| *name);
    let body = message.body().unwrap_or_default();
    let is_encoded = (attributes.iter())
        .any(|(name, value)| *name == ENCODING_ATTRIBUTE && value == BASE64.as_bytes());
    let payload = match is_encoded.then(|| decode_base64(body)).flatten() {
        Some(decoded) => {
            attributes.retain(|(name, _)| *name != ENCODING_ATTRIBUTE);
            decoded
        }
        None => Bytes::copy_from_slice(body.as_bytes()),
    };
    let trace = system_attribute(message, &Name::AwsTraceHeader)
        .map(|trace| ("AWSTraceHeader", Bytes::copy_from_slice(trace.as_bytes())));
    (payload, attributes.into_iter().chain(trace).collect())
}

/// The value of an attribute: strings and numbers as UTF-8, binary ones as they are.
fn bytes(value: &MessageAttributeValue) -> Bytes {
    match (value.binary_value(), value.string_value()) {
        (Some(binary), _) => Bytes::copy_from_slice(binary.as_ref()),
        (None, Some(text)) => Bytes::copy_from_slice(text.as_bytes()),
        (None, None) => Bytes::new(),
    }
}

fn system_attribute<'a>(message: &'a Message, name: &Name) -> Option<&'a str> {
    message.attributes()?.get(name).map(String::as_str)
}

fn number<N: std::str::FromStr>(message: &Message, name: &Name) -> Option<N> {
    system_attribute(message, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::primitives::Blob;

    use super::*;

    const FIFO: bool = true;
    const STANDARD: bool = false;

    fn queue(is_fifo: bool) -> Queue {
        Queue {
            name: "orders".into(),
            is_fifo,
        }
    }

    fn read(message: &Message, is_fifo: bool) -> Delivery {
        let queue = queue(is_fifo);
        let receipt = receipt(message, &queue).unwrap();
        delivery(message, &receipt, &queue, 7)
    }

    fn message(body: &str) -> aws_sdk_sqs::types::builders::MessageBuilder {
        Message::builder()
            .message_id("m1")
            .receipt_handle("h1")
            .body(body)
    }

    fn attribute(kind: &str) -> aws_sdk_sqs::types::builders::MessageAttributeValueBuilder {
        MessageAttributeValue::builder().data_type(kind)
    }

    #[test]
    fn attributes_become_headers_and_what_sqs_says_becomes_fields() {
        let binary = attribute("Binary").binary_value(Blob::new([0, 255]));
        let text = attribute("String").string_value("caf\u{e9}");
        let message = message("{}")
            .message_attributes("b", binary.build().unwrap())
            .message_attributes("a", text.build().unwrap())
            .attributes(Name::ApproximateReceiveCount, "3")
            .attributes(Name::SentTimestamp, "1700000000123")
            .attributes(Name::MessageGroupId, "g")
            .attributes(Name::MessageDeduplicationId, "d")
            .attributes(Name::AwsTraceHeader, "Root=1")
            .build();

        let delivery = read(&message, FIFO);

        let headers: Vec<_> = delivery.headers.iter().map(|(name, _)| name).collect();
        assert_eq!(headers, ["a", "b", "AWSTraceHeader"]);
        assert_eq!(delivery.headers.get("a").unwrap(), "caf\u{e9}".as_bytes());
        assert_eq!(delivery.headers.get("b").unwrap(), &[0, 255][..]);
        assert_eq!(delivery.payload.as_deref(), Some(&b"{}"[..]));
        assert_eq!(delivery.receive_count, Some(3));
        assert_eq!(delivery.order, Order::Group("g".into()));
        assert_eq!(delivery.deduplication_id.as_deref(), Some("d"));
        assert_eq!((delivery.tag, delivery.assignment), (7, ASSIGNMENT));
        let sent = delivery.published_at.unwrap();
        let sent = sent.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(sent, Duration::from_millis(1_700_000_000_123));
    }

    #[test]
    fn groups_of_a_standard_queue_are_no_order() {
        let message = message("{}").attributes(Name::MessageGroupId, "g").build();

        assert_eq!(read(&message, STANDARD).order, Order::None);
    }

    /// Field case 077.
    #[test]
    fn an_encoded_body_is_decoded_and_its_mark_removed() {
        let mark = attribute("String").string_value(BASE64).build().unwrap();
        let message = message("AJ8=")
            .message_attributes(ENCODING_ATTRIBUTE, mark)
            .build();

        let delivery = read(&message, STANDARD);

        assert_eq!(delivery.payload.as_deref(), Some(&[0, 159][..]));
        assert!(delivery.headers.is_empty());
    }

    #[test]
    fn a_body_that_does_not_keep_its_promise_remains_as_it_came() {
        let mark = attribute("String").string_value(BASE64).build().unwrap();
        let message = message("{not base64}")
            .message_attributes(ENCODING_ATTRIBUTE, mark)
            .build();

        let delivery = read(&message, STANDARD);

        assert_eq!(delivery.payload.as_deref(), Some(&b"{not base64}"[..]));
        assert!(delivery.headers.get(ENCODING_ATTRIBUTE).is_some());
    }
}
