//! The keys of a batch, as columns for `unnest` and `= ANY`.

use oneffect_core::{Claim, EventKey};

/// A key as it is kept, and where it was in the batch.
type Row = (Vec<u8>, Vec<u8>, usize);

/// Keys in the order of the inbox's index.
#[derive(Default)]
pub(crate) struct Keys {
    sorted: Vec<Row>,
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

    pub(crate) fn all(&self) -> Columns<'_> {
        self.those(|_| true)
    }

    /// Those whose place in the batch is asked for.
    pub(crate) fn those(&self, asked: impl Fn(usize) -> bool) -> Columns<'_> {
        Columns(self.sorted.iter().filter(|key| asked(key.2)).collect())
    }

    /// Where a key was in the batch.
    pub(crate) fn place(&self, id: &[u8], tenant: &[u8]) -> Option<usize> {
        let found = self.sorted.binary_search_by(|(other_id, other_tenant, _)| {
            (&**other_id, &**other_tenant).cmp(&(id, tenant))
        });
        Some(self.sorted[found.ok()?].2)
    }
}

/// Some of the keys, in their order.
pub(crate) struct Columns<'k>(Vec<&'k Row>);

impl Columns<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn ids(&self) -> Vec<&[u8]> {
        self.0.iter().map(|(id, _, _)| &**id).collect()
    }

    pub(crate) fn tenants(&self) -> Vec<&[u8]> {
        self.0.iter().map(|(_, tenant, _)| &**tenant).collect()
    }

    /// Something of each, by its place in the batch.
    pub(crate) fn map<T>(&self, value: impl Fn(usize) -> T) -> Vec<T> {
        self.0.iter().map(|(_, _, place)| value(*place)).collect()
    }

    /// The claims' fingerprints in the order of the keys; `None` when there are none at all.
    pub(crate) fn fingerprints(&self, claims: &[Claim]) -> Option<Vec<Option<Vec<u8>>>> {
        let any = claims.iter().any(|claim| claim.fingerprint.is_some());
        let bytes = |place: usize| Some(claims[place].fingerprint?.to_bytes().to_vec());
        any.then(|| self.map(bytes))
    }

    /// Id and tenant in one value, as the statements build it: no two keys have the same.
    pub(crate) fn pairs(&self) -> Vec<Vec<u8>> {
        let pair = |(id, tenant, _): &&Row| {
            let length = u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes();
            [&length, &**id, &**tenant].concat()
        };
        self.0.iter().map(pair).collect()
    }
}

/// How a key is kept.
pub(crate) fn columns(key: &EventKey) -> (Vec<u8>, Vec<u8>) {
    (key.id.to_bytes().into(), key.tenant.as_str().into())
}

#[cfg(test)]
mod tests {
    use oneffect_core::{EventId, Tenant};

    use super::*;

    #[test]
    fn each_key_is_found_where_it_was() {
        let key = |id: &str, tenant: &str| EventKey {
            id: EventId::new(id).unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        };
        let batch = [key("b", ""), key("a", "y"), key("a", "x"), key("ab", "")];

        let keys = Keys::of(&batch);

        for (place, key) in batch.iter().enumerate() {
            let (id, tenant) = columns(key);
            assert_eq!(keys.place(&id, &tenant), Some(place));
        }
        assert_eq!(keys.place(b"\x02b", b"x"), None);
        assert!(keys.ids().is_sorted());
        let mut pairs = keys.pairs();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), batch.len());
    }
}
