//! The keys below an array: which of them are chunks, and which are not.

use std::ops::ControlFlow;

use super::hierarchy::is_document;
use crate::store::{Key, Kind, Listing, Store, StoreError};
use crate::zarr::chunk_key::{KeyEncoding, Separator};
use crate::zarr::{Array, ChunkGrid, ChunkKeys};

/// What a key below an array is.
#[derive(Debug)]
pub(super) enum Found {
    /// A chunk, by its number in C order over the grid.
    Chunk(u64),
    /// A document, or a value that nothing is expected of.
    Plain,
    /// A value or a directory that is no part of the array.
    Stray,
    /// Something else stands where a chunk, or a directory of chunks, should be.
    Misplaced(&'static str),
    /// A directory that can not be listed.
    Failed(StoreError),
}

/// One key below an array.
#[derive(Debug)]
pub(super) struct Visited {
    pub(super) key: Key,
    pub(super) found: Found,
    /// Whether it is a value, and can be read.
    pub(super) is_value: bool,
    /// The size of the value, where the listing tells it.
    pub(super) size_bytes: Option<u64>,
}

/// The names that the chunks of an array have.
#[derive(Debug, Clone)]
pub(super) struct Names {
    keys: ChunkKeys,
    grid: ChunkGrid,
}

/// A directory that is still to be listed, and how many names lead to it from the array.
struct Pending {
    key: Key,
    depth: usize,
    is_stray: bool,
    /// Its listing, and where to go on in it, if it was begun.
    begun: Option<(Box<dyn Listing>, u64)>,
}

/// So many directories of one listing are looked into before it goes on: as many may be below a
/// chunk grid as there are numbers.
const MAX_PENDING: usize = 1024;

impl Names {
    /// None if the grid or the keys are not known.
    pub(super) fn of(array: &Array) -> Option<Self> {
        Some(Self {
            keys: array.chunk_keys.clone().ok()?,
            grid: array.grid.clone().ok()?,
        })
    }

    /// Chunks of the whole grid.
    pub(super) fn chunk_count(&self) -> u64 {
        self.grid.chunk_count()
    }

    /// What a value or a directory is whose key below the array has `depth` names.
    fn classify(&self, below: &[u8], depth: usize, kind: Kind) -> Found {
        let decoded = self.keys.decode(below, self.grid.shape());
        if let Some(chunk) = decoded.and_then(|index| self.grid.linear(&index)) {
            return match kind {
                Kind::Object => Found::Chunk(chunk),
                Kind::Prefix => Found::Misplaced("a directory is where a chunk should be"),
            };
        }
        match (self.leads_to_chunks(below, depth), kind) {
            (true, Kind::Prefix) => Found::Plain,
            (true, Kind::Object) => {
                Found::Misplaced("a file is where a directory of chunks should be")
            }
            (false, Kind::Object) if depth == 1 && is_document(below) => Found::Plain,
            (false, _) => Found::Stray,
        }
    }

    /// Whether keys of chunks begin so.
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
/// Without names everything is plain.
pub(super) fn visit(
    store: &dyn Store,
    array: &Key,
    names: Option<&Names>,
    visit: &mut dyn FnMut(Visited) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let prefix_bytes = match array.is_root() {
        true => 0,
        false => array.as_bytes().len() + 1,
    };
    let mut pending = vec![Pending {
        key: array.clone(),
        depth: 0,
        is_stray: false,
        begun: None,
    }];
    while let Some(mut directory) = pending.pop() {
        let depth = directory.depth + 1;
        let mut flow = ControlFlow::Continue(());
        let mut below_it = Vec::new();
        let (mut next, mut is_over) = (0, true);
        let begun = match directory.begun.take() {
            None => store.list(&directory.key).map(|listing| (listing, 0)),
            Some(begun) => Ok(begun),
        };
        let listed = begun.and_then(|(mut listing, from)| {
            listing.visit(from, &mut |listed| {
                if below_it.len() == MAX_PENDING {
                    is_over = false;
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
                let found = match names {
                    Some(names) if !directory.is_stray => names.classify(below, depth, listed.kind),
                    _ => Found::Plain,
                };
                let is_value = listed.kind == Kind::Object;
                if !is_value {
                    below_it.push(Pending {
                        key: key.clone(),
                        depth,
                        is_stray: directory.is_stray || !matches!(found, Found::Plain),
                        begun: None,
                    });
                }
                flow = visit(Visited {
                    key,
                    found,
                    is_value,
                    size_bytes: listed.stat.map(|stat| stat.size_bytes),
                });
                flow
            })?;
            Ok(listing)
        });
        flow?;
        match listed {
            Ok(_) if is_over => {}
            Ok(listing) => pending.push(Pending {
                begun: Some((listing, next)),
                ..directory
            }),
            Err(error) => visit(Visited {
                key: directory.key,
                found: Found::Failed(error),
                is_value: false,
                size_bytes: None,
            })?,
        }
        pending.append(&mut below_it);
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

    fn names(encoding: KeyEncoding, separator: Separator, shape: &[u64]) -> Names {
        Names {
            keys: ChunkKeys {
                encoding,
                separator,
            },
            grid: ChunkGrid::regular(shape, &vec![1; shape.len()]).unwrap(),
        }
    }

    fn classified(names: &Names, below: &str, kind: Kind) -> String {
        let depth = below.split('/').count();
        format!("{:?}", names.classify(below.as_bytes(), depth, kind))
    }

    #[test]
    fn keys_of_chunks_are_told_from_what_only_looks_so() {
        let nested = names(KeyEncoding::Default, Separator::Slash, &[3, 4]);
        let flat = names(KeyEncoding::V2, Separator::Dot, &[3, 4]);
        let cases = [
            (&nested, "c/2/3", Kind::Object, "Chunk(11)"),
            (&nested, "c", Kind::Prefix, "Plain"),
            (&nested, "c/2", Kind::Prefix, "Plain"),
            (&nested, "c/3", Kind::Prefix, "Stray"),
            (&nested, "c/2/4", Kind::Object, "Stray"),
            (&nested, "c/02", Kind::Prefix, "Stray"),
            (&nested, "d", Kind::Prefix, "Stray"),
            (&nested, "zarr.json", Kind::Object, "Plain"),
            (&nested, "c/zarr.json", Kind::Object, "Stray"),
            (&flat, "2.3", Kind::Object, "Chunk(11)"),
            (&flat, ".zarray", Kind::Object, "Plain"),
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

    /// Visits values until there are `most`, and returns their keys.
    fn values(store: &dyn Store, array: &Key, most: usize) -> Vec<Key> {
        let mut found = Vec::new();
        let _ = visit(store, array, None, &mut |visited| {
            if visited.is_value {
                found.push(visited.key);
            }
            match found.len() == most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        found
    }

    #[test]
    fn a_grid_of_any_size_is_visited_without_keeping_its_names() {
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
        let copies = json!({
            "zarr_format": 3,
            "node_type": "group",
            "consolidated_metadata": {"kind": "inline", "must_understand": false,
                                      "metadata": {"a": document}},
        });
        let copies = (key("zarr.json"), copies.to_string().into_bytes());
        let inner = MemoryStore::new([copies]);
        let store = ExploredStore::new(Arc::new(inner), Duration::MAX, Duration::MAX);
        let found = values(&store, &key("a"), 3000);
        assert_eq!(found.len(), 3000);
        let distinct: HashSet<&Key> = found.iter().collect();
        assert_eq!(distinct.len(), 3000);
    }

    #[test]
    fn every_key_is_visited_once_however_many_directories_there_are() {
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
    fn an_array_without_axes_has_one_chunk_and_one_without_elements_none() {
        let scalar = names(KeyEncoding::Default, Separator::Slash, &[]);
        assert_eq!(classified(&scalar, "c", Kind::Object), "Chunk(0)");
        assert_eq!(classified(&scalar, "c/0", Kind::Object), "Stray");
        let empty = names(KeyEncoding::Default, Separator::Slash, &[0]);
        assert_eq!(classified(&empty, "c/0", Kind::Object), "Stray");
    }
}
