//! One copy a record, and few allocations.

use bytes::{Bytes, BytesMut};

/// What a delivery keeps alive at most beyond its own bytes: small, since one that waits for a retry
/// must not hold back the memory of hundreds that are long done.
const CHUNK: usize = 16 * 1024;

/// From this size on a value is worth an allocation of its own.
const LARGE: usize = CHUNK / 4;

/// Copies small values into shared chunks.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunk: BytesMut,
}

impl Arena {
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if bytes.len() >= LARGE {
            return Bytes::copy_from_slice(bytes);
        }
        if self.chunk.capacity() < bytes.len() {
            self.chunk = BytesMut::with_capacity(CHUNK);
        }
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_comes_back() {
        let mut arena = Arena::default();
        let sizes = [0, 1, 100, LARGE - 1, LARGE, CHUNK, CHUNK + 1, 7].repeat(9);
        let values: Vec<Vec<u8>> = (0u8..)
            .zip(sizes)
            .map(|(fill, size)| vec![fill; size])
            .collect();
        let copies: Vec<Bytes> = values.iter().map(|value| arena.copy(value)).collect();
        assert_eq!(copies, values);
    }
}
