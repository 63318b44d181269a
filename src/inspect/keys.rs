//! The keys below an array, classified as chunks and others.

use std::ops::ControlFlow;

use super::node::is_document;
use crate::store::{Key, Kind, Listing, Store, StoreError};
use crate::zarr::chunk_key::{KeyEncoding, Separator};
use crate::zarr::{Array, ChunkGrid, ChunkKeys};

/// The class of a key below an array.
#[derive(Debug)]
pub(super) enum KeyClass {
    /// A chunk, with its index in C order over the grid.
    Chunk(u64),
    /// A document, a directory on the way to chunks, or any key if the names of chunks are unknown.
    Other,
    /// A value or a directory that does not belong to the array.
    Stray,
    /// A directory with the key of a chunk, or a value with the key of a directory of chunks.
    Misplaced(&'static str),
    /// A directory that cannot be listed.
    Unlistable(StoreError),
}

/// One key below an array.
#[derive(Debug)]
pub(super) struct ArrayKey {
    pub(super) key: Key,
    pub(super) class: KeyClass,
    /// Whether the key has a value.
    pub(super) is_value: bool,
    /// The size of the value, if the listing has it.
    pub(super) size_bytes: Option<u64>,
}

/// The names of the chunks of an array.
#[derive(Debug, Clone)]
pub(super) struct ChunkNames {
    keys: ChunkKeys,
    grid: ChunkGrid,
}

/// A directory that is still to be listed.
struct Pending {
    key: Key,
    /// The number of names from the array to the directory.
    depth: usize,
    is_stray: bool,
    /// The interrupted listing, and the offset at which it continues.
    listing: Option<(Box<dyn Listing>, u64)>,
}

/// After so many subdirectories, a listing is interrupted until they have been visited: the number
/// of directories of a chunk grid has no bound.
const MAX_PENDING: usize = 1024;

impl ChunkNames {
    /// Returns None if the grid or the encoding of the keys is unknown.
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

    /// Classifies a key; `below` is its part below the array, and has `depth` names.
    fn classify(&self, below: &[u8], depth: usize, kind: Kind) -> KeyClass {
        let decoded = self.keys.decode(below, self.grid.shape());
        if let Some(chunk) = decoded.and_then(|index| self.grid.linear(&index)) {
            return match kind {
                Kind::Object => KeyClass::Chunk(chunk),
                Kind::Prefix => KeyClass::Misplaced("a directory has the key of a chunk"),
            };
        }
        match (self.leads_to_chunks(below, depth), kind) {
            (true, Kind::Prefix) => KeyClass::Other,
            (true, Kind::Object) => {
                KeyClass::Misplaced("a value has the key of a directory of chunks")
            }
            (false, Kind::Object) if depth == 1 && is_document(below) => KeyClass::Other,
            (false, _) => KeyClass::Stray,
        }
    }

    /// Returns whether `below` is a directory that can contain chunks.
    fn leads_to_chunks(&self, below: &[u8], depth: usize) -> bool {
        let names = match self.keys.encoding {
            KeyEncoding::Default => self.grid.rank() + 1,
            KeyEncoding::V2 => self.grid.rank(),
        };
        if self.keys.separator != Separator::Slash || depth >= names {
            return false;
        }
        let first = [below, "/0".repeat(names - depth).as_bytes()].concat();
        self.keys.decode(&first, self.grid.shape()).is_some()
    }
}

/// Visits every key below `array`, in the order of the store's listings, until `visit` breaks.
pub(super) fn visit(
    store: &dyn Store,
    array: &Key,
    names: Option<&ChunkNames>,
    visit: &mut dyn FnMut(ArrayKey) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let prefix_bytes = match array.is_root() {
        true => 0,
        false => array.as_bytes().len() + 1,
    };
    let mut pending = vec![Pending {
        key: array.clone(),
        depth: 0,
        is_stray: false,
        listing: None,
    }];
    while let Some(mut directory) = pending.pop() {
        let depth = directory.depth + 1;
        let mut flow = ControlFlow::Continue(());
        let mut children = Vec::new();
        let (mut next, mut is_complete) = (0, true);
        let listing = match directory.listing.take() {
            None => store.list(&directory.key).map(|listing| (listing, 0)),
            Some(listing) => Ok(listing),
        };
        let listed = listing.and_then(|(mut listing, offset)| {
            listing.visit(offset, &mut |listed| {
                if children.len() == MAX_PENDING {
                    is_complete = false;
                    return ControlFlow::Break(());
                }
                next = listed.next;
                if matches!(listed.name, b"." | b"..") {
                    return ControlFlow::Continue(());
                }
                let Ok(key) = directory.key.join(listed.name) else {
                    return ControlFlow::Continue(());
                };
                let below = key.as_bytes().get(prefix_bytes..).unwrap_or_default();
                let class = match names {
                    Some(names) if !directory.is_stray => names.classify(below, depth, listed.kind),
                    _ => KeyClass::Other,
                };
                let is_value = listed.kind == Kind::Object;
                if !is_value {
                    children.push(Pending {
                        key: key.clone(),
                        depth,
                        is_stray: directory.is_stray || !matches!(class, KeyClass::Other),
                        listing: None,
                    });
                }
                flow = visit(ArrayKey {
                    key,
                    class,
                    is_value,
                    size_bytes: listed.stat.map(|stat| stat.size_bytes),
                });
                flow
            })?;
            Ok(listing)
        });
        flow?;
        match listed {
            Ok(_) if is_complete => {}
            Ok(listing) => pending.push(Pending {
                listing: Some((listing, next)),
                ..directory
            }),
            Err(error) => visit(ArrayKey {
                key: directory.key,
                class: KeyClass::Unlistable(error),
                is_value: false,
                size_bytes: None,
            })?,
        }
        pending.append(&mut children);
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use crate::explore::ExploredStore;
    use crate::store::MemoryStore;

    fn names(encoding: KeyEncoding, separator: Separator, shape: &[u64]) -> ChunkNames {
        ChunkNames {
            keys: ChunkKeys {
                encoding,
                separator,
            },
            grid: ChunkGrid::regular(shape, &vec![1; shape.len()]).unwrap(),
        }
    }

    fn classified(names: &ChunkNames, below: &str, kind: Kind) -> String {
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
        let _ = visit(store, array, None, &mut |visited| {
            if visited.is_value {
                found.push(visited.key);
            }
            match found.len() == max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
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
        let store = ExploredStore::new(Arc::new(inner), Duration::MAX, Duration::MAX);
        let found = values(&store, &key("a"), 3000);
        assert_eq!(found.len(), 3000);
        let distinct: HashSet<&Key> = found.iter().collect();
        assert_eq!(distinct.len(), 3000);
    }

    #[test]
    fn every_key_of_many_directories_is_visited_once() {
        let many = 2 * MAX_PENDING + 3;
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
