//! Events set aside.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use oneffect_core::{DeadLetter, Position, StoreError};

use crate::keys::columns;
use crate::retry::storable;
use crate::unit::PostgresUnit;

impl PostgresUnit {
    pub(crate) async fn insert_letters(
        &mut self,
        letters: &[DeadLetter],
    ) -> Result<(), StoreError> {
        // One statement cannot touch a row twice, and a queue may hand out one unreadable message
        // twice in a batch.
        let mut distinct: BTreeMap<[u8; 32], (&DeadLetter, i32)> = BTreeMap::new();
        for letter in letters {
            distinct.entry(letter.source_key).or_insert((letter, 0)).1 += 1;
        }
        let letters: Vec<(&DeadLetter, i32)> = distinct.into_values().collect();
        let transaction_ids: Vec<String> =
            sqlx::query_scalar(include_str!("queries/set_aside.sql"))
                .bind(column(&letters, |letter| letter.source_key.to_vec()))
                .bind(column(&letters, |letter| letter.kind.as_str()))
                .bind(column(&letters, |letter| {
                    letter.event.as_ref().map(|event| columns(event).0)
                }))
                .bind(column(&letters, |letter| {
                    letter.event.as_ref().map(|event| columns(event).1)
                }))
                .bind(column(&letters, |letter| {
                    storable(letter.position.source())
                }))
                .bind(column(&letters, |letter| {
                    log_position(letter).map(|log| log.0)
                }))
                .bind(column(&letters, |letter| {
                    log_position(letter).map(|log| log.1)
                }))
                .bind(column(&letters, message_id))
                .bind(column(&letters, |letter| letter.key.as_deref()))
                .bind(column(&letters, |letter| letter.payload.as_deref()))
                .bind(column(&letters, |letter| letter.headers.to_json()))
                .bind(column(&letters, |letter| {
                    letter.published_at.and_then(microseconds)
                }))
                .bind(letters.iter().map(|(_, times)| *times).collect::<Vec<_>>())
                .bind(column(&letters, |letter| {
                    i32::try_from(letter.attempts).unwrap_or(i32::MAX)
                }))
                .bind(column(&letters, |letter| storable(&letter.error)))
                .bind(self.consumer.0)
                .persistent(self.named)
                .fetch_all(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        if self.transaction_id.is_none() {
            self.transaction_id = transaction_ids.into_iter().next();
        }
        Ok(())
    }
}

fn column<'l, T>(letters: &[(&'l DeadLetter, i32)], value: impl Fn(&'l DeadLetter) -> T) -> Vec<T> {
    letters.iter().map(|(letter, _)| value(letter)).collect()
}

fn log_position(letter: &DeadLetter) -> Option<(i32, i64)> {
    if let Position::Log {
        partition, offset, ..
    } = letter.position
    {
        Some((partition, offset))
    } else {
        None
    }
}

fn message_id(letter: &DeadLetter) -> Option<String> {
    if let Position::Queue { message_id, .. } = &letter.position {
        Some(storable(message_id))
    } else {
        None
    }
}

/// Microseconds since 1970. Producers may stamp anything, and a letter that cannot be written would
/// hold its lane for ever: what no calendar has is left out.
fn microseconds(time: SystemTime) -> Option<i64> {
    const YEARS_1_TO_9999: Range<i128> = -62_135_596_800_000_000..253_402_300_800_000_000;
    let micros = |duration: Duration| i128::try_from(duration.as_micros()).ok();
    let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since)?,
        Err(before) => -micros(before.duration())?,
    };
    let micros = YEARS_1_TO_9999.contains(&micros).then_some(micros)?;
    i64::try_from(micros).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_calendar_has_is_left_out() {
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_secs(1);
        assert_eq!(microseconds(epoch + second), Some(1_000_000));
        assert_eq!(microseconds(epoch - second), Some(-1_000_000));
        // What a producer gets that stamps microseconds as if they were milliseconds.
        let absurd = Duration::from_millis(1_764_590_400_000_123);
        assert_eq!(microseconds(epoch + absurd), None);
        assert_eq!(microseconds(epoch - absurd), None);
    }
}
