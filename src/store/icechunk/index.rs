//! The keys of one snapshot: `zarr.json` of each node, and the chunks that manifests refer to.
//!
//! Finding a chunk sends no request for the chunk. Manifests are read one after the other, and kept only as
//! long as the budget of [`Files`] permits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Containers;
use super::chunk_key::{ChildNames, ChunkName};
use super::files::{Files, file_key};
use super::format::FormatError;
use super::id::ObjectId;
use super::location;
use super::manifest::{Checksum, Location, Manifest, Refs};
use super::snapshot::{Array, ManifestRef, NodeIndex, Snapshot};
use crate::cache::WeightedLru;
use crate::store::reference::{Child, Entry, Page, Precondition, Reference};
use crate::store::{Key, StoreError};
use crate::sync::Mutex;

/// The metadata document of a node.
const DOCUMENT: &[u8] = b"zarr.json";
/// Number of chunk names in one page of a listing.
const PAGE_NAMES: usize = 1024;
/// Memory limit of the cached array descriptions: the limit of one file divided by this.
const ARRAYS_SHARE: u64 = 8;
/// Largest number of cached array descriptions.
const MAX_ARRAYS: usize = 1024;
/// The parts of a position in a flat listing (see `flat`).
const TAG_MASK: u64 = 0xff << 56;
const POSITION_MASK: u64 = u32::MAX as u64;

/// The keys of one snapshot.
#[derive(Debug)]
pub(super) struct SnapshotIndex {
    snapshot: Snapshot,
    files: Arc<Files>,
    /// URL prefixes of containers of virtual chunks, by name.
    containers: Containers,
    arrays: Mutex<WeightedLru<NodeIndex, Arc<Array>>>,
}

/// The result of looking up a key in the snapshot.
#[derive(Debug)]
enum KeyLookup {
    Entry(Entry),
    /// A chunk or a prefix of chunks, which manifests may contain.
    Chunk(Arc<Array>, ChunkName),
}

/// The result of looking up a name in a manifest.
enum ManifestLookup {
    Absent,
    Found(Entry),
}

impl SnapshotIndex {
    pub(super) fn new(snapshot: Snapshot, files: Arc<Files>, containers: Containers) -> Self {
        let budget_bytes = files.limit_bytes() / ARRAYS_SHARE;
        Self {
            snapshot,
            files,
            containers,
            arrays: Mutex::new(WeightedLru::new(budget_bytes, MAX_ARRAYS)),
        }
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn file(&self) -> String {
        format!("snapshots/{}", self.snapshot.id())
    }

    /// Returns the array at a node; `None` for a group.
    fn array(&self, node: NodeIndex, key: &Key) -> Result<Option<Arc<Array>>, StoreError> {
        if let Some(array) = self.arrays.lock().get(&node) {
            return Ok(Some(Arc::clone(array)));
        }
        let limit_bytes = self.files.limit_bytes() / ARRAYS_SHARE;
        let array = self.snapshot.array(node, limit_bytes);
        let Some(array) = array.map_err(|error| error.of(key, &self.file()))? else {
            return Ok(None);
        };
        let (weight, array) = (array.memory_bytes(), Arc::new(array));
        let evicted = self.arrays.lock().insert(node, Arc::clone(&array), weight);
        drop(evicted);
        Ok(Some(array))
    }

    /// Returns the document of a node; `None` if it has none.
    fn document(&self, node: NodeIndex, key: &Key) -> Result<Option<Reference>, StoreError> {
        let range = self.snapshot.document(node);
        let Some(range) = range.map_err(|error| error.of(key, &self.file()))? else {
            return Ok(None);
        };
        let bytes = crate::store::part(self.snapshot.bytes(), range)?;
        let array = self.array(node, key);
        // If the array cannot be read, neither can its chunks.
        let chunks = array.ok().flatten().map_or(0, |array| array.chunks_hash());
        Ok(Some(Reference::Document(Arc::new(bytes.to_vec()), chunks)))
    }

    fn locate(&self, key: &Key) -> Result<KeyLookup, StoreError> {
        let absent = || StoreError::NotFound { key: key.clone() };
        let (node, below) = self.snapshot.locate(key.as_bytes());
        if below.is_empty() {
            return Ok(KeyLookup::Entry(Entry::Prefix));
        }
        if below == DOCUMENT {
            let document = self.document(node, key)?.ok_or_else(absent)?;
            return Ok(KeyLookup::Entry(Entry::Value(document)));
        }
        if below
            .strip_prefix(DOCUMENT)
            .is_some_and(|rest| rest.starts_with(b"/"))
        {
            return Err(StoreError::NotAPrefix { key: key.clone() });
        }
        // Chunk names of every encoding begin like this, whatever the document of the array says.
        if !matches!(below.first(), Some(b'c' | b'0'..=b'9')) {
            return Err(absent());
        }
        let array = self.array(node, key)?.ok_or_else(absent)?;
        let name = array.keys.parse(below).ok_or_else(absent)?;
        match name {
            // The name is `c`, a prefix if the array has chunks.
            ChunkName::Prefix(coordinates) if coordinates.is_empty() => {
                match array.manifests.is_empty() {
                    true => Err(absent()),
                    false => Ok(KeyLookup::Entry(Entry::Prefix)),
                }
            }
            name => Ok(KeyLookup::Chunk(array, name)),
        }
    }

    /// Returns the entry of a key, if all manifests that it needs are in memory.
    pub(super) fn try_find(&self, key: &Key) -> Option<Result<Entry, StoreError>> {
        let (array, name) = match self.locate(key) {
            Ok(KeyLookup::Chunk(array, name)) => (array, name),
            Ok(KeyLookup::Entry(entry)) => return Some(Ok(entry)),
            Err(error) => return Some(Err(error)),
        };
        for manifest in covering(&array, &name) {
            let loaded = self.files.cached_manifest(manifest.id)?;
            match self.look_up(key, manifest, &loaded, &array, &name) {
                Ok(ManifestLookup::Absent) => {}
                Ok(ManifestLookup::Found(entry)) => return Some(Ok(entry)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Err(StoreError::NotFound { key: key.clone() }))
    }

    /// Returns the entry of a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no manifest of the array has the key; errors of reading manifests.
    pub(super) async fn find(&self, key: &Key) -> Result<Entry, StoreError> {
        let (array, name) = match self.locate(key)? {
            KeyLookup::Chunk(array, name) => (array, name),
            KeyLookup::Entry(entry) => return Ok(entry),
        };
        for manifest in covering(&array, &name) {
            let loaded = self.manifest(key, manifest.id).await?;
            if let ManifestLookup::Found(entry) =
                self.look_up(key, manifest, &loaded, &array, &name)?
            {
                return Ok(entry);
            }
        }
        Err(StoreError::NotFound { key: key.clone() })
    }

    async fn manifest(&self, key: &Key, id: ObjectId) -> Result<Arc<Manifest>, StoreError> {
        let manifest = self.files.manifest(id).await;
        manifest.map_err(|error| about(error, key, &manifest_file(id)))
    }

    fn look_up(
        &self,
        key: &Key,
        manifest: &ManifestRef,
        loaded: &Manifest,
        array: &Array,
        name: &ChunkName,
    ) -> Result<ManifestLookup, StoreError> {
        let failed = |error: FormatError| error.of(key, &manifest_file(manifest.id));
        let refs = loaded
            .refs(&array.node_id, array.dimensions)
            .map_err(failed)?;
        let Some(refs) = refs else {
            return Ok(ManifestLookup::Absent);
        };
        match name {
            ChunkName::Chunk(coordinates) => match refs.find(coordinates).map_err(failed)? {
                Some(place) => {
                    let value = self.reference(loaded, refs, place).map_err(failed)?;
                    Ok(ManifestLookup::Found(Entry::Value(value?)))
                }
                None => Ok(ManifestLookup::Absent),
            },
            ChunkName::Prefix(first) => {
                let mut from = refs.bound(0, first, false).map_err(failed)?;
                let end = refs.bound(from, first, true).map_err(failed)?;
                // References outside of the extents belong to another manifest.
                while from < end {
                    let coordinates: Vec<u32> =
                        refs.coordinates(from).map_err(failed)?.iter().collect();
                    if manifest.covers(&coordinates) {
                        return Ok(ManifestLookup::Found(Entry::Prefix));
                    }
                    from += 1;
                }
                Ok(ManifestLookup::Absent)
            }
        }
    }

    /// Returns the location of the bytes of a chunk. The inner result concerns only this chunk.
    fn reference(
        &self,
        manifest: &Manifest,
        refs: Refs<'_>,
        place: usize,
    ) -> Result<Result<Reference, StoreError>, FormatError> {
        Ok(match refs.location(place)? {
            Location::Inline(range) => crate::store::part(manifest.bytes(), range)
                .map(|bytes| Reference::Inline(Arc::new(bytes.to_vec()))),
            Location::Native { id, range } => {
                file_key("chunks", id).map(|key| Reference::SameStore { key, range })
            }
            Location::Virtual {
                url,
                range,
                checksum,
            } => Ok(Reference::Target {
                url: location::target(&url, &self.containers)?.into(),
                range: Some(range),
                precondition: checksum.map(|checksum| match checksum {
                    Checksum::ETag(tag) => Precondition::ETag(tag.into()),
                    Checksum::NotAfter(seconds) => Precondition::NotModifiedSince(seconds.into()),
                }),
            }),
        })
    }

    /// Returns a page of the names below a prefix. Documents and nodes come first, then chunks in the order
    /// of their coordinates.
    ///
    /// # Errors
    /// As [`SnapshotIndex::find`].
    pub(super) async fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError> {
        let (node, below) = self.snapshot.locate(prefix.as_bytes());
        if !below.is_empty() {
            let (array, name) = match self.locate(prefix)? {
                KeyLookup::Chunk(array, name) => (array, name),
                KeyLookup::Entry(Entry::Prefix) => (
                    self.array(node, prefix)?
                        .ok_or_else(|| StoreError::NotFound {
                            key: prefix.clone(),
                        })?,
                    ChunkName::Prefix(Vec::new()),
                ),
                KeyLookup::Entry(Entry::Value(_)) => {
                    let key = prefix.clone();
                    return Err(StoreError::NotAPrefix { key });
                }
            };
            let ChunkName::Prefix(first) = name else {
                self.find(prefix).await?;
                let key = prefix.clone();
                return Err(StoreError::NotAPrefix { key });
            };
            if position == 0 && !first.is_empty() {
                // Fails if the prefix does not exist.
                self.find(prefix).await?;
            }
            return self.nested(prefix, &array, &first, position).await;
        }
        match position.checked_sub(1) {
            None => self.top(prefix, node),
            Some(position) => match self.array(node, prefix)? {
                Some(array) if array.keys.top() == ChildNames::Flat => {
                    let page = self.flat(prefix, &array, position).await?;
                    Ok(self.without_nodes(prefix, behind(page, 1)))
                }
                Some(array) => {
                    let page = self.nested(prefix, &array, &[], position).await?;
                    Ok(self.without_nodes(prefix, behind(page, 1)))
                }
                None => Ok(Page::default()),
            },
        }
    }

    /// Returns the first page: the document of a node, and the nodes below it.
    fn top(&self, prefix: &Key, node: NodeIndex) -> Result<Page, StoreError> {
        let nodes = self
            .snapshot
            .children(node)
            .map(|(_, name)| prefix_child(name));
        let mut children: Vec<Child> = nodes.collect();
        let document = self.document(node, prefix);
        if let Some(document) = document.unwrap_or(Some(Reference::Unreadable)) {
            children.push(value_child(DOCUMENT, document));
        }
        let mut next = None;
        if let Some(array) = self
            .array(node, prefix)?
            .filter(|array| !array.manifests.is_empty())
        {
            match array.keys.top() {
                ChildNames::C if self.is_node(prefix, b"c") => {}
                ChildNames::C => children.push(prefix_child(b"c")),
                ChildNames::Flat | ChildNames::Nested => next = Some(1),
            }
        }
        Ok(Page { children, next })
    }

    fn is_node(&self, parent: &Key, name: &[u8]) -> bool {
        let key = parent.join(name);
        key.is_ok_and(|key| self.snapshot.locate(key.as_bytes()).1.is_empty())
    }

    /// Removes the names of nodes from a page.
    fn without_nodes(&self, parent: &Key, mut page: Page) -> Page {
        page.children
            .retain(|child| !self.is_node(parent, &child.name));
        page
    }

    /// Returns names of the coordinate that follows `first`. A position is the smallest coordinate to return.
    async fn nested(
        &self,
        prefix: &Key,
        array: &Array,
        first: &[u32],
        position: u64,
    ) -> Result<Page, StoreError> {
        let Ok(from) = u32::try_from(position) else {
            return Ok(Page::default());
        };
        let is_last = first.len() + 1 == array.dimensions;
        let mut names: BTreeMap<u32, Reference> = BTreeMap::new();
        for manifest in array
            .manifests
            .iter()
            .filter(|manifest| manifest.covers(first))
        {
            let is_full = names.len() == PAGE_NAMES;
            let last = names
                .last_key_value()
                .filter(|_| is_full)
                .map(|(last, _)| *last);
            if !manifest.reaches(first.len(), from, last.unwrap_or(u32::MAX)) {
                continue;
            }
            let loaded = self.manifest(prefix, manifest.id).await?;
            let failed = |error: FormatError| error.of(prefix, &manifest_file(manifest.id));
            let refs = loaded
                .refs(&array.node_id, array.dimensions)
                .map_err(failed)?;
            let Some(refs) = refs else { continue };
            let places = distinct(refs, manifest, first, from).map_err(failed)?;
            for (coordinate, place) in places {
                let reference = match is_last {
                    true => self.listed(&loaded, refs, place),
                    false => Reference::Unreadable,
                };
                names.entry(coordinate).or_insert(reference);
            }
            while names.len() > PAGE_NAMES {
                names.pop_last();
            }
        }
        let next = names.last_key_value().filter(|_| names.len() == PAGE_NAMES);
        let next = next.map(|(last, _)| u64::from(*last).saturating_add(1));
        let children = names.into_iter().map(|(coordinate, reference)| {
            let name = coordinate.to_string();
            match is_last {
                true => value_child(name.as_bytes(), reference),
                false => prefix_child(name.as_bytes()),
            }
        });
        Ok(Page {
            children: children.collect(),
            next,
        })
    }

    /// Returns names with all coordinates. A position consists of a tag of the snapshot (8 bits), the number
    /// of a manifest (24 bits), and a place in that manifest (32 bits).
    async fn flat(&self, prefix: &Key, array: &Array, position: u64) -> Result<Page, StoreError> {
        let tag = u64::from(self.snapshot.id().0[0]) << 56;
        if position != 0 && position & TAG_MASK != tag {
            return Err(StoreError::Stale {
                key: prefix.clone(),
                what: "the branch has moved while it was listed".into(),
            });
        }
        let number = crate::store::in_memory((position & !TAG_MASK) >> 32)?;
        let from = crate::store::in_memory(position & POSITION_MASK)?;
        let Some(manifest) = array.manifests.get(number) else {
            return Ok(Page::default());
        };
        let loaded = self.manifest(prefix, manifest.id).await?;
        let failed = |error: FormatError| error.of(prefix, &manifest_file(manifest.id));
        let refs = loaded
            .refs(&array.node_id, array.dimensions)
            .map_err(failed)?;
        let length = refs.map_or(0, |refs| refs.len());
        let end = from.saturating_add(PAGE_NAMES).min(length);
        let mut children = Vec::new();
        for (refs, place) in refs
            .into_iter()
            .flat_map(|refs| (from..end).map(move |at| (refs, at)))
        {
            let coordinates: Vec<u32> = refs.coordinates(place).map_err(failed)?.iter().collect();
            if manifest.covers(&coordinates) {
                let name = array.keys.flat_name(coordinates.into_iter());
                let reference = self.listed(&loaded, refs, place);
                children.push(value_child(name.as_bytes(), reference));
            }
        }
        let (number, place) = match end < length {
            true => (number, end),
            false => (number + 1, 0),
        };
        let next = tag | (number as u64) << 32 | place as u64;
        let next = (number < array.manifests.len()).then_some(next);
        Ok(Page { children, next })
    }

    /// Returns the reference of a listed name.
    fn listed(&self, manifest: &Manifest, refs: Refs<'_>, place: usize) -> Reference {
        match self.reference(manifest, refs, place) {
            Ok(Ok(reference)) => reference,
            Ok(Err(_)) | Err(_) => Reference::Unreadable,
        }
    }
}

/// Returns the manifests that may contain a name.
fn covering<'a>(array: &'a Array, name: &'a ChunkName) -> impl Iterator<Item = &'a ManifestRef> {
    let (ChunkName::Prefix(first) | ChunkName::Chunk(first)) = name;
    let manifests = array.manifests.iter();
    manifests.filter(move |manifest| manifest.covers(first))
}

/// Returns the first place of each next coordinate from `from` on, at most as many as fit into a page.
fn distinct(
    refs: Refs<'_>,
    manifest: &ManifestRef,
    first: &[u32],
    from: u32,
) -> Result<Vec<(u32, usize)>, FormatError> {
    let axis = first.len();
    let mut bound = first.to_vec();
    bound.push(from);
    let mut place = refs.bound(0, &bound, false)?;
    let end = refs.bound(place, first, true)?;
    let mut places = Vec::new();
    while place < end && places.len() < PAGE_NAMES {
        let coordinates: Vec<u32> = refs.coordinates(place)?.iter().collect();
        let Some(coordinate) = coordinates.get(axis).copied() else {
            return Err(FormatError::malformed("references of other dimensions"));
        };
        if !manifest.covers(&coordinates) {
            place += 1;
            continue;
        }
        places.push((coordinate, place));
        bound.truncate(axis);
        bound.push(coordinate);
        place = refs.bound(place, &bound, true)?;
    }
    Ok(places)
}

/// Adds `by` to the position of the next page.
fn behind(mut page: Page, by: u64) -> Page {
    page.next = page.next.and_then(|next| next.checked_add(by));
    page
}

fn prefix_child(name: &[u8]) -> Child {
    Child {
        name: name.into(),
        reference: None,
    }
}

fn value_child(name: &[u8], reference: Reference) -> Child {
    Child {
        name: name.into(),
        reference: Some(reference),
    }
}

fn manifest_file(id: ObjectId) -> String {
    format!("manifests/{id}")
}

/// Converts the failure to read a file into an error of `key`, which needs the file.
fn about(error: StoreError, key: &Key, file: &str) -> StoreError {
    let key = key.clone();
    match error {
        StoreError::Corrupt { what, .. } if !what.contains(file) => StoreError::Corrupt {
            key,
            what: format!("{file} of the repository: {what}"),
        },
        StoreError::Unavailable { what, .. } => StoreError::Unavailable {
            key,
            what: format!("{file} of the repository: {what}"),
        },
        StoreError::Denied { what, status, .. } => StoreError::Denied {
            key,
            what: format!("{file} of the repository: {what}"),
            status,
        },
        error => error.with_key(key),
    }
}
