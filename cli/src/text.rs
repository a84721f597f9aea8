//! How things look to people.

use std::fmt::{self, Display, Write as _};
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Text from elsewhere, without what a terminal would obey: a producer may put escape sequences
/// into ids, errors and payloads.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Marks that turn the direction of writing, with which one text passes for another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The same, cut to so many characters, the cut marked.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => plain(text),
        Some((end, _)) => format!("{} ..", plain(&text[..end])),
    }
}

/// A thing and what is known of it, a line each.
#[derive(Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    pub(crate) fn headed(heading: &str) -> Self {
        Self(format!("{heading}\n"))
    }

    /// A name and its value. Writing to a String does not fail.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name:12} {value}");
    }

    /// Text of several lines, as the rest of the field before it.
    pub(crate) fn block(&mut self, text: &str) {
        for line in text.lines() {
            self.field("", plain(line));
        }
    }
}

impl Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bytes: text where they are text, else hexadecimal digits; cut to `most` characters.
pub(crate) fn bytes(bytes: &[u8], most: usize) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => cut(text, most),
        Err(_) => cut(&format!("hex {}", hex(bytes)), most),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A moment in UTC, to the millisecond: `2026-12-01T14:50:24.123Z`.
pub(crate) fn moment(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let millis = match since {
        Ok(after) => i128::try_from(after.as_millis()).unwrap_or(i128::MAX),
        Err(before) => {
            i128::try_from(before.duration().as_millis()).map_or(i128::MIN, |millis| -millis)
        }
    };
    let time = OffsetDateTime::from_unix_timestamp_nanos(millis.saturating_mul(1_000_000));
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{millis} ms since 1970"))
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the largest unit of which there is at least one: `12.3 MiB`.
#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = bytes as f64;
    let mut name = None;
    for unit in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        name = Some(unit);
    }
    name.map_or_else(|| format!("{bytes} B"), |unit| format!("{size:.1} {unit}"))
}

/// Columns as wide as what stands in them; the first row is the heading. Columns whose name ends in
/// a `>` are of numbers, and stand to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let Some(heading) = rows.first() else {
        return String::new();
    };
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.trim_end_matches('>').chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, name), width) in row.iter().zip(heading).zip(&widths) {
            let cell = cell.trim_end_matches('>');
            let _ = if name.ends_with('>') {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_a_producer_wrote() {
        let hostile = "a\u{1b}[2J\u{7}b\u{202e}c\nd\u{e9}";
        assert_eq!(plain(hostile), "a\\u{1b}[2J\\u{7}b\\u{202e}c\\nd\u{e9}");
        assert_eq!(bytes(b"\x1b]0;x", 100), "\\u{1b}]0;x");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_digits() {
        assert_eq!(bytes(&[0xff, 0], 100), "hex ff00");
        assert_eq!(bytes("\u{e9}\u{e9}\u{e9}".as_bytes(), 2), "\u{e9}\u{e9} ..");
    }

    #[test]
    fn a_moment_is_in_utc() {
        let millis = Duration::from_millis(1_764_600_624_123);
        assert_eq!(
            moment(SystemTime::UNIX_EPOCH + millis),
            "2025-12-01T14:50:24.123Z"
        );
        assert_eq!(moment(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(
            moment(SystemTime::UNIX_EPOCH - Duration::from_millis(1)),
            "1969-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn numbers_are_readable() {
        let read = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(read, ["0", "999", "1,000", "1,234,567"]);
        let read = [0, 1023, 1024, 1 << 20, 3 << 29, u64::MAX].map(size);
        assert_eq!(
            read,
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.5 GiB", "16.0 EiB"]
        );
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let rows = [["day", "rows>"], ["2026-12-01", "7"], ["x", "1234567"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&rows),
            "day            rows\n2026-12-01        7\nx           1234567\n"
        );
    }
}
