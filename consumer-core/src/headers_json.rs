//! Headers as text, for databases and people.

use bytes::Bytes;
use serde_json::Value;

use crate::delivery::Headers;

const HEX: &str = "hex";

impl Headers {
    /// All of them as a JSON array, which loses nothing: order, repeated names, nulls, any bytes.
    ///
    /// Each header is `[name, value]`: a value is a string where it is UTF-8, `{"hex": "00ff"}`
    /// where it is not, and `null` where there is none. Stores keep dead letters' headers so.
    pub fn to_json(&self) -> String {
        let header = |(name, value): (&str, Option<&Bytes>)| {
            let value = match value.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
                None => Value::Null,
                Some((_, Ok(text))) => Value::from(text),
                Some((bytes, Err(_))) => serde_json::json!({ HEX: to_hex(bytes) }),
            };
            Value::from(vec![Value::from(name), value])
        };
        self.iter().map(header).collect::<Value>().to_string()
    }

    /// Reads back what [`Headers::to_json`] wrote; `None` for anything else.
    pub fn from_json(json: &str) -> Option<Self> {
        let list: Vec<(Box<str>, Value)> = serde_json::from_str(json).ok()?;
        let mut headers = Self::default();
        for (name, value) in list {
            let value = match value {
                Value::Null => None,
                Value::String(text) => Some(Bytes::from(text)),
                Value::Object(bytes) => Some(from_hex(bytes.get(HEX)?.as_str()?)?),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
            };
            headers.push(name, value);
        }
        Some(headers)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let pair = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(pair).collect()
}

fn from_hex(text: &str) -> Option<Bytes> {
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_as_they_were_written() {
        let mut headers = Headers::default();
        headers.push("trace", Some(Bytes::from_static(b"00-4bf9")));
        headers.push("trace", Some(Bytes::from_static(b"\xff\x00")));
        headers.push("none", None);
        headers.push("empty", Some(Bytes::new()));
        headers.push("nul\0 \u{e9}", Some(Bytes::from_static(b"a\0b")));

        let json = headers.to_json();

        assert_eq!(Headers::from_json(&json), Some(headers));
        assert!(!json.contains('\0'));
    }

    #[test]
    fn text_stays_readable() {
        let headers: Headers = [("a", "b"), ("c", "d")].into_iter().collect();
        assert_eq!(headers.to_json(), r#"[["a","b"],["c","d"]]"#);
        assert_eq!(Headers::default().to_json(), "[]");
    }

    #[test]
    fn anything_else_is_no_headers() {
        for json in [
            "",
            "{}",
            r#"[["a"]]"#,
            r#"[["a",{"hex":"f"}]]"#,
            r#"[["a",7]]"#,
        ] {
            assert_eq!(Headers::from_json(json), None, "{json}");
        }
    }
}
