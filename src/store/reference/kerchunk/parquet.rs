//! References in Parquet. `.zmetadata` has the documents, and `FIELD/refs.N.parq` has the references of an
//! array: `record_size` in each file, in row-major order of the chunks.
//!
//! A partition is read when one of its chunks is used. A partition without a file has no references.
//!
//! The crate `parquet` is not used, because it allocates what a file declares, and has no limit to set (read in
//! version 60.1.0, without default features):
//!
//! - `file::serialized_reader::decode_page` allocates `uncompressed_page_size` of the header of a page, up to 2 GiB,
//!   before it decompresses anything. Snappy then fills all of it with zeros (`compression::SnappyCodec`).
//! - `encodings::decoding::DictDecoder::set_dict` makes a dictionary of `num_values` of its header, which is not
//!   compared with the bytes of the page: up to 2^31 values of 32 bytes.
//! - `parquet_thrift::read_thrift_vec` and the row groups of a footer reserve the declared number of elements. It is at
//!   most the number of bytes left, and an element takes hundreds of bytes.
//!
//! `column::page::PageReader` can be implemented with limits, but by code that parses headers, levels and
//! compression, which is most of this module. Here the rows of a footer, the values of a column and the decoded bytes
//! of a page are compared with the limit of memory before they are read.

mod footer;
mod pages;
mod partition;
mod thrift;

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use self::partition::Partition;
use super::super::index::ReferenceIndex;
use super::super::{Child, Entry, Page, Reference, ReferenceError, References};
use crate::cache::{SingleFlight, WeightedLru};
use crate::runtime::{self, Priority, leave_session_thread};
use crate::store::{
    AccessHint, Extent, Key, ListingSupport, Store, StoreError, Version, read_to_end, visit_all,
};
use crate::sync::Mutex;

/// Number of chunks in one page of a listing.
const PAGE_CHUNKS: usize = 1024;
/// Largest number of partitions that a listing requests one by one.
const MAX_PARTITIONS: u64 = 100_000;
/// Listing positions from this value on are chunks.
const CHUNKS: u64 = 1 << 62;
/// Largest number of dimensions, which is that of numpy.
const MAX_DIMENSIONS: usize = 64;

/// Reads a partition; used by tests/fuzz.
#[cfg(feature = "fuzzing")]
pub(super) fn read_partition(bytes: &[u8], limit_bytes: u64) -> Option<u64> {
    let partition = Partition::read(bytes, limit_bytes).ok()?;
    for row in 0..partition.rows() {
        let _ = partition.reference(row);
    }
    Some(partition.rows())
}

/// The chunk grid of an array.
#[derive(Debug)]
struct Field {
    /// Number of chunks in each dimension.
    grid: Vec<u64>,
    /// Total number of chunks.
    chunks: u64,
    /// The numbers of existing partitions, if they can be listed and were listed.
    partitions: Mutex<Option<Arc<BTreeSet<u64>>>>,
}

impl Field {
    /// # Errors
    /// The reason why the document of the array is invalid or not supported.
    fn parse(zarray: &[u8]) -> Result<Self, ReferenceError> {
        let invalid = |what: &str| ReferenceError::Invalid(format!("`.zarray`: {what}"));
        let document: serde_json::Value =
            serde_json::from_slice(zarray).map_err(|error| invalid(&error.to_string()))?;
        let numbers = |name: &str| {
            let list = document.get(name).and_then(serde_json::Value::as_array);
            let numbers = list?.iter().map(serde_json::Value::as_u64);
            numbers.collect::<Option<Vec<u64>>>()
        };
        let separator = document.get("dimension_separator");
        if separator.is_some_and(|separator| separator.as_str() != Some(".")) {
            let what = "chunk keys with `/` in Parquet references".into();
            return Err(ReferenceError::Unsupported(what));
        }
        let (Some(shape), Some(chunks)) = (numbers("shape"), numbers("chunks")) else {
            return Err(invalid("no shape or chunks"));
        };
        // Without elements, any edge of the chunks is valid.
        let is_valid = |(all, one): (&u64, &u64)| *one > 0 || *all == 0;
        let are_valid = shape.iter().zip(&chunks).all(is_valid);
        if shape.len() != chunks.len() || shape.len() > MAX_DIMENSIONS || !are_valid {
            return Err(invalid("its shape and chunks do not fit together"));
        }
        let grid: Vec<u64> = shape
            .iter()
            .zip(&chunks)
            .map(|(all, one)| all.div_ceil((*one).max(1)))
            .collect();
        let product = grid
            .iter()
            .try_fold(1_u64, |all, one| all.checked_mul(*one));
        let chunks = product.filter(|chunks| *chunks < CHUNKS);
        Ok(Self {
            grid,
            chunks: chunks.ok_or_else(|| invalid("it has too many chunks"))?,
            partitions: Mutex::new(None),
        })
    }

    /// Returns the number of the chunk with this name.
    fn number(&self, name: &[u8]) -> Option<u64> {
        if self.grid.is_empty() {
            return (name == b"0").then_some(0);
        }
        let mut parts = name.split(|byte| *byte == b'.');
        let mut number = 0_u64;
        for size in &self.grid {
            let index = index(parts.next()?)?;
            if index >= *size {
                return None;
            }
            number = number.checked_mul(*size)?.checked_add(index)?;
        }
        parts.next().is_none().then_some(number)
    }

    /// Returns the name of the chunk with this number.
    fn name(&self, mut number: u64) -> Box<[u8]> {
        let mut parts = Vec::with_capacity(self.grid.len());
        for size in self.grid.iter().rev() {
            parts.push((number % size.max(&1)).to_string());
            number /= size.max(&1);
        }
        parts.reverse();
        match parts.is_empty() {
            true => b"0".as_slice().into(),
            false => parts.join(".").into_bytes().into(),
        }
    }
}

/// Parses a coordinate in the name of a chunk, without leading zeros.
fn index(text: &[u8]) -> Option<u64> {
    let is_canonical = text == b"0" || text.first().is_some_and(|byte| *byte != b'0');
    let is_number = is_canonical && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Identifies a partition: the key of its array, and its number.
type PartitionId = (Key, u64);

/// Parquet references below a prefix of a store.
#[derive(Debug)]
pub(in crate::store::reference) struct ParquetReferences {
    shared: Arc<Shared>,
    metadata: ReferenceIndex,
    record_size: u64,
    fields: HashMap<Key, Field>,
    loads: SingleFlight<PartitionId, Option<Arc<Partition>>, StoreError>,
}

/// State that concurrent loads of partitions share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    root: Key,
    modified: SystemTime,
    /// The version of `.zmetadata` when it was read.
    version: Version,
    /// Cached partitions; `None` for a partition that does not exist.
    partitions: Mutex<WeightedLru<PartitionId, Option<Arc<Partition>>>>,
    /// The version of each partition when it was first read.
    versions: Mutex<HashMap<PartitionId, Version>>,
    limit_bytes: u64,
}

/// Estimated bytes of a cached partition besides its rows.
const PARTITION_BYTES: u64 = 512;

impl ParquetReferences {
    /// `metadata` is the content of `.zmetadata`, with `record_size`. `version` is the time when it was
    /// written, and its version.
    ///
    /// # Errors
    /// [`ReferenceError`], if an array is not supported.
    pub(in crate::store::reference) fn new(
        store: Arc<dyn Store>,
        root: Key,
        (metadata, record_size): (ReferenceIndex, u64),
        (modified, version): (SystemTime, Version),
        memory_limit_bytes: u64,
    ) -> Result<Self, ReferenceError> {
        let mut fields = HashMap::new();
        for (key, zarray) in metadata.inline_named(b".zarray") {
            let field = Field::parse(zarray).map_err(|error| match error {
                ReferenceError::Invalid(what) => ReferenceError::Invalid(format!("{key}: {what}")),
                error => error,
            })?;
            fields.insert(key.clone(), field);
        }
        let shared = Shared {
            store,
            root,
            modified,
            version,
            partitions: Mutex::new(WeightedLru::new(memory_limit_bytes / 16, usize::MAX)),
            versions: Mutex::default(),
            limit_bytes: memory_limit_bytes / 8,
        };
        Ok(Self {
            shared: Arc::new(shared),
            metadata,
            record_size,
            fields,
            loads: SingleFlight::default(),
        })
    }

    /// Returns the array and the number of the chunk that a key below the root names.
    fn chunk(&self, below: &Key) -> Option<(Key, u64)> {
        let array = below.parent();
        let field = self.fields.get(&array)?;
        let name = below.as_bytes().rsplit(|byte| *byte == b'/').next()?;
        Some((array, field.number(name)?))
    }

    /// Returns as much about a key as is known without its partition.
    fn look_up(&self, key: &Key) -> Result<ChunkLookup, StoreError> {
        let root = &self.shared.root;
        let not_found = || Err(StoreError::NotFound { key: key.clone() });
        let Some(below) = key.below(root).and_then(|below| Key::new(below).ok()) else {
            // Above the root only its parent prefixes exist.
            return match root.below(key) {
                Some(_) => Ok(ChunkLookup::Entry(Entry::Prefix)),
                None => not_found(),
            };
        };
        match self.metadata.find(&below) {
            Ok(entry) => Ok(ChunkLookup::Entry(entry)),
            Err(StoreError::NotFound { .. }) => match self.chunk(&below) {
                Some((array, number)) => {
                    let id = (array, number / self.record_size);
                    Ok(ChunkLookup::Row(id, number % self.record_size))
                }
                None => not_found(),
            },
            Err(error) => Err(error.with_key(key.clone())),
        }
    }

    async fn partition(&self, id: &PartitionId) -> Result<Option<Arc<Partition>>, StoreError> {
        if let Some(partition) = self.shared.cached(id) {
            return Ok(partition);
        }
        let (shared, wanted) = (Arc::clone(&self.shared), id.clone());
        let load = move || async move { shared.load(wanted).await };
        let panicked = StoreError::internal("a panic while references were read");
        self.loads.run(id.clone(), load, panicked).await
    }

    /// Returns the number of the first partition, from `first` on, that may exist.
    async fn partitions(
        &self,
        array: &Key,
        field: &Field,
        first: u64,
    ) -> Result<Option<u64>, StoreError> {
        let end = field.chunks.div_ceil(self.record_size);
        let store = &self.shared.store;
        if store.capabilities().listing == ListingSupport::BestEffort {
            if end > MAX_PARTITIONS {
                return Err(StoreError::Unsupported {
                    key: array.clone(),
                    what: format!("a listing of {end} partitions that the source does not list"),
                });
            }
            return Ok((first < end).then_some(first));
        }
        let known = field.partitions.lock().clone();
        let listed = match known {
            Some(listed) => listed,
            None => {
                let listed = Arc::new(self.shared.list(array).await?);
                *field.partitions.lock() = Some(Arc::clone(&listed));
                listed
            }
        };
        let next = listed.range(first..).next().copied();
        Ok(next.filter(|partition| *partition < end))
    }

    /// Returns a page of the chunks of an array, beginning with chunk number `first`.
    async fn chunks(&self, array: &Key, field: &Field, first: u64) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let mut number = first;
        while page.children.is_empty() {
            let wanted = number / self.record_size;
            let Some(at) = self.partitions(array, field, wanted).await? else {
                return Ok(page);
            };
            let start = at.saturating_mul(self.record_size);
            number = number.max(start);
            let end = start.saturating_add(self.record_size).min(field.chunks);
            if let Some(partition) = self.partition(&(array.clone(), at)).await? {
                let rows_end = start.saturating_add(partition.rows()).min(end);
                while number < rows_end && page.children.len() < PAGE_CHUNKS {
                    // An invalid row is listed too, so that an access to it fails visibly.
                    let reference = match partition.reference(number - start) {
                        Ok(reference) => reference,
                        Err(_) => Some(Reference::Unreadable),
                    };
                    if reference.is_some() {
                        let name = field.name(number);
                        page.children.push(Child { name, reference });
                    }
                    number += 1;
                }
                if number < rows_end {
                    break;
                }
            }
            number = end;
        }
        page.next = (number < field.chunks).then(|| CHUNKS.saturating_add(number));
        Ok(page)
    }
}

/// The result of a lookup of a key without its partition.
enum ChunkLookup {
    Entry(Entry),
    /// A chunk: its partition and the row in it.
    Row(PartitionId, u64),
}

impl Shared {
    fn cached(&self, id: &PartitionId) -> Option<Option<Arc<Partition>>> {
        self.partitions.lock().get(id).cloned()
    }

    fn key(&self, id: &PartitionId) -> Result<Key, StoreError> {
        let (array, number) = id;
        let name = format!("refs.{number}.parq");
        let key = self.root.join_key(array).join(name.as_bytes());
        key.map_err(|error| StoreError::internal(error.to_string()))
    }

    /// Fails if `.zmetadata` has changed since it was read.
    async fn check(&self, key: &Key) -> Result<(), StoreError> {
        if self.store.capabilities().immutable {
            return Ok(());
        }
        let document = self.root.join(b".zmetadata");
        let document = document.map_err(|error| StoreError::internal(error.to_string()))?;
        match self.store.stat(&document).await {
            Ok(stat) if stat.version == self.version => Ok(()),
            Ok(_) | Err(StoreError::NotFound { .. }) => Err(StoreError::Stale {
                key: key.clone(),
                what: "the references were written again (.zmetadata); mount them again".into(),
            }),
            Err(error) => Err(error),
        }
    }

    async fn load(self: Arc<Self>, id: PartitionId) -> Result<Option<Arc<Partition>>, StoreError> {
        leave_session_thread().await;
        if let Some(partition) = self.cached(&id) {
            return Ok(partition);
        }
        let key = self.key(&id)?;
        let limit_bytes = self.limit_bytes;
        let opened = self.store.open(&key, AccessHint::Whole(limit_bytes)).await;
        let partition = match opened {
            // The writer omits partitions without references (`LazyReferenceMapper.flush` of fsspec), and
            // its reader takes them for absent (`_load_one_key`). So a file that is proved missing is no
            // error. `check` proves that the references as a whole still exist.
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error),
            Ok(object) => {
                let version = object.version();
                let first_version = *self.versions.lock().entry(id.clone()).or_insert(version);
                if first_version != version {
                    return Err(StoreError::Stale {
                        key,
                        what: "the references were written again; mount them again".into(),
                    });
                }
                let bytes = read_to_end(&*object, &key, limit_bytes).await?;
                let read = move || Partition::read(&bytes, limit_bytes);
                let read = runtime::compute(Priority::Demand, read).await;
                let read = read.map_err(|_| StoreError::internal("a panic in a partition"))?;
                Some(Arc::new(read.map_err(|what| StoreError::Corrupt {
                    key: key.clone(),
                    what: what.into(),
                })?))
            }
        };
        self.check(&key).await?;
        let bytes = partition.as_ref().map_or(0, |partition| partition.bytes());
        let weight = bytes.saturating_add(PARTITION_BYTES);
        let evicted = self.partitions.lock().insert(id, partition.clone(), weight);
        drop(evicted);
        Ok(partition)
    }

    /// Lists the existing partitions of an array.
    async fn list(&self, array: &Key) -> Result<BTreeSet<u64>, StoreError> {
        let mut numbers = BTreeSet::new();
        let mut listing = match self.store.list(&self.root.join_key(array)).await {
            Err(StoreError::NotFound { .. }) => return Ok(numbers),
            listing => listing?,
        };
        visit_all(&mut *listing, &mut |listed| {
            let number = listed.name.strip_prefix(b"refs.");
            let number = number.and_then(|name| name.strip_suffix(b".parq"));
            numbers.extend(number.and_then(index));
            ControlFlow::Continue(())
        })
        .await?;
        Ok(numbers)
    }
}

/// Returns the entry of a row.
fn entry(partition: Option<&Partition>, row: u64, key: &Key) -> Result<Entry, StoreError> {
    let reference = partition.map_or(Ok(None), |partition| partition.reference(row));
    match reference {
        Ok(Some(reference)) => Ok(Entry::Value(reference)),
        Ok(None) => Err(StoreError::NotFound { key: key.clone() }),
        Err(what) => Err(StoreError::Corrupt {
            key: key.clone(),
            what: format!("its reference is wrong: {what}"),
        }),
    }
}

#[async_trait]
impl References for ParquetReferences {
    fn try_find(&self, key: &Key) -> Option<Result<Entry, StoreError>> {
        match self.look_up(key) {
            Ok(ChunkLookup::Entry(entry)) => Some(Ok(entry)),
            Ok(ChunkLookup::Row(id, row)) => {
                let partition = self.shared.cached(&id)?;
                Some(entry(partition.as_deref(), row, key))
            }
            Err(error) => Some(Err(error)),
        }
    }

    async fn find(&self, key: &Key) -> Result<Entry, StoreError> {
        match self.look_up(key)? {
            ChunkLookup::Entry(entry) => Ok(entry),
            ChunkLookup::Row(id, row) => {
                let partition = self.partition(&id).await?;
                entry(partition.as_deref(), row, key)
            }
        }
    }

    async fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError> {
        let root = &self.shared.root;
        let Some(below) = prefix.below(root).and_then(|below| Key::new(below).ok()) else {
            let next = root
                .below(prefix)
                .and_then(|rest| rest.split(|byte| *byte == b'/').next());
            let name = next.ok_or_else(|| StoreError::NotFound {
                key: prefix.clone(),
            })?;
            let child = Child {
                name: name.into(),
                reference: None,
            };
            return Ok(Page {
                children: vec![child],
                next: None,
            });
        };
        let field = self.fields.get(&below);
        if let (Some(first), Some(field)) = (position.checked_sub(CHUNKS), field) {
            return self.chunks(&below, field, first).await;
        }
        let mut page = self.metadata.children(&below, position)?;
        if page.next.is_none() && field.is_some() {
            page.next = Some(CHUNKS);
        }
        Ok(page)
    }

    fn modified(&self) -> SystemTime {
        self.shared.modified
    }

    fn extent(&self) -> Extent {
        self.shared.store.extent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbered_in_row_major_order() {
        let field = Field::parse(br#"{"shape": [5, 7], "chunks": [2, 3]}"#).unwrap();
        assert_eq!((field.chunks, field.number(b"2.1")), (9, Some(7)));
        for number in 0..9 {
            assert_eq!(field.number(&field.name(number)), Some(number));
        }
        for name in [
            "3.0", "0.3", "0", "0.0.0", "00.1", "-1.0", "0.", "", "1.x", "2/1",
        ] {
            assert_eq!(field.number(name.as_bytes()), None, "{name}");
        }
        let scalar = Field::parse(br#"{"shape": [], "chunks": []}"#).unwrap();
        assert_eq!((scalar.number(b"0"), scalar.number(b"")), (Some(0), None));
        assert_eq!(&*scalar.name(0), b"0");
        let empty = Field::parse(br#"{"shape": [0], "chunks": [1]}"#).unwrap();
        assert_eq!((empty.chunks, empty.number(b"0")), (0, None));
    }

    #[test]
    fn arrays_that_cannot_be_read_are_refused() {
        for bad in [
            r#"{"shape": [1], "chunks": [0]}"#,
            r#"{"shape": [1], "chunks": []}"#,
            r#"{"shape": [-1], "chunks": [1]}"#,
            r#"{"shape": [9223372036854775807, 9], "chunks": [1, 1]}"#,
            r#"{"shape": [1], "chunks": [1], "dimension_separator": "/"}"#,
            "[]",
            "{",
        ] {
            assert!(Field::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
