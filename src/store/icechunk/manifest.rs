//! Manifests: the locations of the chunks of arrays (`manifest.fbs`).
//!
//! **Invariant:** [`Manifest::decode`] has proved that the references of an array are in strictly ascending
//! order of their coordinates, so that a binary search proves absence. If an array violates this, every
//! lookup in it fails.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use zstd::dict::DecoderDictionary;
use zstd::zstd_safe::{DCtx, get_error_name};

use super::flatbuffers::{Offsets, Table, Vector};
use super::format::{FileType, FormatError, decode, required};
use super::id::ObjectId;
use super::snapshot::MAX_DIMENSIONS;

/// Slots of the tables.
mod slot {
    pub(super) const ID: usize = 0;
    pub(super) const ARRAYS: usize = 1;
    pub(super) const LOCATION_DICTIONARY: usize = 2;
    pub(super) const COMPRESSION_ALGORITHM: usize = 3;

    pub(super) const NODE_ID: usize = 0;
    pub(super) const REFS: usize = 1;

    pub(super) const INDEX: usize = 0;
    pub(super) const INLINE: usize = 1;
    pub(super) const OFFSET: usize = 2;
    pub(super) const LENGTH: usize = 3;
    pub(super) const CHUNK_ID: usize = 4;
    pub(super) const LOCATION: usize = 5;
    pub(super) const CHECKSUM_ETAG: usize = 6;
    pub(super) const CHECKSUM_LAST_MODIFIED: usize = 7;
    pub(super) const COMPRESSED_LOCATION: usize = 8;
}

/// The compression algorithm of locations: zstd with a dictionary.
const ZSTD_DICTIONARY: u8 = 1;
/// Length of the longest location in bytes.
const MAX_LOCATION_BYTES: usize = 8192;
/// Smallest size of a reference in bytes, so that a short file cannot claim many.
const MIN_REF_BYTES: usize = 8;

thread_local! {
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// The decoded references of one file.
pub(super) struct Manifest {
    bytes: Vec<u8>,
    /// Sorted by node ID.
    arrays: Vec<ArrayRefs>,
    dictionary: Option<DecoderDictionary<'static>>,
}

/// The references of one array.
#[derive(Debug)]
struct ArrayRefs {
    node_id: [u8; 8],
    /// The position of the vector of references, or why they cannot be searched.
    refs: Result<usize, FormatError>,
}

/// The references of one array in a manifest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refs<'a> {
    manifest: &'a Manifest,
    tables: Offsets<'a>,
    dimensions: usize,
}

/// The location of the bytes of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// In the manifest.
    Inline(Range<usize>),
    /// In a file of the repository itself.
    Native {
        /// The ID of the file.
        id: ObjectId,
        /// The byte range in the file.
        range: Range<u64>,
    },
    /// In a file outside of the repository.
    Virtual {
        /// An absolute URL, or one relative to a container.
        url: String,
        /// The byte range in the file.
        range: Range<u64>,
        /// Identifies the version of the file that the reference is for.
        checksum: Option<Checksum>,
    },
}

/// Identifies a version of a file outside of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checksum {
    /// The entity tag (ETag) of the file.
    ETag(String),
    /// The file was not changed after this time, in seconds since 1970.
    NotAfter(u32),
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Manifest({} arrays, {} bytes)",
            self.arrays.len(),
            self.bytes.len()
        )
    }
}

impl Manifest {
    /// Decodes the file of a manifest, which takes at most `limit_bytes` of memory.
    pub(super) fn decode(id: ObjectId, file: &[u8], limit_bytes: u64) -> Result<Self, FormatError> {
        let bytes = decode(file, FileType::Manifest, limit_bytes)?;
        let root = Table::root(&bytes)?;
        if required(root.fixed(slot::ID)?, "id")? != id.0 {
            return Err(FormatError::malformed("the file of another manifest"));
        }
        let arrays = arrays(&bytes, root)?;
        let algorithm = root
            .u8(slot::COMPRESSION_ALGORITHM)?
            .unwrap_or(ZSTD_DICTIONARY);
        let dictionary = root.bytes(slot::LOCATION_DICTIONARY)?;
        let dictionary = dictionary.filter(|_| algorithm == ZSTD_DICTIONARY);
        Ok(Self {
            dictionary: dictionary.map(DecoderDictionary::copy),
            arrays,
            bytes,
        })
    }

    /// All bytes of the file; inline chunks are ranges of them.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that the manifest takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let arrays = self.arrays.len().saturating_mul(size_of::<ArrayRefs>());
        self.bytes.len().saturating_add(arrays) as u64
    }

    /// Returns the IDs of all arrays, and the number of dimensions of their references.
    #[cfg(feature = "fuzzing")]
    pub(super) fn arrays(&self) -> impl Iterator<Item = ([u8; 8], usize)> {
        self.arrays.iter().filter_map(|array| {
            let refs = Offsets::at(&self.bytes, array.refs.clone().ok()?).ok()?;
            let first = coordinates(refs.table(0).ok()?).ok()?;
            Some((array.node_id, first.len()))
        })
    }

    /// Returns the references of an array with this number of dimensions; `None` if there are none.
    pub(super) fn refs(
        &self,
        node_id: &[u8; 8],
        dimensions: usize,
    ) -> Result<Option<Refs<'_>>, FormatError> {
        let found = self
            .arrays
            .binary_search_by_key(node_id, |array| array.node_id);
        let Some(array) = found.ok().and_then(|found| self.arrays.get(found)) else {
            return Ok(None);
        };
        let tables = Offsets::at(&self.bytes, array.refs.clone()?)?;
        let refs = Refs {
            manifest: self,
            tables,
            dimensions,
        };
        if refs.len() > 0 && refs.coordinates(0)?.len() != dimensions {
            return Err(FormatError::malformed(
                "references of other dimensions than their array",
            ));
        }
        Ok(Some(refs))
    }
}

/// Finds the arrays, and checks the order of their references.
fn arrays(bytes: &[u8], root: Table<'_>) -> Result<Vec<ArrayRefs>, FormatError> {
    let tables: Offsets<'_> = required(root.vector(slot::ARRAYS)?, "arrays")?;
    let mut arrays: Vec<ArrayRefs> = Vec::new();
    // Number of references for which the file has room, since those of different arrays do not share bytes.
    let mut left = bytes.len() / MIN_REF_BYTES;
    for table in tables.tables() {
        let table = table?;
        let node_id: [u8; 8] = required(table.fixed(slot::NODE_ID)?, "node id")?;
        if arrays.last().is_some_and(|last| last.node_id >= node_id) {
            return Err(FormatError::malformed(
                "arrays that are not in ascending order",
            ));
        }
        let refs = checked_refs(table, &mut left);
        arrays.push(ArrayRefs { node_id, refs });
    }
    Ok(arrays)
}

/// Returns the position of the references of an array, after checking that they are strictly ascending.
fn checked_refs(array: Table<'_>, left: &mut usize) -> Result<usize, FormatError> {
    let tables: Offsets<'_> = required(array.vector(slot::REFS)?, "references")?;
    *left = left
        .checked_sub(tables.len())
        .ok_or_else(|| FormatError::malformed("more references than the file has room for"))?;
    let mut last: Option<Coordinates<'_>> = None;
    for table in tables.tables() {
        let here = coordinates(table?)?;
        // The vectors of a hostile file can share their bytes, so that its length does not limit their sum.
        if here.len() > MAX_DIMENSIONS {
            return Err(FormatError::malformed("a reference of too many dimensions"));
        }
        if let Some(last) = last
            && (last.len() != here.len() || last.compare(here.iter()) != Ordering::Less)
        {
            return Err(FormatError::malformed(
                "references that are not in ascending order",
            ));
        }
        last = Some(here);
    }
    Ok(tables.position())
}

/// The coordinates of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coordinates<'a>(Vector<'a, 4>);

fn coordinates(table: Table<'_>) -> Result<Coordinates<'_>, FormatError> {
    required(table.vector(slot::INDEX)?, "index").map(Coordinates)
}

impl<'a> Coordinates<'a> {
    fn len(self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> + 'a {
        let (numbers, _) = self.0.items().as_chunks();
        numbers.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Compares with `other`; if `other` has fewer coordinates, compares only as many.
    fn compare(self, other: impl Iterator<Item = u32>) -> Ordering {
        let pairs = self.iter().zip(other);
        let mut orders = pairs.map(|(one, other)| one.cmp(&other));
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl<'a> Refs<'a> {
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn coordinates(&self, place: usize) -> Result<Coordinates<'a>, FormatError> {
        coordinates(self.tables.table(place)?)
    }

    /// Returns the first place from `from` on whose first coordinates are not less than `first`, or, if
    /// `is_behind`, greater than `first`.
    pub(super) fn bound(
        &self,
        from: usize,
        first: &[u32],
        is_behind: bool,
    ) -> Result<usize, FormatError> {
        let (mut low, mut high) = (from, self.len());
        // The place is mostly near `from`: doubling steps find the part to search.
        let mut step = 1_usize;
        while low < high {
            let probe = low.saturating_add(step - 1);
            if probe >= high {
                break;
            }
            if self.is_before(probe, first, is_behind)? {
                low = probe.saturating_add(1);
                step = step.saturating_mul(2);
            } else {
                high = probe;
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.is_before(middle, first, is_behind)? {
                true => low = middle.saturating_add(1),
                false => high = middle,
            }
        }
        Ok(low)
    }

    fn is_before(&self, place: usize, first: &[u32], is_behind: bool) -> Result<bool, FormatError> {
        let order = self.coordinates(place)?.compare(first.iter().copied());
        Ok(order == Ordering::Less || (is_behind && order == Ordering::Equal))
    }

    /// Returns the place of a chunk; `None` proves that the manifest has no reference to it.
    pub(super) fn find(&self, coordinates: &[u32]) -> Result<Option<usize>, FormatError> {
        if coordinates.len() != self.dimensions {
            return Ok(None);
        }
        let place = self.bound(0, coordinates, false)?;
        let is_there = place < self.len() && !self.is_before_or_behind(place, coordinates)?;
        Ok(is_there.then_some(place))
    }

    fn is_before_or_behind(&self, place: usize, other: &[u32]) -> Result<bool, FormatError> {
        let order = self.coordinates(place)?.compare(other.iter().copied());
        Ok(order != Ordering::Equal)
    }

    /// Returns the location of the bytes of a chunk.
    pub(super) fn location(&self, place: usize) -> Result<Location, FormatError> {
        let table = self.tables.table(place)?;
        let inline: Option<Vector<'_, 1>> = table.vector(slot::INLINE)?;
        let chunk_id: Option<[u8; 12]> = table.fixed(slot::CHUNK_ID)?;
        let url = table.string(slot::LOCATION)?;
        let compressed = table.bytes(slot::COMPRESSED_LOCATION)?;
        match (inline, chunk_id, url, compressed) {
            (Some(inline), None, None, None) => {
                let start = inline.position();
                Ok(Location::Inline(start..start.saturating_add(inline.len())))
            }
            (None, Some(id), None, None) => Ok(Location::Native {
                id: ObjectId(id),
                range: range(table)?,
            }),
            (None, None, Some(url), None) => virtual_location(table, url.to_owned()),
            (None, None, None, Some(compressed)) => {
                virtual_location(table, self.manifest.decompress(compressed)?)
            }
            _ => Err(FormatError::malformed(
                "a reference of no kind, or of two kinds",
            )),
        }
    }
}

fn range(table: Table<'_>) -> Result<Range<u64>, FormatError> {
    let (offset, length) = (table.u64(slot::OFFSET)?, table.u64(slot::LENGTH)?);
    let end = offset
        .checked_add(length)
        .filter(|end| i64::try_from(*end).is_ok());
    match end {
        Some(end) if length > 0 => Ok(offset..end),
        Some(_) => Err(FormatError::malformed("a reference to 0 bytes")),
        None => Err(FormatError::malformed(
            "a reference beyond the end of any file",
        )),
    }
}

fn virtual_location(table: Table<'_>, url: String) -> Result<Location, FormatError> {
    let etag = table.string(slot::CHECKSUM_ETAG)?;
    let checksum = match (etag, table.u32(slot::CHECKSUM_LAST_MODIFIED)?) {
        (Some(etag), _) => Some(Checksum::ETag(etag.to_owned())),
        (None, 0) => None,
        (None, seconds) => Some(Checksum::NotAfter(seconds)),
    };
    Ok(Location::Virtual {
        url,
        range: range(table)?,
        checksum,
    })
}

impl Manifest {
    fn decompress(&self, compressed: &[u8]) -> Result<String, FormatError> {
        let no_dictionary = || FormatError::malformed("a compressed location and no dictionary");
        let dictionary = self.dictionary.as_ref().ok_or_else(no_dictionary)?;
        let failed = |what: &str| FormatError::malformed(format!("a compressed location: {what}"));
        let url = CONTEXT.with_borrow_mut(|context| {
            let context = match context {
                Some(context) => context,
                None => context.insert(DCtx::try_create().ok_or_else(|| failed("no memory"))?),
            };
            let mut url = Vec::with_capacity(MAX_LOCATION_BYTES);
            context
                .decompress_using_ddict(&mut url, compressed, dictionary.as_ddict())
                .map_err(|code| failed(get_error_name(code)))?;
            Ok::<_, FormatError>(url)
        })?;
        String::from_utf8(url).map_err(|_| FormatError::malformed("a location is not UTF-8"))
    }
}
