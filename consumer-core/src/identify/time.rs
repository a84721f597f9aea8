//! The time that a producer repeats with every sending of an event.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::day::Day;
use crate::delivery::Delivery;
use crate::handler::panic_message;
use crate::json_pointer::{JsonPointer, Scalar};

/// Where an event's own time stands, beside its id. Used for nothing but its UTC day, under which
/// the event is remembered; see
/// [`Consumer::producer_repeats_time`](crate::Consumer::producer_repeats_time), which says when that
/// is right.
///
/// In headers and in JSON, a time is text as in RFC 3339 (`2026-12-01T10:00:00Z`, with any offset),
/// or a whole number, in digits or as a JSON number, of seconds since 1970, or of milliseconds from
/// 100,000,000,000 on (seconds reach that in the year 5138, milliseconds reached it in 1973). Numbers
/// of 100,000,000,000,000 and more, which count microseconds or less, are not readable.
///
/// The broker's own timestamp is no choice: it is of one sending, and a repeat has another.
#[derive(Clone)]
pub struct TimeFrom(Place);

#[derive(Clone)]
enum Place {
    Header(Box<str>),
    Json(JsonPointer, Box<str>),
    CloudEvent,
    Closure(Arc<Closure>),
    /// A pointer that does not parse: refused when the consumer starts.
    Unusable(String),
}

type Closure = dyn Fn(&Delivery) -> Option<SystemTime> + Send + Sync;

impl TimeFrom {
    /// From a header or message attribute; of several with that name the last counts.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self(Place::Header(name.into()))
    }

    /// From the JSON payload, at a pointer such as `/occurred_at`.
    pub fn json_pointer(pointer: &str) -> Self {
        Self(
            JsonPointer::parse(pointer).map_or_else(Place::Unusable, |parsed| {
                Place::Json(parsed, pointer.into())
            }),
        )
    }

    /// From a CloudEvent's `time`: the header `ce_time` (or `ce-time`), else `time` in the JSON
    /// envelope.
    pub fn cloud_event() -> Self {
        Self(Place::CloudEvent)
    }

    /// From anywhere; `None` is an event without a readable time.
    pub fn closure(find: impl Fn(&Delivery) -> Option<SystemTime> + Send + Sync + 'static) -> Self {
        Self(Place::Closure(Arc::new(find)))
    }

    /// What is wrong with the setting itself.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if let Place::Unusable(reason) = &self.0 {
            return Err(reason.clone());
        }
        Ok(())
    }

    /// The day that an event is of.
    pub(crate) fn find(&self, delivery: &Delivery) -> Result<Day, Untimed> {
        let text = match &self.0 {
            Place::Closure(find) => {
                return catch_unwind(AssertUnwindSafe(|| find(delivery)))
                    .map_err(|panic| Untimed::Panicked(panic_message(&*panic).into()))?
                    .map(Day::of)
                    .ok_or_else(|| Untimed::Missing("the closure's answer".into()));
            }
            Place::Header(name) => header(delivery, name)?
                .ok_or_else(|| Untimed::Missing(format!("header {name:?}")))?,
            Place::Json(pointer, text) => json(delivery, pointer)?
                .ok_or_else(|| Untimed::Missing(format!("{text:?} in the payload")))?,
            Place::CloudEvent => cloud_event(delivery)?.ok_or_else(|| {
                let places = "header \"ce_time\", or \"time\" in the JSON envelope";
                Untimed::Missing(format!("the CloudEvent's time: {places}"))
            })?,
            Place::Unusable(reason) => return Err(Untimed::Missing(reason.clone())),
        };
        day_of(&text).ok_or_else(|| Untimed::unreadable(&text))
    }
}

impl fmt::Debug for TimeFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Header(name) => write!(f, "TimeFrom({name:?})"),
            Place::Json(pointer, _) => write!(f, "TimeFrom({pointer:?})"),
            Place::CloudEvent => f.write_str("TimeFrom(CloudEvent)"),
            Place::Closure(_) => f.write_str("TimeFrom(closure)"),
            Place::Unusable(reason) => write!(f, "TimeFrom({reason})"),
        }
    }
}

/// Why an event has no day although its producer repeats a time; the text is its dead letter's
/// error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untimed {
    #[error("no time, which `producer_repeats_time` promises: looked at {0}")]
    Missing(String),
    #[error("no readable time: the payload is not JSON")]
    NotJson(#[from] serde_json::Error),
    #[error(
        "no readable time: {0} is neither text as in RFC 3339 nor a whole number of seconds or \
         milliseconds since 1970"
    )]
    Unreadable(String),
    #[error("no time: looking for it panicked: {0}")]
    Panicked(Box<str>),
}

impl Untimed {
    /// It may be anything, of any length.
    fn unreadable(text: &str) -> Self {
        Self::Unreadable(format!("{:?}", &text[..text.floor_char_boundary(64)]))
    }
}

fn header(delivery: &Delivery, name: &str) -> Result<Option<String>, Untimed> {
    let Some(bytes) = delivery.headers.get(name) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| Untimed::Unreadable("a header that is not UTF-8".into()))?;
    Ok(Some(text.into()))
}

fn json(delivery: &Delivery, pointer: &JsonPointer) -> Result<Option<String>, Untimed> {
    let Some(payload) = &delivery.payload else {
        return Ok(None);
    };
    match pointer.find(payload)? {
        Some(Scalar::Text(text) | Scalar::Integer(text)) => Ok(Some(text)),
        Some(Scalar::Other(what)) => Err(Untimed::Unreadable(what.into())),
        None => Ok(None),
    }
}

fn cloud_event(delivery: &Delivery) -> Result<Option<String>, Untimed> {
    for name in ["ce_time", "ce-time"] {
        if let Some(found) = header(delivery, name)? {
            return Ok(Some(found));
        }
    }
    let pointer = JsonPointer::parse("/time").map_err(Untimed::Missing)?;
    json(delivery, &pointer)
}

/// Numbers from here on are milliseconds.
const MILLIS: i64 = 100_000_000_000;

fn day_of(text: &str) -> Option<Day> {
    if let Ok(number) = text.parse::<i64>() {
        return match number.checked_abs()? {
            0..MILLIS => Some(Day::of_millis(number * 1000)),
            MILLIS..100_000_000_000_000 => Some(Day::of_millis(number)),
            _ => None,
        };
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(Day::of_millis(time.unix_timestamp() * 1000))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::delivery::{AssignmentId, Position};

    fn delivery(payload: &'static str) -> Delivery {
        let position = Position::Log {
            topic: "t".into(),
            partition: 0,
            offset: 0,
        };
        let payload = Bytes::from_static(payload.as_bytes());
        Delivery::new(position, AssignmentId(1), 0, Some(payload))
    }

    fn text(found: Result<Day, Untimed>) -> String {
        found.map_or_else(|error| error.to_string(), |day| day.to_string())
    }

    #[test]
    fn text_and_numbers_give_the_utc_day() {
        for (written, day) in [
            ("2026-12-01T23:59:59.999Z", "2026-12-01"),
            ("2026-12-02T00:00:00Z", "2026-12-02"),
            // Midnight is where UTC has it, not where the producer is.
            ("2026-12-02T00:30:00+01:00", "2026-12-01"),
            ("2026-12-01T23:30:00-05:00", "2026-12-02"),
            // Both nights in which Europe changes its clocks.
            ("2026-03-29T01:30:00+01:00", "2026-03-29"),
            ("2026-10-25T00:30:00+02:00", "2026-10-24"),
            ("2026-12-01t10:00:00z", "2026-12-01"),
            ("1796083199", "2026-11-30"),
            ("1796083200", "2026-12-01"),
            ("1796083199999", "2026-11-30"),
            ("1796083200000", "2026-12-01"),
            ("0", "1970-01-01"),
            ("-1", "1969-12-31"),
            ("0001-01-01T00:00:00Z", "0001-01-01"),
        ] {
            assert_eq!(day_of(written).unwrap().to_string(), day, "{written}");
        }
    }

    #[test]
    fn what_is_no_time_has_no_day() {
        for written in [
            "",
            "2026-12-01",
            "2026-12-01T10:00:00",
            "yesterday",
            "1796083200.5",
            "1796083200000000",
            "2026-13-01T00:00:00Z",
            "99999999999999999999",
            "-9223372036854775808",
        ] {
            assert_eq!(day_of(written), None, "{written}");
        }
    }

    #[test]
    fn each_place_is_looked_at_and_named_when_nothing_is_there() {
        let json = delivery(r#"{"at":1796083200000,"time":"2026-12-01T10:00:00Z","odd":{}}"#);
        let mut headers = delivery("no JSON");
        headers.headers.push("ce_time", Some("1796083200".into()));
        let at = |pointer: &str| TimeFrom::json_pointer(pointer);
        let closure = TimeFrom::closure(|_| Some(SystemTime::UNIX_EPOCH));
        for (from, delivery, found) in [
            (at("/at"), &json, "2026-12-01"),
            (TimeFrom::cloud_event(), &json, "2026-12-01"),
            (TimeFrom::cloud_event(), &headers, "2026-12-01"),
            (TimeFrom::header("ce_time"), &headers, "2026-12-01"),
            (closure, &json, "1970-01-01"),
            (at("/none"), &json, "looked at \"/none\" in the payload"),
            (at("/odd"), &json, "an object is neither"),
            (at("/at"), &headers, "not JSON"),
            (TimeFrom::header("x"), &json, "looked at header \"x\""),
            (TimeFrom::closure(|_| None), &json, "the closure's answer"),
            (TimeFrom::closure(|_| panic!("oh")), &json, "panicked: oh"),
        ] {
            let told = text(from.find(delivery));
            assert!(told.contains(found), "{from:?}: {told}");
        }
        assert!(at("x").validate().is_err());
    }
}
