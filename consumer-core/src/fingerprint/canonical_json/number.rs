//! Numbers, by their text alone: no digit is lost in a double.

use std::fmt::Write;
use std::iter::repeat_n;

/// A number as JSON writes it, taken apart.
///
/// RFC 8785 reads a number into a double and prints the shortest digits that give the same double.
/// Where a number *is* such digits, printing them by the same rules gives the RFC's text; where it
/// is not, the RFC loses digits, and this does not. Either way the canonical text depends on the
/// decimal value and on nothing else.
#[derive(Debug)]
pub(super) struct Number<'j> {
    literal: &'j str,
    negative: bool,
    whole: &'j str,
    fraction: &'j str,
    exponent: Exponent,
}

#[derive(Clone, Copy, Debug)]
enum Exponent {
    None,
    Given(i64),
    /// More digits than anybody computes with.
    Immense,
}

impl<'j> Number<'j> {
    /// A number from the front of a text, and what follows it.
    pub(super) fn read(text: &'j str) -> Option<(Self, &'j str)> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, rest) = digits(rest)?;
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest)?,
            None => ("", rest),
        };
        let (exponent, rest) = match rest.strip_prefix(['e', 'E']) {
            Some(rest) => read_exponent(rest)?,
            None => (Exponent::None, rest),
        };
        let number = Self {
            literal: &text[..text.len() - rest.len()],
            negative,
            whole,
            fraction,
            exponent,
        };
        Some((number, rest))
    }

    pub(super) fn write(&self, out: &mut String) {
        let plain = self.fraction.is_empty() && matches!(self.exponent, Exponent::None);
        if plain && self.whole.len() <= LONGEST && self.whole != "0" {
            out.push_str(self.literal);
            return;
        }
        let all = [self.whole, self.fraction].concat();
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            out.push('0'); // minus nought as well
            return;
        }
        let exponent = match self.exponent {
            Exponent::None => 0,
            Exponent::Given(exponent) => exponent,
            Exponent::Immense => {
                out.push_str(self.literal);
                return;
            }
        };
        let leading_zeros = all.len() - digits.len();
        // The value is 0.digits times ten to the power of `point`. Lengths are far below 2^62, and a
        // given exponent has at most 18 digits.
        let shift = self.whole.len().cast_signed() - leading_zeros.cast_signed();
        let point = exponent + shift as i64;
        if self.negative {
            out.push('-');
        }
        write_decimal(out, digits.trim_end_matches('0'), point);
    }
}

/// Whole numbers of up to so many digits are written without an exponent.
const LONGEST: usize = 21;

/// As ECMAScript's `Number::toString` lays it out, which is the RFC's rule.
fn write_decimal(out: &mut String, digits: &str, point: i64) {
    match usize::try_from(point) {
        Ok(whole @ 1..=LONGEST) if digits.len() <= whole => {
            out.push_str(digits);
            out.extend(repeat_n('0', whole - digits.len()));
        }
        Ok(whole @ 1..=LONGEST) => {
            let (whole, fraction) = digits.split_at(whole);
            out.push_str(whole);
            out.push('.');
            out.push_str(fraction);
        }
        _ if (-5..=0).contains(&point) => {
            out.push_str("0.");
            out.extend((point..0).map(|_| '0'));
            out.push_str(digits);
        }
        _ => {
            let (first, others) = digits.split_at(1);
            out.push_str(first);
            if !others.is_empty() {
                out.push('.');
                out.push_str(others);
            }
            // Writing to a string cannot fail.
            let _ = write!(out, "e{:+}", point - 1);
        }
    }
}

/// One digit or more.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// What follows an `e`.
fn read_exponent(text: &str) -> Option<(Exponent, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, rest) = digits(unsigned)?;
    let digits = digits.trim_start_matches('0');
    let exponent = match digits.len() {
        0 => Exponent::Given(0),
        1..=18 => {
            let size: i64 = digits.parse().ok()?;
            Exponent::Given(if text.starts_with('-') { -size } else { size })
        }
        _ => Exponent::Immense,
    };
    Some((exponent, rest))
}
