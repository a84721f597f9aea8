//! How large an inbox becomes, before anyone chooses its window.

use std::fmt;

use crate::event_key::{EventId, Tenant};

/// What an inbox has to remember.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InboxLoad {
    /// Events a second, on average.
    pub rate: f64,
    /// The window.
    pub days: u32,
    /// What their ids are like.
    pub ids: IdShape,
    /// Bytes of the tenant's name. Default: none.
    pub tenant: usize,
    /// Whether fingerprints are taken. Default: no.
    pub fingerprints: bool,
    /// Bytes of a reply. Default: none.
    pub reply: usize,
    /// Which share of the events has one, from 0 to 1. Default: all, where a reply has bytes.
    pub reply_share: f64,
}

/// What decides how many bytes an id takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdShape {
    /// As they are stored: a byte that tells of which kind they are, and 16 of a UUID or the text.
    pub bytes: usize,
    /// Whether ids come about in their own order, as those that begin with a time do. An index is
    /// fuller for those.
    pub ordered: bool,
    /// Whether each tells its own day.
    pub own_day: bool,
}

impl IdShape {
    /// UUIDs of version 7, in their canonical form.
    pub fn uuid_v7() -> Self {
        Self {
            bytes: 17,
            ordered: true,
            own_day: true,
        }
    }

    /// UUIDs of version 4, or any others without a time.
    pub fn uuid_v4() -> Self {
        Self {
            ordered: false,
            own_day: false,
            ..Self::uuid_v7()
        }
    }

    /// ULIDs.
    pub fn ulid() -> Self {
        Self {
            bytes: 27,
            ..Self::uuid_v7()
        }
    }

    /// Text of so many bytes, in no order.
    pub fn text(bytes: usize) -> Self {
        Self {
            bytes: bytes + 1,
            ..Self::uuid_v4()
        }
    }

    /// As an example of the producer's ids is. A text that is no UUID is taken to be in no order,
    /// unless it has a day of its own.
    pub fn like(id: &EventId) -> Self {
        let own_day = id.day().is_some();
        Self {
            bytes: id.to_bytes().len(),
            ordered: own_day,
            own_day,
        }
    }
}

impl InboxLoad {
    /// So many events a second, remembered for so many days.
    pub fn new(rate: f64, days: u32, ids: IdShape) -> Self {
        Self {
            rate,
            days,
            ids,
            tenant: 0,
            fingerprints: false,
            reply: 0,
            reply_share: 1.0,
        }
    }

    /// With a tenant whose name has so many bytes.
    #[must_use]
    pub fn tenant(mut self, bytes: usize) -> Self {
        self.tenant = bytes;
        self
    }

    /// With fingerprints.
    #[must_use]
    pub fn fingerprints(mut self) -> Self {
        self.fingerprints = true;
        self
    }

    /// With replies of so many bytes, for this share of the events (0 to 1).
    #[must_use]
    pub fn replies(mut self, bytes: usize, share: f64) -> Self {
        self.reply = bytes;
        self.reply_share = share.clamp(0.0, 1.0);
        self
    }

    /// What cannot be.
    ///
    /// # Errors
    /// With the number that is out of its range.
    pub fn validate(&self) -> Result<(), String> {
        if !self.rate.is_finite() || self.rate < 0.0 {
            return Err(format!("a rate of {} events a second cannot be", self.rate));
        }
        if self.ids.bytes < 2 || self.ids.bytes > EventId::MAX_LEN + 1 {
            return Err(format!(
                "an event id has 1 to {} bytes, not {}",
                EventId::MAX_LEN,
                self.ids.bytes.saturating_sub(1)
            ));
        }
        if self.tenant > Tenant::MAX_LEN {
            return Err(format!(
                "a tenant has up to {} bytes, not {}",
                Tenant::MAX_LEN,
                self.tenant
            ));
        }
        if !(0.0..=1.0).contains(&self.reply_share) {
            return Err(format!("a share of {} cannot be", self.reply_share));
        }
        Ok(())
    }
}

/// What one event takes in a store, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "stores make it, and it has no more parts"
)]
pub struct RowSize {
    /// Bytes in the table, with what it keeps out of line.
    pub table: f64,
    /// Bytes in all indexes together.
    pub index: f64,
}

/// How large an inbox becomes. It prints line by line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InboxSize {
    /// What it has to remember.
    pub load: InboxLoad,
    /// What one event takes.
    pub row: RowSize,
    /// For how many days events are there at most: what is forgotten goes a day or a period at a
    /// time.
    pub days_kept: u32,
}

impl InboxSize {
    /// For stores: what they say an event takes, and for how many days it is there at most.
    pub fn new(load: InboxLoad, row: RowSize, days_kept: u32) -> Self {
        Self {
            load,
            row,
            days_kept,
        }
    }

    /// Rows of a day.
    pub fn rows_a_day(&self) -> f64 {
        self.load.rate * 24.0 * 60.0 * 60.0
    }

    /// The most rows there are.
    pub fn rows(&self) -> f64 {
        self.rows_a_day() * f64::from(self.days_kept)
    }

    /// Bytes of a day, table and indexes.
    pub fn bytes_a_day(&self) -> f64 {
        self.rows_a_day() * (self.row.table + self.row.index)
    }

    /// The most bytes there are, table and indexes.
    pub fn bytes(&self) -> f64 {
        self.bytes_a_day() * f64::from(self.days_kept)
    }
}

impl fmt::Display for InboxSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InboxSize { load, row, .. } = self;
        let order = if load.ids.ordered {
            "in the order of time"
        } else {
            "in no order"
        };
        let day = if load.ids.own_day {
            "with a day of their own"
        } else {
            "without a day of their own"
        };
        write!(
            f,
            "{} events a second for {} days; ids of {} bytes {order}, {day}",
            load.rate, load.days, load.ids.bytes
        )?;
        if load.tenant > 0 {
            write!(f, "; tenants of {} bytes", load.tenant)?;
        }
        if load.fingerprints {
            write!(f, "; fingerprints")?;
        }
        if load.reply > 0 && load.reply_share > 0.0 {
            let share = load.reply_share * 100.0;
            write!(f, "; replies of {} bytes for {share} %", load.reply)?;
        }
        let kept = f64::from(self.days_kept);
        let rows = self.rows_a_day();
        writeln!(f)?;
        writeln!(
            f,
            "{:10}{:>14}{:>14}{:>14}",
            "",
            "an event",
            "a day",
            self.most()
        )?;
        writeln!(
            f,
            "{:10}{:>14}{:>14}{:>14}",
            "rows",
            1,
            Count(rows),
            Count(rows * kept)
        )?;
        for (name, bytes) in [
            ("table", row.table),
            ("indexes", row.index),
            ("together", row.table + row.index),
        ] {
            let (day, all) = (Bytes(bytes * rows), Bytes(bytes * rows * kept));
            writeln!(f, "{name:10}{:>14}{day:>14}{all:>14}", Bytes(bytes))?;
        }
        write!(
            f,
            "what is forgotten goes a day or a period at a time, so up to {} days are there",
            self.days_kept
        )
    }
}

impl InboxSize {
    fn most(&self) -> String {
        format!("{} days", self.days_kept)
    }
}

/// Bytes in units of a thousand.
struct Bytes(f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, &["B", "kB", "MB", "GB", "TB", "PB"]))
    }
}

/// A number of rows, to three digits.
struct Count(f64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(scaled(self.0, &["", "thousand", "million", "billion", "trillion"]).trim_end())
    }
}

fn scaled(number: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        // What would be rounded up to a thousand is one of the next.
        if number < 999.5 {
            break;
        }
        number /= 1000.0;
        unit = larger;
    }
    let digits = match number {
        n if n >= 99.95 || n.fract() == 0.0 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_to_three_digits() {
        for (number, text) in [
            (0.0, "0 B"),
            (117.4, "117 B"),
            (999.6, "1.00 kB"),
            (1_234.0, "1.23 kB"),
            (86_400_000.0, "86.4 MB"),
            (1.5e15, "1.50 PB"),
            (1.5e18, "1500 PB"),
        ] {
            assert_eq!(Bytes(number).to_string(), text);
        }
        assert_eq!(Count(86_400_000.0).to_string(), "86.4 million");
    }

    #[test]
    fn the_size_prints_line_by_line() {
        let load = InboxLoad::new(1000.0, 8, IdShape::uuid_v7()).replies(200, 0.3);
        let row = RowSize {
            table: 80.0,
            index: 48.0,
        };
        let printed = InboxSize::new(load, row, 9).to_string();
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(
            lines,
            [
                "1000 events a second for 8 days; ids of 17 bytes in the order of time, with a day \
                 of their own; replies of 200 bytes for 30 %",
                "                an event         a day        9 days",
                "rows                   1  86.4 million   778 million",
                "table               80 B       6.91 GB       62.2 GB",
                "indexes             48 B       4.15 GB       37.3 GB",
                "together           128 B       11.1 GB       99.5 GB",
                "what is forgotten goes a day or a period at a time, so up to 9 days are there",
            ]
        );
    }

    #[test]
    fn an_example_tells_what_ids_are_like() {
        let like = |id: &str| IdShape::like(&EventId::new(id).unwrap());
        assert_eq!(
            like("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
            IdShape::uuid_v7()
        );
        assert_eq!(
            like("919108f7-52d1-4320-9bac-f847db4148a8"),
            IdShape::uuid_v4()
        );
        assert_eq!(like("01ARZ3NDEKTSV4RRFFQ69G5FAV"), IdShape::ulid());
        assert_eq!(like("order-17"), IdShape::text(8));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = InboxLoad::new(1.0, 8, IdShape::uuid_v7());
        assert!(good.validate().is_ok());
        for bad in [
            InboxLoad { rate: -1.0, ..good },
            InboxLoad {
                rate: f64::NAN,
                ..good
            },
            InboxLoad {
                ids: IdShape::text(0),
                ..good
            },
            InboxLoad {
                ids: IdShape::text(5000),
                ..good
            },
            good.tenant(5000),
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
