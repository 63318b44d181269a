//! The versions of chunks, in pages.

use hashbrown::{HashMap, TryReserveError};

use super::cache::ChunkId;
use super::chunks::ArrayChunks;
use super::version_memory::Room;
use crate::store::Version;

/// Chunks whose versions are allocated together.
pub(super) const PAGE_CHUNKS: u64 = PAGE_SLOTS as u64;
const PAGE_SLOTS: usize = 16;
/// What a page takes at most, with its entry in the table.
pub(super) const PAGE_BYTES: u64 = 256;
/// An open compares no more chunks than this with the source.
const MAX_COMPARED: usize = 1 << 14;

/// An array and the number of a page of its chunks.
pub(super) type Page = (u64, u64);

/// What was served since the kernel has dropped the pages of the inode.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Codes of versions; 0 is a chunk that was not served.
    pages: HashMap<Page, [u64; PAGE_SLOTS]>,
    /// Chunks that were served.
    chunks: usize,
    /// When the chunk that was checked first was checked.
    oldest_ms: Option<u64>,
    /// A read has found another version than was served.
    has_changed: bool,
    memory: Option<Room>,
}

/// What was found when a chunk was about to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has the version that was served, or none was.
    Served,
    /// It has another version than was served.
    Changed,
    /// The record has no page for it.
    NoRoom,
}

/// How a version, or that a chunk is absent, is recorded.
pub(super) fn code(version: Option<Version>) -> u64 {
    match version {
        None => 1,
        Some(Version(version)) => version.wrapping_add(2).max(2),
    }
}

fn page_of(id: &ChunkId) -> Page {
    (id.array, id.chunk / PAGE_CHUNKS)
}

/// What an open has found out about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Nothing was served. No page may be kept before a read proves that the kernel has dropped the
    /// old ones.
    Nothing,
    Same,
    Changed,
    TooCostly,
}

/// One chunk of a record: its array, its number, the code of its version.
pub(super) type Entry = (u64, u64, u64);

impl Record {
    /// Pages that recording these chunks needs and the record lacks.
    pub(super) fn missing_pages(&self, ids: &[ChunkId]) -> Vec<Page> {
        let mut missing: Vec<_> = ids.iter().map(page_of).collect();
        missing.dedup();
        missing.retain(|page| !self.pages.contains_key(page));
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Adds pages, whose memory is reserved in `room`.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn add_pages(
        &mut self,
        missing: Vec<Page>,
        room: Room,
    ) -> Result<(), TryReserveError> {
        self.pages.try_reserve(missing.len())?;
        for page in missing {
            self.pages.entry(page).or_default();
        }
        let memory = match self.memory.take() {
            Some(mut memory) => {
                memory.add(room);
                memory
            }
            None => room,
        };
        // Another read may have made the same pages meanwhile.
        let used_bytes = PAGE_BYTES * self.pages.len() as u64;
        self.memory.insert(memory).shrink(used_bytes);
        Ok(())
    }

    /// What is reserved for the pages; `None` if nothing is recorded.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.memory.as_ref().map(Room::bytes)
    }

    /// Records the version of a chunk that is about to be served; `None` if the chunk is absent.
    pub(super) fn admit(
        &mut self,
        id: &ChunkId,
        version: Option<Version>,
        checked_ms: u64,
    ) -> Admission {
        let page = self.pages.get_mut(&page_of(id));
        let slot = page.and_then(|page| {
            let at = usize::try_from(id.chunk % PAGE_CHUNKS).ok()?;
            page.get_mut(at)
        });
        let Some(slot) = slot else {
            return Admission::NoRoom;
        };
        if *slot != 0 && *slot != code(version) {
            self.has_changed = true;
            return Admission::Changed;
        }
        if *slot == 0 {
            *slot = code(version);
            self.chunks += 1;
        }
        let oldest_ms = self.oldest_ms.get_or_insert(checked_ms);
        *oldest_ms = checked_ms.min(*oldest_ms);
        Admission::Served
    }

    /// What can be told without asking the source.
    pub(super) fn told_by_itself(&self, arrays: &[&ArrayChunks]) -> Option<Comparison> {
        if self.chunks == 0 {
            return Some(Comparison::Nothing);
        }
        if self.has_changed {
            return Some(Comparison::Changed);
        }
        if arrays.iter().all(|chunks| chunks.is_trusted_for_good()) {
            return Some(Comparison::Same);
        }
        let is_remote = arrays.iter().any(|chunks| chunks.is_remote());
        (is_remote || self.chunks > MAX_COMPARED).then(|| self.told_by_age(arrays))
    }

    /// What can be told if all chunks were checked a short time ago.
    pub(super) fn told_by_age(&self, arrays: &[&ArrayChunks]) -> Comparison {
        let oldest_ms = self.oldest_ms.unwrap_or(0);
        match arrays.iter().all(|chunks| chunks.is_trusted(oldest_ms)) {
            true => Comparison::Same,
            false => Comparison::TooCostly,
        }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.chunks);
        for ((array, page), codes) in &self.pages {
            let chunks = (page * PAGE_CHUNKS..).zip(codes);
            let served = chunks.filter(|(_, code)| **code != 0);
            entries.extend(served.map(|(chunk, code)| (*array, chunk, *code)));
        }
        entries.sort_unstable();
        entries
    }
}
