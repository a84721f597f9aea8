//! What a handler leaves for those who ask again.

use bytes::Bytes;
use serde::Serialize;

/// A handler's reply, stored with the event's outcome: every repeat of the event gets the same
/// bytes, digit for digit, however the code that made them changes meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Result<Bytes, Box<str>>);

impl Reply {
    /// Bytes as they are.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self(Ok(bytes.into()))
    }

    /// A value as JSON. One that JSON cannot express (a map whose keys are no text, a `Serialize`
    /// of its own that fails) makes a reply that cannot be stored; see
    /// [`done_with`](crate::done_with).
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        let json = serde_json::to_vec(value);
        Self(
            json.map(Bytes::from)
                .map_err(|error| error.to_string().into()),
        )
    }

    /// The bytes, if there are any and they are not too many.
    pub(crate) fn within(self, limit: usize) -> Result<Bytes, Unstorable> {
        match self.0 {
            Ok(bytes) if bytes.len() <= limit => Ok(bytes),
            Ok(bytes) => Err(Unstorable::TooLarge {
                len: bytes.len(),
                limit,
            }),
            Err(error) => Err(Unstorable::Unserialisable(error)),
        }
    }
}

/// Why a reply cannot be stored; no retry mends it.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unstorable {
    #[error("the reply has {len} bytes, more than the {limit} of the consumer's reply_limit")]
    TooLarge { len: usize, limit: usize },
    #[error("the reply cannot be serialised: {0}")]
    Unserialisable(Box<str>),
}

/// What [`done_with`](crate::done_with) takes: a [`Reply`], or anything that serde can serialise,
/// which becomes JSON. Mind that bytes (`Vec<u8>`, `&[u8]`) are to serde a list of numbers: use
/// [`Reply::bytes`] for them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a reply",
    label = "not a reply",
    note = "derive `serde::Serialize` for it to reply with JSON, or use `Reply::bytes`"
)]
pub trait IntoReply {
    /// The reply.
    fn into_reply(self) -> Reply;
}

impl IntoReply for Reply {
    fn into_reply(self) -> Reply {
        self
    }
}

impl<T: Serialize> IntoReply for T {
    fn into_reply(self) -> Reply {
        Reply::json(&self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_value_becomes_json_and_bytes_stay_bytes() {
        let json = (9_007_199_254_740_993_u64, "\u{e9}").into_reply();
        assert_eq!(
            json.within(100).unwrap(),
            "[9007199254740993,\"\u{e9}\"]".as_bytes()
        );
        let bytes = Reply::bytes(vec![0, 255]).into_reply();
        assert_eq!(bytes.within(100).unwrap(), &[0, 255][..]);
    }

    #[test]
    fn the_limit_is_the_last_length_that_fits() {
        let reply = || Reply::bytes(vec![0; 10]);
        assert_eq!(reply().within(10).unwrap().len(), 10);
        let error = reply().within(9).unwrap_err().to_string();
        assert!(error.contains("10 bytes") && error.contains('9'), "{error}");
    }

    #[test]
    fn what_json_cannot_express_cannot_be_stored() {
        let no_text = BTreeMap::from([((1, 2), 3)]);
        let error = no_text.into_reply().within(100).unwrap_err();
        assert!(matches!(error, Unstorable::Unserialisable(_)));
    }
}
