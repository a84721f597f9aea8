//! Bodies that SQS would refuse, and how they travel.
//!
//! SQS takes a body only as text in which every character is one that XML 1.0 allows, and refuses
//! the whole message otherwise, for ever. Bytes are bytes to us, so what does not fit is sent as
//! base64 with a message attribute that says so, and decoded by the source.

use bytes::Bytes;

/// The message attribute (of type `String`) that tells how a body was encoded.
pub const ENCODING_ATTRIBUTE: &str = "oneffect-encoding";

/// The value of [`ENCODING_ATTRIBUTE`] for a body in base64.
pub const BASE64: &str = "base64";

/// A payload as a message body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBody {
    /// What to send as the message's body.
    pub text: String,
    /// What to send as the attribute [`ENCODING_ATTRIBUTE`]; `None`: do not send that attribute.
    pub encoding: Option<&'static str>,
}

/// Makes a message body of any bytes: as they are where SQS takes them, in base64 otherwise.
///
/// Base64 makes a payload a third longer; the sender has to mind the queue's limit on size.
///
/// ```
/// let plain = oneffect_sqs::encode_body(b"{\"id\":1}");
/// assert_eq!((plain.text.as_str(), plain.encoding), ("{\"id\":1}", None));
///
/// let binary = oneffect_sqs::encode_body(&[0, 159]);
/// assert_eq!((binary.text.as_str(), binary.encoding), ("AJ8=", Some("base64")));
/// ```
pub fn encode_body(payload: &[u8]) -> EncodedBody {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.is_empty() && text.chars().all(is_allowed) => EncodedBody {
            text: text.to_owned(),
            encoding: None,
        },
        _ => EncodedBody {
            text: match aws_smithy_types::base64::encode(payload) {
                // SQS refuses an empty body as well. White space is nothing in base64.
                empty if empty.is_empty() => " ".to_owned(),
                text => text,
            },
            encoding: Some(BASE64),
        },
    }
}

/// What [`encode_body`] was given, if `text` is what it returned as base64.
pub(crate) fn decode_base64(text: &str) -> Option<Bytes> {
    let decoded = aws_smithy_types::base64::decode(text.trim_ascii()).ok()?;
    Some(decoded.into())
}

/// Whether SQS takes the character: "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD |
/// #x10000 to #x10FFFF", by the documentation of `SendMessage`.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(body: &EncodedBody) -> Bytes {
        match body.encoding {
            None => Bytes::from(body.text.clone()),
            Some(_) => decode_base64(&body.text).unwrap(),
        }
    }

    #[test]
    fn what_sqs_takes_is_sent_as_it_is() {
        for text in ["{\"id\": 1}", "\ttabs\r\n", "caf\u{e9} \u{1f980}", " "] {
            let body = encode_body(text.as_bytes());

            assert_eq!(body.text, text);
            assert_eq!(body.encoding, None);
        }
    }

    /// Field case 077.
    #[test]
    fn what_sqs_refuses_is_sent_as_base64() {
        let control = [0x00, 0x01, 0x08, 0x0b, 0x0c, 0x0e, 0x1f];
        let refused: [&[u8]; 5] = [
            b"",
            &control,
            "\u{fffe}".as_bytes(),
            "\u{ffff}".as_bytes(),
            &[0xff],
        ];
        for payload in refused {
            let body = encode_body(payload);

            assert_eq!(body.encoding, Some(BASE64), "{payload:?}");
            assert!(!body.text.is_empty());
            assert_eq!(&decoded(&body)[..], payload);
        }
    }

    #[test]
    fn a_body_marked_base64_that_is_none_is_told_apart() {
        assert_eq!(decode_base64("not base64!"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_and_travel_in_allowed_characters(
            payload in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let body = encode_body(&payload);

            prop_assert!(!body.text.is_empty() && body.text.chars().all(is_allowed));
            prop_assert_eq!(&decoded(&body)[..], &payload[..]);
        }
    }
}
