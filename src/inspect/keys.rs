//! The keys below an array: which of them are chunks, and which are not.

use std::ops::ControlFlow;

use super::hierarchy::is_document;
use crate::store::{Key, Kind, Store, StoreError};
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
}

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
    }];
    while let Some(directory) = pending.pop() {
        let depth = directory.depth + 1;
        let mut flow = ControlFlow::Continue(());
        let listed = store.list(&directory.key).and_then(|mut listing| {
            listing.visit(0, &mut |listed| {
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
                    pending.push(Pending {
                        key: key.clone(),
                        depth,
                        is_stray: directory.is_stray || !matches!(found, Found::Plain),
                    });
                }
                flow = visit(Visited {
                    key,
                    found,
                    is_value,
                    size_bytes: listed.stat.map(|stat| stat.size_bytes),
                });
                flow
            })
        });
        flow?;
        if let Err(error) = listed {
            visit(Visited {
                key: directory.key,
                found: Found::Failed(error),
                is_value: false,
                size_bytes: None,
            })?;
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_array_without_axes_has_one_chunk_and_one_without_elements_none() {
        let scalar = names(KeyEncoding::Default, Separator::Slash, &[]);
        assert_eq!(classified(&scalar, "c", Kind::Object), "Chunk(0)");
        assert_eq!(classified(&scalar, "c/0", Kind::Object), "Stray");
        let empty = names(KeyEncoding::Default, Separator::Slash, &[0]);
        assert_eq!(classified(&empty, "c/0", Kind::Object), "Stray");
    }
}
