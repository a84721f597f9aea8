//! The RFC's own examples, and properties.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use serde_json::Value;

use super::canonical;

fn of(json: &str) -> String {
    canonical(json.as_bytes()).unwrap_or_else(|| panic!("not JSON: {json}"))
}

/// RFC 8785, 3.2.2 and 3.2.3. Its first number is the one that it shortens and this does not.
#[test]
fn the_example_of_the_rfc() {
    let json = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"#,
        r#""numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(of(json), expected);
}

/// RFC 8785, 3.2.3.
#[test]
fn names_are_ordered_by_their_utf_16_code_units() {
    let json = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
    assert_eq!(of(json), expected);
}

/// RFC 8785, appendix B.
#[test]
fn what_the_rfc_writes_stays_as_it_is() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(expected.parse::<f64>(), Ok(f64::from_bits(bits)));
        assert_eq!(of(expected), expected);
    }
}

#[test]
fn the_ways_of_writing_one_number_are_one() {
    for ways in [
        &["1", "1.0", "1e0", "1E+0", "10e-1", "0.01e2", "1.000e000"][..],
        &["0", "-0", "0.0", "-0e5", "0e99999999999999999999999"],
        &["1e400", "10e399", "0.1E401"],
        &["-120", "-1.2e2", "-12E1"],
        &["100000000000000000000", "1e20"],
        &["1e21", "1000000000000000000000"],
        &["0.1", "1e-1", "0.10"],
    ] {
        for way in ways {
            assert_eq!(of(way), of(ways[0]), "{way}");
        }
    }
}

#[test]
fn a_number_of_any_size_is_read_and_keeps_its_value() {
    for (number, expected) in [
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", "18446744073709551615"),
        ("1e400", "1e+400"),
        ("-1e-400", "-1e-400"),
        ("0.10000000000000000001", "0.10000000000000000001"),
        ("1234567890123456789012", "1.234567890123456789012e+21"),
        ("1e999999999999999999", "1e+999999999999999999"),
        ("0.1e-999999999999999999", "1e-1000000000000000000"),
        ("1e9999999999999999999", "1e9999999999999999999"),
    ] {
        assert_eq!(of(number), expected);
    }
    let long = "9".repeat(100_000);
    assert_eq!(of(&long).len(), ".e+99999".len() + long.len());
}

/// Readers disagree which of them counts, so none is dropped.
#[test]
fn of_repeated_names_every_value_counts() {
    assert_eq!(of(r#"{"b":0,"a":2,"\u0061":1}"#), r#"{"a":2,"a":1,"b":0}"#);
}

#[test]
fn what_is_not_json_has_no_canonical_form() {
    let deep = "[".repeat(128) + &"]".repeat(128);
    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "{1:1}",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "tru",
        "truE",
        "nulll",
        "1 1",
        "\"",
        "'a'",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\u{feff}{}",
        "1\u{a0}",
        "// x\n1",
        &deep,
    ] {
        assert_eq!(canonical(text.as_bytes()), None, "{text}");
    }
    assert_eq!(canonical(b"\"\xff\""), None);
    assert!(canonical(&deep.as_bytes()[1..255]).is_some());
}

/// A tree, to be written in many ways.
#[derive(Clone, Debug)]
enum Json {
    Plain(Value),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    fn value(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Array(items) => items.iter().map(Self::value).collect(),
            Self::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, json)| (name.clone(), json.value()));
                Value::Object(members.collect())
            }
        }
    }

    /// Writes it with white space, order and escapes that follow from the numbers given.
    fn write(&self, out: &mut String, whims: &mut impl Iterator<Item = u8>) {
        let mut whim = || whims.next().unwrap_or(0);
        let space = ["", " ", "\n", "\t\r\n"][usize::from(whim() % 4)];
        out.push_str(space);
        match self {
            Self::Plain(Value::String(text)) => write_string(out, text, &mut whim),
            Self::Plain(value) => out.push_str(&value.to_string()),
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    item.write(out, whims);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let first = usize::from(whim()) % members.len().max(1);
                members.rotate_left(first);
                if whim().is_multiple_of(2) {
                    members.reverse();
                }
                out.push('{');
                for (at, (name, json)) in members.into_iter().enumerate() {
                    out.push_str(if at == 0 { " " } else { " ,\n" });
                    write_string(out, name, &mut || whims.next().unwrap_or(0));
                    out.push_str(" :");
                    json.write(out, whims);
                }
                out.push('}');
            }
        }
        out.push_str(space);
    }
}

fn write_string(out: &mut String, text: &str, whim: &mut impl FnMut() -> u8) {
    out.push('"');
    for char in text.chars() {
        let mut units = [0; 2];
        if whim().is_multiple_of(3) {
            for unit in char.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04X}").unwrap();
            }
        } else {
            let plain = Value::from(char.to_string()).to_string();
            out.push_str(&plain[1..plain.len() - 1]);
        }
    }
    out.push('"');
}

fn json() -> impl Strategy<Value = Json> {
    let plain = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    plain
        .prop_map(Json::Plain)
        .prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
                prop::collection::btree_map("[a-c\u{e000}\u{1f600}]{0,2}", inner, 0..5)
                    .prop_map(Json::Object),
            ]
        })
}

/// A number of few digits, and what it is in units of ten to the power of minus thirty.
fn decimal() -> impl Strategy<Value = (String, i128)> {
    let parts = (any::<bool>(), 0..1000u32, 0..1000u32, 0..4usize, -4..4i32);
    parts.prop_map(|(negative, whole, fraction, width, exponent)| {
        let sign = if negative { "-" } else { "" };
        let fraction = format!("{fraction:0width$}");
        let places = i32::try_from(fraction.len()).unwrap();
        let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
        let power = u32::try_from(30 - places + exponent).unwrap();
        let value = digits * 10i128.pow(power);
        let literal = format!("{sign}{whole}.{fraction}e{exponent}");
        (literal, if negative { -value } else { value })
    })
}

proptest! {
    #[test]
    fn however_it_is_written_its_canonical_form_is_the_same(
        json in json(),
        whims in prop::collection::vec(any::<u8>(), 100),
    ) {
        let mut text = String::new();
        json.write(&mut text, &mut whims.into_iter());
        let canonical = of(&text);
        prop_assert_eq!(&canonical, &of(&json.value().to_string()));
        prop_assert_eq!(&canonical, &of(&canonical));
    }

    #[test]
    fn the_canonical_form_says_the_same(json in json()) {
        let canonical = of(&json.value().to_string());
        let read: Value = serde_json::from_str(&canonical).unwrap();
        prop_assert_eq!(read, json.value());
    }

    #[test]
    fn what_differs_has_another_canonical_form(one in json(), other in json()) {
        let (one, other) = (one.value(), other.value());
        prop_assert_eq!(one == other, of(&one.to_string()) == of(&other.to_string()));
    }

    #[test]
    fn numbers_are_equal_when_their_values_are(one in decimal(), other in decimal()) {
        prop_assert_eq!(one.1 == other.1, of(&one.0) == of(&other.0));
    }

    #[test]
    fn every_double_is_read_back_from_its_canonical_form(double in any::<f64>()) {
        prop_assume!(double.is_finite());
        let read: f64 = of(&format!("{double:e}")).parse().unwrap();
        // Minus nought comes back as nought, which is what adding nought makes of it.
        prop_assert_eq!(read.to_bits(), (double + 0.0).to_bits());
    }

    #[test]
    fn agrees_with_serde_json_about_what_is_json(
        json in json(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..3),
    ) {
        let mut text = json.value().to_string().into_bytes();
        for (place, byte, what) in damage {
            // Rather what JSON is made of than anything.
            let byte = *b"[]{}\",:0123456789.eE+-\\untrf \n\xc3\0".get(usize::from(byte)).unwrap_or(&byte);
            let at = place.index(text.len().max(1)).min(text.len());
            match what {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                _ if at < text.len() => { text.remove(at); }
                _ => {}
            }
        }
        let read = serde_json::from_slice::<Value>(&text);
        // The one thing that it is stricter about: numbers that no double is near to.
        prop_assume!(!matches!(&read, Err(error) if error.to_string().starts_with("number out of range")));
        prop_assert_eq!(canonical(&text).is_some(), read.is_ok(), "{}", String::from_utf8_lossy(&text));
    }
}
