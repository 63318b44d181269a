//! The recorded versions of chunks, stored in pages.

use hashbrown::{HashMap, HashSet, TryReserveError};

use super::chunk_cache::ChunkId;
use super::chunks::ArrayChunks;
use super::version_memory::PageReservation;
use crate::store::{Presence, Version};

/// The number of chunks in a page, whose versions are allocated together.
pub(super) const PAGE_CHUNKS: u64 = PAGE_SLOTS as u64;
const PAGE_SLOTS: usize = 16;
/// The largest size of a page with its table entry, in bytes.
pub(super) const PAGE_BYTES: u64 = 256;
/// The largest number of chunks that an open compares with the source.
const MAX_COMPARED: usize = 1 << 14;

/// The number of an array, and the number of a page of its chunks.
pub(super) type PageId = (u64, u64);

/// The versions that were served since the kernel dropped the pages of the inode.
#[derive(Debug, Default)]
pub(super) struct VersionRecord {
    /// The codes of versions; 0 is a chunk that was not served.
    pages: HashMap<PageId, [u64; PAGE_SLOTS]>,
    /// The number of served chunks.
    chunks: usize,
    /// The numbers of their arrays.
    arrays: HashSet<u64>,
    /// The time of the oldest check of a served chunk, in milliseconds.
    oldest_ms: Option<u64>,
    /// The time of the oldest check that a served chunk is absent, in milliseconds.
    oldest_absent_ms: Option<u64>,
    /// Whether a read found another version than the served one.
    has_changed: bool,
    memory: Option<PageReservation>,
}

/// The result of recording a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The chunk has the version that was served, or was not served before.
    Served,
    /// The chunk has another version than the served one.
    Changed,
    /// The record has no page for the chunk.
    NoPage,
}

/// Returns the code of a version, or of the absence of a chunk.
pub(super) fn version_code(version: Option<Version>) -> u64 {
    match version {
        None => 1,
        Some(Version(version)) => version.wrapping_add(2).max(2),
    }
}

fn page_of(id: &ChunkId) -> PageId {
    (id.array, id.chunk / PAGE_CHUNKS)
}

/// The result of comparing a record with the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// No chunk was served. No page may be kept before a read proves that the kernel has dropped
    /// the old pages.
    Nothing,
    Same,
    Changed,
    TooCostly,
}

/// A chunk of a record: its array, its number, and the code of its version.
pub(super) type ServedChunk = (u64, u64, u64);

impl VersionRecord {
    /// Returns the pages that the record lacks for these chunks.
    pub(super) fn missing_pages(&self, ids: &[ChunkId]) -> Vec<PageId> {
        let mut missing: Vec<_> = ids.iter().map(page_of).collect();
        missing.dedup();
        missing.retain(|page| !self.pages.contains_key(page));
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Adds pages, whose memory is reserved in `reservation`.
    ///
    /// # Errors
    /// An error if the system has no memory left.
    pub(super) fn add_pages(
        &mut self,
        missing: Vec<PageId>,
        reservation: PageReservation,
    ) -> Result<(), TryReserveError> {
        self.pages.try_reserve(missing.len())?;
        for page in missing {
            self.pages.entry(page).or_default();
        }
        let memory = match self.memory.take() {
            Some(mut memory) => {
                memory.add(reservation);
                memory
            }
            None => reservation,
        };
        // Another read may have added the same pages meanwhile.
        let used_bytes = PAGE_BYTES * self.pages.len() as u64;
        self.memory.insert(memory).shrink(used_bytes);
        Ok(())
    }

    /// Returns the memory that is reserved for the pages in bytes; `None` if nothing is recorded.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.memory.as_ref().map(PageReservation::bytes)
    }

    /// Records the version of a chunk before it is served; `None` if the chunk is absent.
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
            return Admission::NoPage;
        };
        if *slot != 0 && *slot != version_code(version) {
            self.has_changed = true;
            return Admission::Changed;
        }
        if *slot == 0 {
            *slot = version_code(version);
            self.chunks += 1;
            self.arrays.insert(id.array);
        }
        let oldest_ms = match Presence::of(version) {
            Presence::Present => &mut self.oldest_ms,
            Presence::Absent => &mut self.oldest_absent_ms,
        };
        *oldest_ms = Some(oldest_ms.map_or(checked_ms, |oldest| oldest.min(checked_ms)));
        Admission::Served
    }

    /// Returns the result that needs no request to the source, if any.
    pub(super) fn compare_cached(&self, arrays: &[&ArrayChunks]) -> Option<Comparison> {
        if self.chunks == 0 {
            return Some(Comparison::Nothing);
        }
        // An array with other metadata has another number.
        let numbers: HashSet<u64> = arrays.iter().map(|chunks| chunks.number()).collect();
        if self.has_changed || !self.arrays.is_subset(&numbers) {
            return Some(Comparison::Changed);
        }
        if arrays.iter().all(|chunks| chunks.store.trusts_forever()) {
            return Some(Comparison::Same);
        }
        let is_remote = arrays.iter().any(|chunks| chunks.is_remote());
        (is_remote || self.chunks > MAX_COMPARED).then(|| self.compare_by_age(arrays))
    }

    /// Returns the result from the age of the checks alone: the same versions if all checks are still valid.
    pub(super) fn compare_by_age(&self, arrays: &[&ArrayChunks]) -> Comparison {
        let checks = [
            (Presence::Present, self.oldest_ms),
            (Presence::Absent, self.oldest_absent_ms),
        ];
        let mut checks = checks.into_iter().filter_map(|(presence, oldest_ms)| {
            let oldest_ms = oldest_ms?;
            Some((presence, oldest_ms))
        });
        let is_trusted = checks.all(|(presence, oldest_ms)| {
            let mut arrays = arrays.iter();
            arrays.all(|chunks| chunks.store.is_trusted(presence, oldest_ms))
        });
        match is_trusted {
            true => Comparison::Same,
            false => Comparison::TooCostly,
        }
    }

    pub(super) fn entries(&self) -> Vec<ServedChunk> {
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
