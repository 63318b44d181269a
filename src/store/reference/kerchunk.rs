//! References as written by kerchunk, VirtualiZarr and fsspec, in JSON (versions 0 and 1) and in Parquet.
//!
//! <https://fsspec.github.io/kerchunk/spec.html>, and for Parquet the `LazyReferenceMapper` of fsspec.

mod json;
mod parquet;
mod text;

#[cfg(feature = "fuzzing")]
pub use self::fuzz::{fuzz_json, fuzz_parquet};
pub(in crate::store) use self::json::{JsonError, JsonReader};
pub(super) use self::parquet::ParquetReferences;

use std::time::SystemTime;

use async_trait::async_trait;

use super::index::ReferenceIndex;
use super::{Entry, Page, References};
use crate::store::Omission;
use crate::store::{Extent, Key, StoreError};

/// The references of a JSON file.
#[derive(Debug)]
pub(super) struct JsonReferences {
    index: ReferenceIndex,
    modified: SystemTime,
    /// The size of the file in bytes.
    bytes: u64,
}

impl JsonReferences {
    pub(super) fn new(index: ReferenceIndex, modified: SystemTime, bytes: u64) -> Self {
        Self {
            index,
            modified,
            bytes,
        }
    }
}

#[async_trait]
impl References for JsonReferences {
    fn omissions(&self) -> Vec<Omission> {
        self.index.omissions().to_vec()
    }

    fn try_find(&self, key: &Key) -> Option<Result<Entry, StoreError>> {
        Some(self.index.find(key))
    }

    async fn find(&self, key: &Key) -> Result<Entry, StoreError> {
        self.index.find(key)
    }

    async fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError> {
        self.index.children(prefix, position)
    }

    fn modified(&self) -> SystemTime {
        self.modified
    }

    fn extent(&self) -> Extent {
        Extent {
            bytes: self.bytes,
            keys: self.index.len(),
        }
    }
}

#[cfg(feature = "fuzzing")]
mod fuzz {
    use std::io::Write;

    use super::{JsonReader, parquet};

    /// Reads bytes as JSON references, both at once and in small chunks; the results must agree.
    pub fn fuzz_json(bytes: &[u8]) {
        let read = |piece: usize| {
            let mut reader = JsonReader::references(1 << 20);
            let written = bytes
                .chunks(piece)
                .try_for_each(|piece| reader.write_all(piece));
            let index = written.ok().and_then(|()| reader.finish(&"fuzz").ok());
            index.map(|index| index.len())
        };
        assert_eq!(read(usize::MAX), read(7));
    }

    /// Reads bytes as a partition of Parquet references.
    pub fn fuzz_parquet(bytes: &[u8]) {
        let _ = parquet::read_partition(bytes, 1 << 20);
    }
}
