//! One value out of a JSON text, without building the rest of it.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A JSON pointer (RFC 6901), taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPointer(Box<[Box<str>]>);

impl JsonPointer {
    /// `/a/b`, with `~1` for a slash and `~0` for a tilde; the empty pointer is the whole text.
    pub(crate) fn parse(pointer: &str) -> Result<Self, String> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(format!(
                "the JSON pointer {pointer:?} does not begin with a slash"
            ));
        }
        let unescape = |part: &str| part.replace("~1", "/").replace("~0", "~").into();
        Ok(Self(pointer.split('/').skip(1).map(unescape).collect()))
    }

    /// The text or the integer at the pointer; `None` when nothing is there.
    ///
    /// A name that repeats in an object counts with its last value, as in most readers of JSON.
    pub(crate) fn find(&self, json: &[u8]) -> Result<Option<Scalar>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let found = Step(&self.0).deserialize(&mut reader)?;
        reader.end()?;
        Ok(found)
    }
}

/// What can be an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text(String),
    Integer(String),
    /// Something else: a fraction, a boolean, an object.
    Other(&'static str),
}

struct Step<'p>(&'p [Box<str>]);

impl<'de> DeserializeSeed<'de> for Step<'_> {
    type Value = Option<Scalar>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Step<'_> {
    /// The value, if the pointer ends here.
    fn here(&self, value: Scalar) -> Option<Scalar> {
        self.0.is_empty().then_some(value)
    }
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<Scalar>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if self.0.is_empty() {
            return Ok(Some(Scalar::Text(text.into())));
        }
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.here(Scalar::Integer(number.to_string())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.here(Scalar::Integer(number.to_string())))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(self.here(Scalar::Other("a number that is no 64-bit integer")))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(self.here(Scalar::Other("a boolean")))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None) // null is nothing
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((name, rest)) = self.0.split_first() else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Some(Scalar::Other("an object")));
        };
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(IsName(name))? {
            if is_it {
                found = map.next_value_seed(Step(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Some((index, rest)) = self.0.split_first() else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Some(Scalar::Other("an array")));
        };
        let wanted = index.parse::<usize>().ok();
        let mut found = None;
        for at in 0.. {
            let more = if Some(at) == wanted {
                seq.next_element_seed(Step(rest))?
                    .map(|value| found = value)
            } else {
                seq.next_element::<IgnoredAny>()?.map(|_| ())
            };
            if more.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

/// Compares an object's key without keeping it.
struct IsName<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pointer: &str, json: &str) -> Option<Scalar> {
        JsonPointer::parse(pointer)
            .unwrap()
            .find(json.as_bytes())
            .unwrap()
    }

    fn text(text: &str) -> Scalar {
        Scalar::Text(text.into())
    }

    #[test]
    fn finds_text_and_integers_at_any_depth() {
        assert_eq!(
            find("/id", r#"{"x":[1,{"id":2}],"id":"a"}"#),
            Some(text("a"))
        );
        assert_eq!(find("/x/1/id", r#"{"x":[1,{"id":"b"}]}"#), Some(text("b")));
        assert_eq!(
            find("/n", r#"{"n":18446744073709551615}"#),
            Some(Scalar::Integer("18446744073709551615".into()))
        );
        assert_eq!(
            find("/n", r#"{"n":-5}"#),
            Some(Scalar::Integer("-5".into()))
        );
        assert_eq!(
            find("/a~1b/m~0n", r#"{"a/b":{"m~n":"c"}}"#),
            Some(text("c"))
        );
        assert_eq!(find("", r#""whole""#), Some(text("whole")));
    }

    #[test]
    fn what_is_not_there_is_none() {
        for json in ["{}", r#"{"id":null}"#, "[]", "7", r#"{"ID":"x"}"#] {
            assert_eq!(find("/id", json), None, "{json}");
        }
    }

    #[test]
    fn what_cannot_be_an_id_is_named() {
        assert!(matches!(
            find("/id", r#"{"id":1.5}"#),
            Some(Scalar::Other(_))
        ));
        assert!(matches!(
            find("/id", r#"{"id":{}}"#),
            Some(Scalar::Other("an object"))
        ));
    }

    #[test]
    fn the_last_of_repeated_names_counts_and_escapes_are_read() {
        assert_eq!(
            find("/id", r#"{"id":"a","\u0069d":"b\n"}"#),
            Some(text("b\n"))
        );
    }

    #[test]
    fn text_that_is_no_json_is_an_error_wherever_it_breaks() {
        let pointer = JsonPointer::parse("/id").unwrap();
        for json in ["", "{", r#"{"id":"a""#, r#"{"id":"a"} x"#, "\u{feff}{}"] {
            assert!(pointer.find(json.as_bytes()).is_err(), "{json}");
        }
        assert!(pointer.find(b"{\"id\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_pointer_begins_with_a_slash() {
        assert!(JsonPointer::parse("id").is_err());
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_full_parser(name in "[a-c]{1,2}", json in json_text()) {
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            let whole = value.pointer(&format!("/{name}")).and_then(|v| v.as_str());
            let found = match find(&format!("/{name}"), &json) {
                Some(Scalar::Text(text)) => Some(text),
                _ => None,
            };
            assert_eq!(found.as_deref(), whole);
        }
    }

    fn json_text() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            "[a-z]{0,3}".prop_map(|s| format!("{s:?}")),
            any::<i64>().prop_map(|n| n.to_string())
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            proptest::collection::vec(("[a-c]{1,2}", inner), 0..4).prop_map(|fields| {
                let fields: Vec<_> = fields.iter().map(|(n, v)| format!("{n:?}: {v}")).collect();
                format!("{{{}}}", fields.join(","))
            })
        })
    }
}
