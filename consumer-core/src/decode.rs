//! From the producer's bytes to the handler's event.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::delivery::Delivery;
use crate::handler::panic_message;

/// An event that can be read from a delivery.
///
/// Everything that serde can deserialize is read as JSON. A tombstone (no payload at all) reads as
/// JSON's `null`, so a handler that wants to see tombstones takes `Option<T>`; for any other type a
/// tombstone does not decode and is set aside. No bytes (a payload of length zero) never decode.
///
/// For raw bytes take [`Raw`]. For another format, implement this for your own type:
///
/// ```
/// use oneffect_core::{Decode, DecodeError, Delivery};
///
/// struct Reading { celsius: f32 }
///
/// impl Decode for Reading {
///     fn decode(delivery: &Delivery) -> Result<Self, DecodeError> {
///         let bytes = delivery.payload.as_deref().ok_or("a reading has no tombstones")?;
///         let bytes = bytes.try_into().map_err(|_| "a reading has four bytes")?;
///         Ok(Self { celsius: f32::from_be_bytes(bytes) })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a delivery",
    label = "not an event",
    note = "derive `serde::Deserialize` for it to read JSON, take `Raw` for the bytes as they are, or implement `Decode`"
)]
pub trait Decode: Sized + Send {
    /// Reads the event. What does not decode is set aside as a dead letter, and never tried again.
    ///
    /// # Errors
    /// Whatever says what is wrong with the bytes.
    fn decode(delivery: &Delivery) -> Result<Self, DecodeError>;
}

/// Decodes; a panic says that the bytes are not an event, as an error does.
pub(crate) fn decode<E: Decode>(delivery: &Delivery) -> Result<E, DecodeError> {
    catch_unwind(AssertUnwindSafe(|| E::decode(delivery))).unwrap_or_else(|panic| {
        Err(format!("decoding panicked: {}", panic_message(&*panic)).into())
    })
}

/// Why bytes are not an event; any error will do.
pub type DecodeError = Box<dyn Error + Send + Sync>;

impl<T: DeserializeOwned + Send> Decode for T {
    fn decode(delivery: &Delivery) -> Result<Self, DecodeError> {
        let bytes = delivery.payload.as_deref().unwrap_or(b"null");
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// The bytes as they are; `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Option<Bytes>);

impl Decode for Raw {
    fn decode(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(Self(delivery.payload.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{AssignmentId, Position};

    fn delivery(payload: Option<&'static [u8]>) -> Delivery {
        let position = Position::Queue {
            queue: "q".into(),
            message_id: "1".into(),
        };
        Delivery::new(
            position,
            AssignmentId(1),
            1,
            payload.map(Bytes::from_static),
        )
    }

    /// Field case 085.
    #[test]
    fn a_tombstone_is_none_and_an_empty_body_does_not_decode() {
        assert_eq!(
            Option::<u32>::decode(&delivery(Some(b"7"))).unwrap(),
            Some(7)
        );
        assert_eq!(Option::<u32>::decode(&delivery(None)).unwrap(), None);
        assert!(Option::<u32>::decode(&delivery(Some(b""))).is_err());
        assert!(u32::decode(&delivery(None)).is_err());
    }

    #[test]
    fn raw_tells_null_from_empty() {
        assert_eq!(Raw::decode(&delivery(None)).unwrap(), Raw(None));
        assert_eq!(
            Raw::decode(&delivery(Some(b""))).unwrap(),
            Raw(Some(Bytes::new()))
        );
    }
}
