//! Events set aside.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use oneffect_core::{DeadLetter, Position, StoreError};

use crate::keys::columns;
use crate::retry::storable;
use crate::unit::SqliteUnit;

impl SqliteUnit {
    /// One statement a letter: there is no network between, and payloads need not be copied.
    pub(crate) async fn insert_letters(
        &mut self,
        letters: &[DeadLetter],
    ) -> Result<(), StoreError> {
        for letter in letters {
            let columns = letter.event.as_ref().map(columns);
            sqlx::query(include_str!("queries/set_aside.sql"))
                .bind(self.consumer.0)
                .bind(letter.source_key.as_slice())
                .bind(letter.kind.as_str())
                .bind(columns.as_ref().map(|(id, _)| id.as_slice()))
                .bind(columns.as_ref().map(|(_, tenant)| tenant.as_slice()))
                .bind(storable(letter.position.source()))
                .bind(log_position(letter).map(|log| log.0))
                .bind(log_position(letter).map(|log| log.1))
                .bind(message_id(letter))
                .bind(letter.key.as_deref())
                .bind(letter.payload.as_deref())
                .bind(letter.headers.to_json())
                .bind(letter.published_at.and_then(microseconds))
                .bind(letter.attempts)
                .bind(storable(&letter.error))
                .execute(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }
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
