//! Finds the node with a name in a directory: a hash table in parts, so that all cores can fill it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::fallible::{self, NoMemory};
use crate::sync::Mutex;

/// Number of parts; a power of two.
const PARTS: usize = 16;
/// With fewer nodes than this, starting threads takes longer than they save.
const MIN_NODES_PER_THREAD: usize = 1 << 16;

/// Bytes reserved per node: its number and the control byte, at the lowest load factor.
pub(super) const BYTES_PER_NODE: u64 = 10;

/// Why a table could not be built.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameTableError {
    /// Memory could not be allocated.
    NoMemory(NoMemory),
    /// Two nodes of one directory have the same name.
    Duplicate,
}

impl From<NoMemory> for NameTableError {
    fn from(failure: NoMemory) -> Self {
        Self::NoMemory(failure)
    }
}

/// Node numbers by the hash of parent and name; the caller compares the names.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    parts: [HashTable<u32>; PARTS],
    hasher: DefaultHashBuilder,
}

impl NameTable {
    /// Creates a table with capacity for `nodes`.
    ///
    /// # Errors
    /// Memory could not be allocated.
    pub(super) fn with_capacity(nodes: usize) -> Result<Self, NoMemory> {
        let mut table = Self::default();
        // Part lengths differ by far less than an eighth, unless all of them are short.
        let each = nodes / PARTS;
        for part in &mut table.parts {
            part.try_reserve(each + each / 8, |_| 0)
                .map_err(|_| no_memory(nodes))?;
        }
        Ok(table)
    }

    /// Creates a table of the nodes from 1 on, on `threads`; `name_of` returns parent and name of a node.
    pub(super) fn of_nodes<'a>(
        nodes: usize,
        threads: usize,
        name_of: impl Fn(u32) -> (u32, &'a [u8]) + Sync,
    ) -> Result<Self, NameTableError> {
        let mut table = Self::with_capacity(nodes)?;
        let mut hashes = fallible::repeat(0_u64, nodes)?;
        let threads = threads.clamp(1, (nodes / MIN_NODES_PER_THREAD).clamp(1, PARTS));
        let Self { parts, hasher } = &mut table;
        let (hasher, name_of) = (&*hasher, &name_of);
        let share = nodes.div_ceil(threads).max(1);
        on_threads(hashes.chunks_mut(share).enumerate(), |(at, hashes)| {
            for (node, hash) in (at * share..).zip(hashes) {
                *hash = hasher.hash_one(name_of(number(node)));
            }
        });
        let hashes = &hashes[..];
        let hash_of = |&node: &u32| hashes.get(node as usize).copied().unwrap_or_default();
        let (has_duplicate, is_exhausted) = (AtomicBool::new(false), AtomicBool::new(false));
        let share = PARTS.div_ceil(threads);
        on_threads(parts.chunks_mut(share).enumerate(), |(at, parts)| {
            for (node, &hash) in hashes.iter().enumerate().skip(1) {
                let part = part_of(hash).checked_sub(at * share);
                let Some(part) = part.and_then(|part| parts.get_mut(part)) else {
                    continue;
                };
                let node = number(node);
                let is_same = |&other: &u32| name_of(other) == name_of(node);
                // A part that is longer than expected.
                if part.try_reserve(1, hash_of).is_err() {
                    is_exhausted.store(true, Ordering::Relaxed);
                    return;
                }
                match part.entry(hash, is_same, hash_of) {
                    Entry::Occupied(_) => has_duplicate.store(true, Ordering::Relaxed),
                    Entry::Vacant(place) => {
                        place.insert(node);
                    }
                }
            }
        });
        if is_exhausted.into_inner() {
            return Err(no_memory(nodes).into());
        }
        if has_duplicate.into_inner() {
            return Err(NameTableError::Duplicate);
        }
        Ok(table)
    }

    /// Returns the node with a name in a directory.
    pub(super) fn find<'a>(
        &self,
        parent: u32,
        name: &[u8],
        name_of: impl Fn(u32) -> (u32, &'a [u8]),
    ) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, name));
        let part = self.parts.get(part_of(hash))?;
        part.find(hash, |&node| name_of(node) == (parent, name))
            .copied()
    }

    /// Adds a node; its name must not be in the table yet.
    ///
    /// # Errors
    /// Memory could not be allocated.
    pub(super) fn insert<'a>(
        &mut self,
        node: u32,
        name_of: impl Fn(u32) -> (u32, &'a [u8]),
    ) -> Result<(), NoMemory> {
        let hash_of = |&node: &u32| self.hasher.hash_one(name_of(node));
        let hash = hash_of(&node);
        if let Some(part) = self.parts.get_mut(part_of(hash)) {
            part.try_reserve(1, hash_of)
                .map_err(|_| NoMemory::of::<u32>(part.len().saturating_add(1)))?;
            part.insert_unique(hash, node, hash_of);
        }
        Ok(())
    }
}

/// The failure to allocate a table of `nodes`.
fn no_memory(nodes: usize) -> NoMemory {
    NoMemory((nodes as u64).saturating_mul(BYTES_PER_NODE))
}

/// Processes shares of work on this thread and on others, as many as there are shares if the system can start them.
fn on_threads<T: Send>(shares: impl ExactSizeIterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let others = shares.len().saturating_sub(1);
    let shares = Mutex::new(shares);
    let next = || shares.lock().next();
    let process = || {
        while let Some(share) = next() {
            work(share);
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            if thread::Builder::new().spawn_scoped(scope, process).is_err() {
                break;
            }
        }
        process();
    });
}

/// Returns the part of a hash. The table itself uses the lowest and the highest bits.
fn part_of(hash: u64) -> usize {
    usize::try_from(hash >> 32).unwrap_or_default() % PARTS
}

/// Converts an index in a list of nodes to a node number; lists are shorter than [`u32::MAX`].
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_table_built_in_parallel_equals_one_built_sequentially() {
        let mut names: Vec<String> = (0..200_000).map(|n| format!("{}", n / 2)).collect();
        // Each name occurs in two directories.
        fn name_of<'a>(names: &'a [String]) -> impl Fn(u32) -> (u32, &'a [u8]) + Copy + Sync {
            move |node| (node % 2, names.get(node as usize).unwrap().as_bytes())
        }
        let nodes = names.len();
        let threaded = NameTable::of_nodes(nodes, 3, name_of(&names)).unwrap();
        let mut stepped = NameTable::default();
        for node in 1..number(nodes) {
            stepped.insert(node, name_of(&names)).unwrap();
        }
        for node in (1..number(nodes)).step_by(777) {
            let (parent, name) = name_of(&names)(node);
            assert_eq!(threaded.find(parent, name, name_of(&names)), Some(node));
            assert_eq!(stepped.find(parent, name, name_of(&names)), Some(node));
        }
        for table in [&threaded, &stepped] {
            // Node 0 is the root, which is in no directory.
            assert_eq!(table.find(0, b"0", name_of(&names)), None);
            assert_eq!(table.find(2, b"1", name_of(&names)), None);
        }
        names[150_000] = names[7_000].clone();
        let duplicate = NameTable::of_nodes(nodes, 3, name_of(&names));
        assert_eq!(duplicate.unwrap_err(), NameTableError::Duplicate);
    }
}
