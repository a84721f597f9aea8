//! The day that an event is of, which decides where its key is remembered.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::event_key::EventId;
use crate::store::StoreError;

/// A UTC day, by its number since 1970-01-01. It prints as `2026-12-01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(i32);

const SECONDS: i64 = 24 * 60 * 60;

impl Day {
    /// The day of that number: 0 is 1970-01-01.
    pub const fn from_number(days_since_epoch: i32) -> Self {
        Self(days_since_epoch)
    }

    /// How many days after 1970-01-01 it is.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The day of a moment, in milliseconds since 1970; also of one before.
    pub fn of_millis(millis: i64) -> Self {
        let day = millis.div_euclid(SECONDS * 1000);
        // 64 bits of milliseconds span more days than 32 bits count.
        Self(i32::try_from(day).unwrap_or(if day < 0 { i32::MIN } else { i32::MAX }))
    }

    /// The day of a moment.
    pub fn of(time: SystemTime) -> Self {
        let millis = |since: Duration| i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Self::of_millis(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after),
            // Rounded away from 1970, or the last part of a millisecond would be of the next day.
            Err(before) => -millis(before.duration() + Duration::from_nanos(999_999)),
        })
    }

    /// The day so many days later, or earlier.
    #[must_use]
    pub const fn plus(self, days: i32) -> Self {
        Self(self.0.saturating_add(days))
    }
}

/// Days from 0 March of a year that begins in March, where leap days come last: the usual way from
/// a day's number to its date (Howard Hinnant, "chrono-compatible low-level date algorithms").
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since_march_0000 = i64::from(self.0) + 719_468;
        let era = since_march_0000.div_euclid(146_097);
        let day_of_era = since_march_0000.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// Where the day of a consumer's events comes from. Every delivery of an event must give the same
/// answer, so it is kept with the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DaysFrom {
    /// From the time inside the event id ([`EventId::day`]); ids without one go to the open period.
    #[default]
    Id,
    /// From a time beside the id, which the user says the producer repeats with every sending.
    Producer,
}

impl DaysFrom {
    /// As stores keep it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Producer => "producer",
        }
    }

    /// For stores: refuses what is asked for when another answer is kept with the consumer.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`], which says what to do.
    pub fn check_against(self, kept: &str, consumer: &str) -> Result<(), StoreError> {
        let asked = self.as_str();
        if asked == kept {
            return Ok(());
        }
        Err(StoreError::misconfigured(format!(
            "the days of consumer {consumer:?} come from {kept:?}, as it was first opened, and now \
             {asked:?} is asked for: its events would be looked for under other days than they are \
             remembered by, and take effect again. Take the setting (`producer_repeats_time`) back, \
             or give the consumer another name, which makes every event new to it"
        )))
    }
}

/// Times inside ids count from this day on, 2010-01-01, up to [`LAST`], 2100-01-01: what lies
/// outside is no time but chance, as in random text that looks like a ULID. Fixed for ever, since
/// whether an id carries a time must not depend on when it is asked.
const FIRST: Day = Day(14_610);
const LAST: Day = Day(47_482);

impl EventId {
    /// The UTC day of the time inside the id, which is the same for every delivery: of a UUIDv7 in
    /// its canonical form, or of a ULID (26 characters, all in upper case or all in lower). `None`
    /// for all other ids, and for times before 2010 or from 2100 on.
    pub fn day(&self) -> Option<Day> {
        let millis = match self.as_uuid() {
            Some(uuid) if uuid.get_version_num() == 7 => {
                let mut millis = [0; 8];
                millis[2..].copy_from_slice(&uuid.as_bytes()[..6]);
                i64::from_be_bytes(millis)
            }
            Some(_) => return None,
            None => ulid_millis(self.as_text()?)?,
        };
        let day = Day::of_millis(millis);
        (FIRST <= day && day < LAST).then_some(day)
    }
}

/// The first ten of a ULID's 26 characters are a time: Crockford's base 32, without I, L, O, U.
fn ulid_millis(text: &str) -> Option<i64> {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bytes = text.as_bytes();
    let mixed =
        bytes.iter().any(u8::is_ascii_lowercase) && bytes.iter().any(u8::is_ascii_uppercase);
    if bytes.len() != 26 || mixed {
        return None;
    }
    let digit = |byte: &u8| {
        let byte = byte.to_ascii_uppercase();
        DIGITS.iter().position(|digit| *digit == byte)
    };
    let digits: Vec<usize> = bytes.iter().map(digit).collect::<Option<_>>()?;
    // 26 digits have two bits more than a ULID.
    if digits[0] > 7 {
        return None;
    }
    let time = digits[..10].iter();
    i64::try_from(time.fold(0_u64, |time, digit| (time << 5) | *digit as u64)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day_of(id: &str) -> Option<String> {
        EventId::new(id).unwrap().day().map(|day| day.to_string())
    }

    #[test]
    fn a_day_prints_as_its_date() {
        for (number, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (20_788, "2026-12-01"),
            (14_610, "2010-01-01"),
            (47_482, "2100-01-01"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(Day::from_number(number).to_string(), date);
        }
    }

    #[test]
    fn a_day_begins_at_midnight_utc() {
        assert_eq!(Day::of_millis(86_399_999), Day(0));
        assert_eq!(Day::of_millis(86_400_000), Day(1));
        assert_eq!(Day::of_millis(-1), Day(-1));
        assert_eq!(Day::of(UNIX_EPOCH - Duration::from_nanos(1)), Day(-1));
        assert_eq!(Day::of(UNIX_EPOCH + Duration::from_hours(24)), Day(1));
    }

    #[test]
    fn a_time_inside_the_id_gives_the_day() {
        // The examples of RFC 9562 and of the ULID specification.
        let date = Some("2022-02-22".to_owned());
        assert_eq!(day_of("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), date);
        let date = Some("2016-07-30".to_owned());
        assert_eq!(day_of("01ARZ3NDEKTSV4RRFFQ69G5FAV"), date);
        assert_eq!(day_of("01arz3ndektsv4rrffq69g5fav"), date);
    }

    #[test]
    fn other_ids_have_no_day_of_their_own() {
        for id in [
            "order-17",
            "919108f7-52d1-4320-9bac-f847db4148a8", // version 4
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", // another id than the lower-case one
            "00000000-0000-7000-8000-000000000000", // 1970
            "ffffffff-ffff-7fff-bfff-ffffffffffff", // far ahead
            "01ARZ3NDEKTSV4RRFFQ69G5FA",            // 25 characters
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",           // U is no digit
            "01arz3NDEKTSV4RRFFQ69G5FAV",           // neither case
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",           // more than 128 bits
            "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",           // far ahead
        ] {
            assert_eq!(day_of(id), None, "{id}");
        }
    }
}
