//! The keys below an array, classified as chunks and others.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::hierarchy::is_document_name;
use crate::store::{Key, Kind, Listed, Listing, Store, StoreError, Visited};
use crate::zarr::chunk_key::KeyEncoding;
use crate::zarr::chunk_names::{ChunkEntry, ChunkNames};
use crate::zarr::{ATTRIBUTES_JSON, Array, ChunkGrid, ChunkKeys, v1};

/// The class of a key below an array.
#[derive(Debug)]
pub(super) enum KeyClass {
    /// A chunk, with its index in C order over the grid.
    Chunk(u64),
    /// A document, a directory above chunks, or any key if the names of chunks are unknown.
    Other,
    /// A value or a directory that does not belong to the array.
    Stray,
    /// A directory with the key of a chunk, or a value with the key of a directory of chunks.
    Misplaced(&'static str),
    /// A directory whose listing fails.
    Unlistable(StoreError),
}

/// One key below an array or in a directory.
#[derive(Debug)]
pub(super) struct ListedKey {
    pub(super) key: Key,
    pub(super) class: KeyClass,
    /// Whether the key has a value.
    pub(super) is_value: bool,
    /// The size of the value, if the listing has it.
    pub(super) size_bytes: Option<u64>,
}

/// The names of the chunks of an array.
#[derive(Debug, Clone)]
pub(super) struct ChunkKeyParser {
    keys: ChunkKeys,
    grid: ChunkGrid,
}

/// A directory that remains to be listed.
struct PendingDirectory {
    key: Key,
    /// The number of names from the array to the directory.
    depth: usize,
    is_stray: bool,
    /// The interrupted listing, and the cookie at which it continues.
    listing: Option<(Box<dyn Listing>, u64)>,
}

/// The keys below an array or in a directory, in the order of the store's listings.
pub(super) struct KeyWalk<'a> {
    store: &'a dyn Store,
    names: Option<&'a ChunkKeyParser>,
    /// The length of the array's key with its separator, in bytes.
    prefix_bytes: usize,
    /// Whether subdirectories are listed too.
    is_recursive: bool,
    pending: Vec<PendingDirectory>,
    found: VecDeque<ListedKey>,
}

/// The number of names after which a listing pauses until their keys and directories have been returned. The
/// number of keys of a chunk grid has no bound.
const MAX_FOUND: usize = 1024;

impl ChunkKeyParser {
    /// Returns the chunk names of an array; `None` if its grid or its key encoding is unknown.
    pub(super) fn of(array: &Array) -> Option<Self> {
        Some(Self {
            keys: array.chunk_keys.clone().ok()?,
            grid: array.grid.clone().ok()?,
        })
    }

    /// Returns the number of chunks of the whole grid.
    pub(super) fn chunk_count(&self) -> u64 {
        self.grid.chunk_count()
    }

    /// Returns the key of a chunk below the array.
    pub(super) fn name(&self, chunk: u64) -> Option<String> {
        Some(self.keys.encode(&self.grid.index(chunk)?))
    }

    /// Classifies a key. `below` is its part below the array, which has `depth` names.
    fn classify(&self, below: &[u8], depth: usize, kind: Kind) -> KeyClass {
        let decoded = self.keys.decode(below, self.grid.shape());
        if let Some(chunk) = decoded.and_then(|index| self.grid.linear(&index)) {
            return match kind {
                Kind::Object => KeyClass::Chunk(chunk),
                Kind::Prefix => KeyClass::Misplaced("a directory has the key of a chunk"),
            };
        }
        match (self.leads_to_chunks(below), kind) {
            (true, Kind::Prefix) => KeyClass::Other,
            (true, Kind::Object) => {
                KeyClass::Misplaced("a value has the key of a directory of chunks")
            }
            (false, Kind::Object) if depth == 1 && self.is_document_name(below) => KeyClass::Other,
            (false, _) => KeyClass::Stray,
        }
    }

    /// Returns whether a name directly below the array is that of a document of its format. The keys of version 1
    /// are those of version 2.
    fn is_document_name(&self, name: &[u8]) -> bool {
        let more: &[&str] = match &self.keys.encoding {
            KeyEncoding::N5 => &[ATTRIBUTES_JSON],
            KeyEncoding::V2 => &[v1::META, v1::ATTRS],
            KeyEncoding::Default | KeyEncoding::Template(_) | KeyEncoding::Fanout(_) => &[],
        };
        is_document_name(name) || more.iter().any(|own| own.as_bytes() == name)
    }

    /// Returns whether `below` is a directory that can contain chunks.
    fn leads_to_chunks(&self, below: &[u8]) -> bool {
        let names = ChunkNames::of_keys(self.keys.clone(), self.grid.shape());
        matches!(names.find_path(below), Some(ChunkEntry::Directory(_)))
    }
}

impl<'a> KeyWalk<'a> {
    /// Starts a listing of all keys below `array`.
    pub(super) fn new(
        store: &'a dyn Store,
        array: &Key,
        names: Option<&'a ChunkKeyParser>,
    ) -> Self {
        Self {
            store,
            names,
            prefix_bytes: match array.is_root() {
                true => 0,
                false => array.as_bytes().len() + 1,
            },
            is_recursive: true,
            pending: vec![PendingDirectory {
                key: array.clone(),
                depth: 0,
                is_stray: false,
                listing: None,
            }],
            found: VecDeque::new(),
        }
    }

    /// Starts a listing of the keys directly in a directory.
    pub(super) fn of_directory(store: &'a dyn Store, directory: &Key) -> Self {
        Self {
            is_recursive: false,
            ..Self::new(store, directory, None)
        }
    }

    /// Returns the next key; `None` after the last one.
    pub(super) async fn next(&mut self) -> Option<ListedKey> {
        loop {
            if let Some(key) = self.found.pop_front() {
                return Some(key);
            }
            let directory = self.pending.pop()?;
            let key = directory.key.clone();
            if let Err(error) = self.list(directory).await {
                self.found.push_back(ListedKey {
                    key,
                    class: KeyClass::Unlistable(error),
                    is_value: false,
                    size_bytes: None,
                });
            }
        }
    }

    /// Lists the next names of a directory. Its subdirectories are listed before its remaining names.
    async fn list(&mut self, mut directory: PendingDirectory) -> Result<(), StoreError> {
        let (mut listing, mut cookie) = match directory.listing.take() {
            None => (self.store.list(&directory.key).await?, 0),
            Some(interrupted) => interrupted,
        };
        let mut children = Vec::new();
        let mut count = 0;
        let visited = listing.visit(cookie, &mut |listed| {
            if count == MAX_FOUND {
                return ControlFlow::Break(());
            }
            count += 1;
            cookie = listed.next;
            self.push(&directory, &listed, &mut children);
            ControlFlow::Continue(())
        });
        let visited = match visited {
            Ok(Visited::Pending) => listing.load().await.map(|()| false),
            visited => visited.map(|visited| visited == Visited::End),
        };
        if let Ok(false) = visited {
            directory.listing = Some((listing, cookie));
            self.pending.push(directory);
        }
        self.pending.append(&mut children);
        visited.map(drop)
    }

    fn push(
        &mut self,
        directory: &PendingDirectory,
        listed: &Listed<'_>,
        children: &mut Vec<PendingDirectory>,
    ) {
        if matches!(listed.name, b"." | b"..") {
            return;
        }
        let Ok(key) = directory.key.join(listed.name) else {
            return;
        };
        let depth = directory.depth + 1;
        let below = key.as_bytes().get(self.prefix_bytes..).unwrap_or_default();
        let class = match self.names {
            Some(names) if !directory.is_stray => names.classify(below, depth, listed.kind),
            _ => KeyClass::Other,
        };
        let is_value = listed.kind == Kind::Object;
        if !is_value && self.is_recursive {
            children.push(PendingDirectory {
                key: key.clone(),
                depth,
                is_stray: directory.is_stray || !matches!(class, KeyClass::Other),
                listing: None,
            });
        }
        self.found.push_back(ListedKey {
            key,
            class,
            is_value,
            size_bytes: listed.stat.map(|stat| stat.size_bytes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::chunk_key::Separator;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use crate::hierarchy::MetadataListingStore;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn names(encoding: KeyEncoding, separator: Separator, shape: &[u64]) -> ChunkKeyParser {
        ChunkKeyParser {
            keys: ChunkKeys {
                encoding,
                separator,
            },
            grid: ChunkGrid::regular(shape, &vec![1; shape.len()]).unwrap(),
        }
    }

    fn classified(names: &ChunkKeyParser, below: &str, kind: Kind) -> String {
        let depth = below.split('/').count();
        format!("{:?}", names.classify(below.as_bytes(), depth, kind))
    }

    #[test]
    fn keys_of_chunks_are_distinguished_from_similar_keys() {
        let nested = names(KeyEncoding::Default, Separator::Slash, &[3, 4]);
        let flat = names(KeyEncoding::V2, Separator::Dot, &[3, 4]);
        let cases = [
            (&nested, "c/2/3", Kind::Object, "Chunk(11)"),
            (&nested, "c", Kind::Prefix, "Other"),
            (&nested, "c/2", Kind::Prefix, "Other"),
            (&nested, "c/3", Kind::Prefix, "Stray"),
            (&nested, "c/2/4", Kind::Object, "Stray"),
            (&nested, "c/02", Kind::Prefix, "Stray"),
            (&nested, "d", Kind::Prefix, "Stray"),
            (&nested, "zarr.json", Kind::Object, "Other"),
            (&nested, "c/zarr.json", Kind::Object, "Stray"),
            (&flat, "2.3", Kind::Object, "Chunk(11)"),
            (&flat, ".zarray", Kind::Object, "Other"),
            (&flat, "2", Kind::Prefix, "Stray"),
            (&flat, "2.3.0", Kind::Object, "Stray"),
        ];
        for (names, below, kind, expected) in cases {
            assert_eq!(classified(names, below, kind), expected, "{below}");
        }
        for (names, below, kind) in [
            (&nested, "c", Kind::Object),
            (&nested, "c/1", Kind::Object),
            (&nested, "c/1/1", Kind::Prefix),
            (&flat, "0.0", Kind::Prefix),
        ] {
            let found = classified(names, below, kind);
            assert!(found.starts_with("Misplaced"), "{below}: {found}");
        }
    }

    /// Returns the keys of the first `max` values.
    fn values(store: &dyn Store, array: &Key, max: usize) -> Vec<Key> {
        let mut found = Vec::new();
        let mut keys = KeyWalk::new(store, array, None);
        while found.len() < max
            && let Some(entry) = block_on(keys.next())
        {
            if entry.is_value {
                found.push(entry.key);
            }
        }
        found
    }

    #[test]
    fn a_grid_of_any_size_is_visited_in_bounded_memory() {
        let document = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [1_u64 << 40, 1 << 20],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1]}},
            "chunk_key_encoding": "default",
            "fill_value": 0,
            "codecs": ["bytes"],
        });
        let key = |name: &str| Key::new(name.as_bytes()).unwrap();
        let group = json!({
            "zarr_format": 3,
            "node_type": "group",
            "consolidated_metadata": {"kind": "inline", "must_understand": false,
                                      "metadata": {"a": document}},
        });
        let inner = MemoryStore::new([(key("zarr.json"), group.to_string().into_bytes())]);
        let store = MetadataListingStore::new(Arc::new(inner), Duration::MAX, Duration::MAX);
        let found = values(&store, &key("a"), 3000);
        assert_eq!(found.len(), 3000);
        let distinct: HashSet<&Key> = found.iter().collect();
        assert_eq!(distinct.len(), 3000);
    }

    #[test]
    fn every_key_of_many_directories_is_visited_once() {
        let many = 2 * MAX_FOUND + 3;
        let keys = (0..many).map(|n| Key::new(format!("a/{n}/0").as_bytes()).unwrap());
        let top = Key::new(b"a/top").unwrap();
        let all: Vec<Key> = keys.chain([top]).collect();
        let store = MemoryStore::new(all.iter().map(|key| (key.clone(), Vec::new())));
        let mut found = values(&store, &Key::new(b"a").unwrap(), usize::MAX);
        found.sort();
        let mut all = all;
        all.sort();
        assert_eq!(found, all);
    }

    #[test]
    fn a_zero_dimensional_array_has_one_chunk_and_an_empty_array_none() {
        let scalar = names(KeyEncoding::Default, Separator::Slash, &[]);
        assert_eq!(classified(&scalar, "c", Kind::Object), "Chunk(0)");
        assert_eq!(classified(&scalar, "c/0", Kind::Object), "Stray");
        let empty = names(KeyEncoding::Default, Separator::Slash, &[0]);
        assert_eq!(classified(&empty, "c/0", Kind::Object), "Stray");
    }
}
