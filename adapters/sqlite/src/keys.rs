//! The keys of a batch, as one JSON text for `json_each`: SQLite has no arrays.

use std::fmt::Write;

use oneffect_core::{Day, EventKey, Fingerprint16};

/// Keys in the order of the inbox, and where each was in the batch.
pub(crate) struct Keys {
    sorted: Vec<(Vec<u8>, Vec<u8>, usize)>,
}

impl Keys {
    pub(crate) fn of<'k>(keys: impl IntoIterator<Item = &'k EventKey>) -> Self {
        let columns = keys.into_iter().enumerate().map(|(place, key)| {
            let (id, tenant) = columns(key);
            (id, tenant, place)
        });
        let mut sorted: Vec<_> = columns.collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// `[["<id>","<tenant>"],..]`, in hexadecimal.
    pub(crate) fn to_json(&self) -> String {
        json_rows(&self.sorted, |json, (id, tenant, _)| {
            push_hex(json, Some(id));
            json.push(',');
            push_hex(json, Some(tenant));
        })
    }

    /// As [`Keys::to_json`], with what else a row of the inbox gets: the fingerprint, and the day it
    /// is found by.
    pub(crate) fn to_json_rows(&self, rows: &[(Option<Fingerprint16>, Day)]) -> String {
        json_rows(&self.sorted, |json, (id, tenant, place)| {
            let (fingerprint, day) = rows[*place];
            push_hex(json, Some(id));
            json.push(',');
            push_hex(json, Some(tenant));
            json.push(',');
            push_hex(
                json,
                fingerprint
                    .map(Fingerprint16::to_bytes)
                    .as_ref()
                    .map(|bytes| &bytes[..]),
            );
            json.push(',');
            json.push_str(&day.number().to_string());
        })
    }

    /// Where a key was in the batch.
    pub(crate) fn place(&self, id: &[u8], tenant: &[u8]) -> Option<usize> {
        let found = self.sorted.binary_search_by(|(other_id, other_tenant, _)| {
            (&**other_id, &**other_tenant).cmp(&(id, tenant))
        });
        Some(self.sorted[found.ok()?].2)
    }
}

/// How a key is kept.
pub(crate) fn columns(key: &EventKey) -> (Vec<u8>, Vec<u8>) {
    (key.id.to_bytes().into(), key.tenant.as_str().into())
}

/// A JSON array of arrays.
pub(crate) fn json_rows<T>(rows: &[T], mut push: impl FnMut(&mut String, &T)) -> String {
    let mut json = String::from("[");
    for row in rows {
        json.push_str(if json.len() == 1 { "[" } else { ",[" });
        push(&mut json, row);
        json.push(']');
    }
    json.push(']');
    json
}

/// Bytes in quotes, or `null`.
pub(crate) fn push_hex(json: &mut String, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else {
        return json.push_str("null");
    };
    json.push('"');
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(json, "{byte:02x}");
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use oneffect_core::{EventId, Tenant};

    use super::*;

    fn key(id: &str, tenant: &str) -> EventKey {
        EventKey {
            id: EventId::new(id).unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        }
    }

    #[test]
    fn each_key_is_found_where_it_was() {
        let batch = [key("b", ""), key("a", "y"), key("a", "x"), key("ab", "")];

        let keys = Keys::of(&batch);

        for (place, key) in batch.iter().enumerate() {
            let (id, tenant) = columns(key);
            assert_eq!(keys.place(&id, &tenant), Some(place));
        }
        assert_eq!(keys.place(b"\x02b", b"x"), None);
    }

    #[test]
    fn keys_are_written_sorted() {
        let keys = Keys::of(&[key("b", ""), key("a", "x")]);
        assert_eq!(keys.to_json(), r#"[["0261","78"],["0262",""]]"#);
        assert_eq!(Keys::of(&[]).to_json(), "[]");
    }
}
