//! Snapshots: all groups and arrays of one version of the repository (`snapshot.fbs`).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::chunk_key::ChunkKeys;
use super::flatbuffers::{Offsets, Table, Vector};
use super::format::{FileType, FormatError, decode, required};
use super::id::ObjectId;
use crate::store::{MAX_COMPONENT_BYTES, MAX_KEY_BYTES};

/// Largest number of dimensions of an array.
pub(super) const MAX_DIMENSIONS: usize = 128;
/// The metadata document of a node; no node can have this name.
const DOCUMENT: &[u8] = b"zarr.json";

/// Slots of the tables.
mod slot {
    pub(super) const ID: usize = 0;
    pub(super) const PARENT_ID: usize = 1;
    pub(super) const NODES: usize = 2;
    pub(super) const FLUSHED_AT: usize = 3;
    pub(super) const MESSAGE: usize = 4;

    pub(super) const NODE_ID: usize = 0;
    pub(super) const NODE_PATH: usize = 1;
    pub(super) const NODE_USER_DATA: usize = 2;
    pub(super) const NODE_DATA_TYPE: usize = 3;
    pub(super) const NODE_DATA: usize = 4;

    pub(super) const ARRAY_SHAPE: usize = 0;
    pub(super) const ARRAY_MANIFESTS: usize = 2;
    pub(super) const ARRAY_SHAPE_V2: usize = 3;

    pub(super) const MANIFEST_ID: usize = 0;
    pub(super) const MANIFEST_EXTENTS: usize = 1;
}

/// The tag of arrays in the union of node data.
const ARRAY: u8 = 1;
/// Sizes in bytes of a `DimensionShape` and of a `ChunkIndexRange`.
const DIMENSION_BYTES: usize = 16;
const RANGE_BYTES: usize = 8;

/// One version of the hierarchy.
#[derive(Debug)]
pub(super) struct Snapshot {
    id: ObjectId,
    bytes: Arc<Vec<u8>>,
    /// The position of the items of the vector of nodes.
    table: usize,
    /// Sorted so that a node precedes the nodes below it. The first node is the root.
    nodes: Vec<Node>,
    hidden_nodes: usize,
    flushed_at_us: u64,
}

/// A group, an array, or a prefix that only nodes below it imply.
#[derive(Debug)]
struct Node {
    /// The range of the path in `bytes`, without the first `/`.
    path: Range<u32>,
    /// The index in the vector of nodes; `None` for an implied node.
    place: Option<u32>,
    /// The index of the first node after those below this one.
    end: u32,
}

/// The index of a node in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeIndex(u32);

/// The description of an array in the snapshot.
#[derive(Debug)]
pub(super) struct Array {
    /// Identifies the array in manifests.
    pub(super) node_id: [u8; 8],
    pub(super) dimensions: usize,
    pub(super) keys: ChunkKeys,
    /// Sorted by the first coordinates.
    pub(super) manifests: Vec<ManifestRef>,
}

/// A manifest, and the coordinates of the chunks that it holds.
#[derive(Debug)]
pub(super) struct ManifestRef {
    pub(super) id: ObjectId,
    /// The range in each dimension; empty if the manifest holds all chunks.
    extents: Box<[Range<u32>]>,
}

impl ManifestRef {
    /// Whether the manifest can hold chunks whose first coordinates are `coordinates`.
    pub(super) fn covers(&self, coordinates: &[u32]) -> bool {
        let mut pairs = self.extents.iter().zip(coordinates);
        pairs.all(|(extent, coordinate)| extent.contains(coordinate))
    }

    /// Whether the manifest can hold chunks with a coordinate from `first` to `last` (inclusive) on `axis`.
    pub(super) fn reaches(&self, axis: usize, first: u32, last: u32) -> bool {
        let extent = self.extents.get(axis);
        extent.is_none_or(|extent| extent.end > first && extent.start <= last)
    }
}

impl Array {
    /// Returns a hash that differs if any chunk may differ.
    pub(super) fn chunks_hash(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        self.node_id.hash(&mut hasher);
        for manifest in &self.manifests {
            manifest.id.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Bytes that the description takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let extents = self.dimensions.saturating_mul(size_of::<Range<u32>>());
        let each = size_of::<ManifestRef>().saturating_add(extents);
        self.manifests.len().saturating_mul(each) as u64
    }
}

impl Snapshot {
    /// Decodes the file of a snapshot, which takes at most `limit_bytes` of memory.
    pub(super) fn decode(id: ObjectId, file: &[u8], limit_bytes: u64) -> Result<Self, FormatError> {
        let bytes = Arc::new(decode(file, FileType::Snapshot, limit_bytes)?);
        let root = Table::root(&bytes)?;
        if required(root.fixed(slot::ID)?, "id")? != id.0 {
            return Err(FormatError::malformed("the file of another snapshot"));
        }
        let tables: Offsets<'_> = required(root.vector(slot::NODES)?, "nodes")?;
        let (paths, hidden_nodes) = paths(&bytes, tables, limit_bytes)?;
        Ok(Self {
            id,
            table: tables.position(),
            nodes: tree(&bytes, paths, limit_bytes)?,
            hidden_nodes,
            flushed_at_us: root.u64(slot::FLUSHED_AT)?,
            bytes,
        })
    }

    pub(super) fn id(&self) -> ObjectId {
        self.id
    }

    /// All bytes of the file; documents are ranges of them.
    pub(super) fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }

    /// Number of nodes whose paths are impossible on Linux.
    pub(super) fn hidden_nodes(&self) -> usize {
        self.hidden_nodes
    }

    /// Commit time, in microseconds since 1970.
    pub(super) fn flushed_at_us(&self) -> u64 {
        self.flushed_at_us
    }

    pub(super) fn message(&self) -> Result<&str, FormatError> {
        Ok(Table::root(&self.bytes)?
            .string(slot::MESSAGE)?
            .unwrap_or_default())
    }

    /// Returns the parent snapshot, which only version 1 of the format stores.
    pub(super) fn parent(&self) -> Result<Option<ObjectId>, FormatError> {
        let parent = Table::root(&self.bytes)?.fixed(slot::PARENT_ID)?;
        Ok(parent.map(ObjectId))
    }

    /// Returns the nearest node at or above a key, and the rest of the key.
    pub(super) fn locate<'k>(&self, key: &'k [u8]) -> (NodeIndex, &'k [u8]) {
        let mut path = key;
        loop {
            let found = self
                .nodes
                .binary_search_by(|node| compare(bytes_of(&self.bytes, &node.path), path));
            if let Ok(found) = found {
                let below = key.get(path.len()..).unwrap_or_default();
                let index = NodeIndex(u32::try_from(found).unwrap_or_default());
                return (index, below.strip_prefix(b"/").unwrap_or(below));
            }
            if path.is_empty() {
                // The root always exists.
                return (NodeIndex(0), key);
            }
            let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            path = path.get(..end).unwrap_or_default();
        }
    }

    fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(usize::try_from(index.0).ok()?)
    }

    /// Returns the nodes directly below a node, with their names, in byte order.
    pub(super) fn children(&self, parent: NodeIndex) -> impl Iterator<Item = (NodeIndex, &[u8])> {
        let end = self.node(parent).map_or(0, |node| node.end);
        let mut next = parent.0.saturating_add(1);
        std::iter::from_fn(move || {
            let index = NodeIndex(next);
            let node = self.node(index).filter(|_| next < end)?;
            next = node.end;
            let path = bytes_of(&self.bytes, &node.path);
            Some((
                index,
                path.rsplit(|byte| *byte == b'/').next().unwrap_or(path),
            ))
        })
    }

    /// Returns the table of a node; `None` for an implied node.
    fn table(&self, index: NodeIndex) -> Result<Option<Table<'_>>, FormatError> {
        let place = self.node(index).and_then(|node| node.place);
        let Some(place) = place.and_then(|place| usize::try_from(place).ok()) else {
            return Ok(None);
        };
        Offsets::at(&self.bytes, self.table)?.table(place).map(Some)
    }

    /// Returns the range of the `zarr.json` of a node; `None` if it has none.
    pub(super) fn document(&self, index: NodeIndex) -> Result<Option<Range<usize>>, FormatError> {
        let Some(table) = self.table(index)? else {
            return Ok(None);
        };
        let document: Vector<'_, 1> = required(table.vector(slot::NODE_USER_DATA)?, "user_data")?;
        let start = document.position();
        Ok(Some(start..start.saturating_add(document.len())))
    }

    /// Returns the description of an array, of at most `limit_bytes` of memory; `None` for a group.
    pub(super) fn array(
        &self,
        index: NodeIndex,
        limit_bytes: u64,
    ) -> Result<Option<Array>, FormatError> {
        let Some(table) = self.table(index)? else {
            return Ok(None);
        };
        if table.u8(slot::NODE_DATA_TYPE)? != Some(ARRAY) {
            return Ok(None);
        }
        let data = required(table.table(slot::NODE_DATA)?, "node_data")?;
        let dimensions = dimensions(data)?;
        let document = required(table.bytes(slot::NODE_USER_DATA)?, "user_data")?;
        Ok(Some(Array {
            node_id: required(table.fixed(slot::NODE_ID)?, "node id")?,
            dimensions,
            keys: ChunkKeys::of_document(document, dimensions)?,
            manifests: manifests(data, dimensions, limit_bytes)?,
        }))
    }
}

/// Returns the number of dimensions; version 2 of the format stores dimensions in a vector of tables.
fn dimensions(data: Table<'_>) -> Result<usize, FormatError> {
    let dimensions = match data.vector::<4>(slot::ARRAY_SHAPE_V2)? {
        Some(shape) => shape.len(),
        None => required(data.vector::<DIMENSION_BYTES>(slot::ARRAY_SHAPE)?, "shape")?.len(),
    };
    match dimensions {
        0..=MAX_DIMENSIONS => Ok(dimensions),
        _ => Err(FormatError::Unsupported(format!("{dimensions} dimensions"))),
    }
}

fn manifests(
    data: Table<'_>,
    dimensions: usize,
    limit_bytes: u64,
) -> Result<Vec<ManifestRef>, FormatError> {
    let tables: Offsets<'_> = required(data.vector(slot::ARRAY_MANIFESTS)?, "manifests")?;
    let extents_bytes = dimensions.saturating_mul(size_of::<Range<u32>>());
    let each = extents_bytes.saturating_add(size_of::<ManifestRef>());
    FormatError::check_limit(tables.len().saturating_mul(each), limit_bytes)?;
    let manifests = tables.tables().map(|table| {
        let table = table?;
        let id = required(table.fixed(slot::MANIFEST_ID)?, "id of a manifest")?;
        let extents: Vector<'_, RANGE_BYTES> = required(
            table.vector(slot::MANIFEST_EXTENTS)?,
            "extents of a manifest",
        )?;
        if extents.len() != dimensions && extents.len() != 0 {
            return Err(FormatError::malformed(
                "a manifest with extents of other dimensions",
            ));
        }
        let extents = (0..extents.len()).map(|axis| {
            let [a, b, c, d, e, f, g, h] = extents.fixed(axis)?;
            Ok(u32::from_le_bytes([a, b, c, d])..u32::from_le_bytes([e, f, g, h]))
        });
        Ok(ManifestRef {
            id: ObjectId(id),
            extents: extents.collect::<Result<_, FormatError>>()?,
        })
    });
    let mut manifests: Vec<ManifestRef> = manifests.collect::<Result<_, _>>()?;
    let starts = |manifest: &ManifestRef| -> Vec<u32> {
        manifest.extents.iter().map(|extent| extent.start).collect()
    };
    manifests.sort_by_cached_key(starts);
    Ok(manifests)
}

fn bytes_of<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let range = usize::try_from(range.start)
        .ok()
        .zip(usize::try_from(range.end).ok());
    let bytes = range.and_then(|(start, end)| bytes.get(start..end));
    bytes.unwrap_or_default()
}

/// Compares paths by components, so that a path directly precedes the paths below it.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    // Paths contain no byte 0.
    let order = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(order).cmp(other.iter().map(order))
}

/// Whether a path can be a key prefix, without components named like a document.
fn is_valid(path: &[u8]) -> bool {
    let is_valid_name = |name: &[u8]| {
        !matches!(name, b"" | b"." | b".." | DOCUMENT)
            && name.len() <= MAX_COMPONENT_BYTES
            && !name.contains(&0)
    };
    path.is_empty()
        || (path.len() <= MAX_KEY_BYTES && path.split(|byte| *byte == b'/').all(is_valid_name))
}

/// A path, and the index of its node in the vector of nodes.
type PathNode = (Range<u32>, u32);

/// Returns the sorted paths of all nodes, and the number of nodes without a valid path.
fn paths(
    bytes: &[u8],
    tables: Offsets<'_>,
    limit_bytes: u64,
) -> Result<(Vec<PathNode>, usize), FormatError> {
    FormatError::check_limit(
        tables.len().saturating_mul(size_of::<PathNode>()),
        limit_bytes,
    )?;
    let mut paths = Vec::new();
    let mut hidden = 0_usize;
    for (place, table) in (0_u32..).zip(tables.tables()) {
        let path: Vector<'_, 1> = required(table?.vector(slot::NODE_PATH)?, "path of a node")?;
        match path
            .items()
            .strip_prefix(b"/")
            .filter(|path| is_valid(path))
        {
            Some(valid) => {
                let end = path.position().saturating_add(path.len());
                let start = end.saturating_sub(valid.len());
                let range = u32::try_from(start).ok().zip(u32::try_from(end).ok());
                let range = range.ok_or_else(|| FormatError::malformed("a path beyond 4 GiB"))?;
                paths.push((range.0..range.1, place));
            }
            None => hidden = hidden.saturating_add(1),
        }
    }
    paths.sort_unstable_by(|(one, _), (other, _)| {
        compare(bytes_of(bytes, one), bytes_of(bytes, other))
    });
    let same = paths.windows(2).find_map(|pair| match pair {
        [(one, _), (other, _)] if bytes_of(bytes, one) == bytes_of(bytes, other) => Some(one),
        _ => None,
    });
    match same {
        Some(path) => {
            let path = String::from_utf8_lossy(bytes_of(bytes, path));
            Err(FormatError::malformed(format!(
                "two nodes have the path /{path}"
            )))
        }
        None => Ok((paths, hidden)),
    }
}

/// Adds the prefixes that paths imply, and sets the end of each node.
fn tree(bytes: &[u8], paths: Vec<PathNode>, limit_bytes: u64) -> Result<Vec<Node>, FormatError> {
    let mut nodes: Vec<Node> = Vec::new();
    // The previous node and its ancestors.
    let mut open: Vec<u32> = Vec::new();
    let mut push = |nodes: &mut Vec<Node>, path: Range<u32>, place| {
        let needed = nodes.len().saturating_mul(size_of::<Node>());
        FormatError::check_limit(needed, limit_bytes)?;
        let many = |_| FormatError::malformed("more nodes than can be numbered");
        let index = u32::try_from(nodes.len()).map_err(many)?;
        while let Some(last) = open.last().and_then(|last| usize::try_from(*last).ok())
            && let Some(above) = nodes.get_mut(last)
            && !is_below(bytes_of(bytes, &path), bytes_of(bytes, &above.path))
        {
            above.end = index;
            open.pop();
        }
        open.push(index);
        nodes.push(Node {
            path,
            place,
            end: u32::MAX,
        });
        Ok(())
    };
    if paths.first().is_none_or(|(path, _)| !path.is_empty()) {
        push(&mut nodes, 0..0, None)?;
    }
    for (path, place) in paths {
        let text = bytes_of(bytes, &path);
        let last = nodes
            .last()
            .map_or(&b""[..], |node| bytes_of(bytes, &node.path));
        let slashes = (path.start..).zip(text).filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            let above = path.start..end;
            let prefix = bytes_of(bytes, &above);
            if prefix != last && !is_below(last, prefix) {
                push(&mut nodes, above, None)?;
            }
        }
        push(&mut nodes, path, Some(place))?;
    }
    let end = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    for node in nodes.iter_mut().filter(|node| node.end == u32::MAX) {
        node.end = end;
    }
    Ok(nodes)
}

/// Whether a path is below another one.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) if above.is_empty() => !rest.is_empty(),
        Some(rest) => rest.first() == Some(&b'/'),
        None => false,
    }
}
