//! How long something is, as a person reads it.

use std::fmt;
use std::time::Duration;

/// Prints a duration in its two largest units: `7 d`, `14 d 1 h`, `3 h 10 min`, `250 ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const UNITS: [(u128, &str); 5] = [
    (24 * 60 * 60 * 1000, "d"),
    (60 * 60 * 1000, "h"),
    (60 * 1000, "min"),
    (1000, "s"),
    (1, "ms"),
];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_millis();
        let mut parts = Vec::new();
        for (unit, name) in UNITS {
            // Beside days, hours and minutes the milliseconds do not matter.
            let matters = unit > 1 || self.0 < Duration::from_mins(1);
            if left >= unit && parts.len() < 2 && matters {
                parts.push(format!("{} {name}", left / unit));
                left %= unit;
            }
        }
        if parts.is_empty() {
            parts.push("0 s".to_owned());
        }
        f.pad(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_largest_units_are_told() {
        for (millis, text) in [
            (0, "0 s"),
            (250, "250 ms"),
            (59_999, "59 s 999 ms"),
            (11_400_000, "3 h 10 min"),
            (604_800_000, "7 d"),
            (604_800_000 + 59_000, "7 d 59 s"),
            (604_800_000 + 59, "7 d"),
            (1_213_200_000 + 59_000, "14 d 1 h"),
        ] {
            assert_eq!(Span(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(format!("{:6}|", Span(Duration::from_secs(1))), "1 s   |");
    }
}
