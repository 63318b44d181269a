//! The stored chunks of arrays, counted by listing.

use std::time::{Duration, Instant};

use super::is_listed_here;
use super::keys::{ChunkKeyParser, KeyClass, KeyWalk};
use super::presence::{ChunkSet, NamedChunks};
use crate::store::{Key, ListingSupport, Store};
use crate::zarr::Array;

/// The limits of counting.
#[derive(Debug)]
pub(super) struct CountBudget {
    keys_left: u64,
    deadline: Option<Instant>,
}

/// The counted keys below an array.
#[derive(Debug, Default)]
pub(super) struct StoredChunkCounts {
    pub(super) chunks: u64,
    /// The size of the stored chunks in bytes.
    pub(super) bytes: u64,
    /// The number of keys that do not belong to the array.
    pub(super) others: u64,
    /// Whether all keys were counted.
    pub(super) is_complete: bool,
    pub(super) failure: Option<String>,
    /// The chunks without a key, if all keys were counted and there are such chunks.
    pub(super) absent: Option<NamedChunks>,
}

/// Returns whether chunks are counted without network requests.
pub(super) fn is_free(store: &dyn Store) -> bool {
    is_listed_here(store) && store.capabilities().listing == ListingSupport::Complete
}

impl CountBudget {
    /// Creates the limits: at most `max_keys` keys, and at most the time `limit`, if given.
    pub(super) fn new(max_keys: u64, limit: Option<Duration>) -> Self {
        Self {
            keys_left: max_keys,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
        }
    }

    /// Counts the keys below an array.
    pub(super) async fn count(
        &mut self,
        store: &dyn Store,
        key: &Key,
        array: &Array,
    ) -> StoredChunkCounts {
        let names = ChunkKeyParser::of(array);
        let mut keys = KeyWalk::new(store, key, names.as_ref());
        let mut counted = StoredChunkCounts::default();
        let mut present = names.as_ref().map(ChunkSet::of);
        loop {
            if self.is_exhausted() {
                return counted;
            }
            let Some(listed) = keys.next().await else {
                break;
            };
            self.keys_left = self.keys_left.saturating_sub(1);
            match listed.class {
                KeyClass::Chunk(chunk) => {
                    counted.chunks += 1;
                    present.iter_mut().for_each(|present| present.add(chunk));
                    let size = match listed.size_bytes {
                        Some(size) => Ok(size),
                        None => store.stat(&listed.key).await.map(|stat| stat.size_bytes),
                    };
                    match size {
                        Ok(size) => counted.bytes = counted.bytes.saturating_add(size),
                        Err(error) => counted.failure = Some(format!("{}: {error}", listed.key)),
                    }
                }
                KeyClass::Stray | KeyClass::Misplaced(_) => counted.others += 1,
                KeyClass::Other => {}
                KeyClass::Unlistable(error) => counted.failure = Some(error.to_string()),
            }
        }
        counted.is_complete = counted.failure.is_none();
        if counted.is_complete {
            let found = names.as_ref().zip(present);
            let absent = found.and_then(|(names, present)| present.others(names));
            counted.absent = absent.filter(|absent| absent.count > 0);
        }
        counted
    }

    fn is_exhausted(&self) -> bool {
        let is_late = |deadline| Instant::now() >= deadline;
        self.keys_left == 0 || self.deadline.is_some_and(is_late)
    }
}

impl StoredChunkCounts {
    /// Returns the decoded size of the counted chunks in bytes; `None` if chunks differ in size.
    pub(super) fn decoded_bytes(&self, array: &Array) -> Option<u64> {
        array.grid.as_ref().ok()?.regular_chunk_shape()?;
        array.largest_chunk_bytes()?.checked_mul(self.chunks)
    }

    /// Returns the decoded size of the counted chunks, divided by their stored size.
    pub(super) fn ratio(&self, array: &Array) -> Option<f64> {
        ratio(self.decoded_bytes(array)?, self.bytes)
    }
}

/// Returns a quotient with two decimals, rounded down; `None` for a divisor of 0.
pub(super) fn ratio(decoded_bytes: u64, stored_bytes: u64) -> Option<f64> {
    let hundredths = (u128::from(decoded_bytes) * 100).checked_div(u128::from(stored_bytes))?;
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let hundredths = hundredths as f64;
    Some(hundredths / 100.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn array() -> Array {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [12],
            "data_type": "float64", "fill_value": 0, "codecs": ["bytes"],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": "default"});
        Array::from_v3(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn chunks_are_counted_within_the_limit() {
        let names = ["a/c/0", "a/c/2", "a/c/7", "a/zarr.json"];
        let store = MemoryStore::new(names.map(|name| {
            let key = Key::new(name.as_bytes()).unwrap();
            (key, vec![0; 16])
        }));
        let key = Key::new(b"a").unwrap();
        let count = |max| block_on(CountBudget::new(max, None).count(&store, &key, &array()));
        let all = count(100);
        assert!(all.is_complete && all.failure.is_none());
        assert_eq!((all.chunks, all.bytes, all.others), (2, 32, 1));
        assert_eq!(all.decoded_bytes(&array()), Some(64));
        assert_eq!(all.ratio(&array()), Some(2.0));
        assert!(!count(2).is_complete);
        let late = CountBudget::new(100, Some(Duration::ZERO));
        let mut late = late;
        assert!(!block_on(late.count(&store, &key, &array())).is_complete);
    }

    #[test]
    fn ratios_have_two_decimals() {
        assert_eq!(ratio(98_304, 23_811), Some(4.12));
        assert_eq!(ratio(1, 0), None);
        assert_eq!(ratio(u64::MAX, 1), Some(18_446_744_073_709_551_615.0));
    }
}
