//! One text for all JSON texts that say the same: RFC 8785, with all digits of numbers kept.

mod number;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;
use std::ops::Range;

use self::number::Number;

/// The canonical form; `None` for what is not JSON (RFC 8259) of valid Unicode.
///
/// It is written while the text is read, so it takes no more memory than the text, and the names
/// of the objects that are open.
pub(super) fn canonical(json: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(json).ok()?;
    let mut reader = Reader {
        rest: text,
        out: String::with_capacity(text.len()),
    };
    reader.value(MAX_DEPTH)?;
    reader.rest.is_empty().then_some(reader.out)
}

/// As deep as `serde_json` reads: what is deeper would not reach a handler either.
const MAX_DEPTH: usize = 127;

struct Reader<'j> {
    /// What has not been read yet.
    rest: &'j str,
    out: String,
}

/// A member of an object that has been written.
struct Member<'j> {
    name: Cow<'j, str>,
    /// Where it stands, its comma included.
    written: Range<usize>,
}

impl<'j> Reader<'j> {
    /// One value, and the white space around it.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_space();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth.checked_sub(1)?)?,
            b'[' => self.array(depth.checked_sub(1)?)?,
            b'"' => {
                let text = self.string()?;
                write_string(&mut self.out, &text);
            }
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => {
                let (number, rest) = Number::read(self.rest)?;
                self.rest = rest;
                number.write(&mut self.out);
            }
        }
        self.skip_space();
        Some(())
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        self.out.push_str(literal);
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.expect('[')?;
        self.out.push('[');
        self.skip_space();
        if !self.take(']') {
            self.value(depth)?;
            while !self.take(']') {
                self.expect(',')?;
                self.out.push(',');
                self.value(depth)?;
            }
        }
        self.out.push(']');
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.expect('{')?;
        self.out.push('{');
        let begin = self.out.len();
        let mut members = Vec::new();
        self.skip_space();
        if !self.take('}') {
            members.push(self.member(depth)?);
            while !self.take('}') {
                self.expect(',')?;
                members.push(self.member(depth)?);
            }
        }
        if !members.is_sorted_by(|a, b| by_name(a, b).is_le()) {
            // A stable sort: repeated names stay in their order.
            members.sort_by(by_name);
            let unsorted = self.out.split_off(begin);
            for Member { written, .. } in &members {
                self.out
                    .push_str(&unsorted[written.start - begin..written.end - begin]);
            }
        }
        if !members.is_empty() {
            self.out.pop(); // the last comma
        }
        self.out.push('}');
        Some(())
    }

    fn member(&mut self, depth: usize) -> Option<Member<'j>> {
        let begin = self.out.len();
        self.skip_space();
        let name = self.string()?;
        write_string(&mut self.out, &name);
        self.skip_space();
        self.expect(':')?;
        self.out.push(':');
        self.value(depth)?;
        self.out.push(',');
        Some(Member {
            name,
            written: begin..self.out.len(),
        })
    }

    /// What a string says; borrowed, unless it has escapes.
    fn string(&mut self) -> Option<Cow<'j, str>> {
        self.expect('"')?;
        let mut unescaped = None;
        loop {
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..=0x1f);
            let end = self.rest.as_bytes().iter().position(special)?;
            let (plain, rest) = self.rest.split_at(end);
            self.rest = rest;
            if self.take('"') {
                return Some(match unescaped {
                    None => plain.into(),
                    Some(text) => Cow::Owned(text + plain),
                });
            }
            // Whatever else is special but a backslash may not stand in a string.
            self.expect('\\')?;
            let text = unescaped.get_or_insert_with(String::new);
            text.push_str(plain);
            text.push(self.escaped()?);
        }
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let escape = chars.next()?;
        self.rest = chars.as_str();
        Some(match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => self.code_point()?,
            _ => return None,
        })
    }

    /// The digits of `\u`, and those of the second `\u` where two make one character. Half of one is
    /// no text.
    fn code_point(&mut self) -> Option<char> {
        let unit = self.code_unit()?;
        let Err(half) = char::decode_utf16([unit]).next()? else {
            return char::from_u32(unit.into());
        };
        self.rest = self.rest.strip_prefix("\\u")?;
        let units = [half.unpaired_surrogate(), self.code_unit()?];
        char::decode_utf16(units).next()?.ok()
    }

    fn code_unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None; // a sign, which the standard library would take
        }
        self.rest = rest;
        u16::from_str_radix(digits, 16).ok()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, expected: char) -> bool {
        self.expect(expected).is_some()
    }

    fn expect(&mut self, expected: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }
}

/// The RFC orders names by their UTF-16 code units, which is not the order of their bytes.
fn by_name(a: &Member<'_>, b: &Member<'_>) -> Ordering {
    a.name.encode_utf16().cmp(b.name.encode_utf16())
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            0x0c => "\\f",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            ..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + 1;
        if escape.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}
