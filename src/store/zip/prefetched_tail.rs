//! The parts of a remote archive that are needed to find and read its directory: the end of the
//! archive, which is given, and the missing part of the directory.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rawzip::ReaderAt;

use super::central_directory::{
    DIRECTORY_BUFFER_BYTES, DirectorySource, SEARCHED_BYTES, find_directory,
};
use super::{ZipError, ZipOptions, archive_error};
use crate::fallible;
use crate::store::Key;
use crate::store::snapshot::SnapshotReader;

/// Largest number of parts that are fetched besides the given end.
const MAX_FETCHES: usize = 2;
/// Gaps no further apart than this, in bytes, are fetched together.
const NEAR_BYTES: u64 = 64 << 10;
/// Bytes that are fetched around a gap where only a record is expected.
const RECORD_BYTES: u64 = 4 << 10;
/// A longer directory is not fetched before its first record was seen.
pub(super) const UNSEEN_MAX_BYTES: u64 = 32 << 20;

/// Parts of an archive. Reads outside of them fail, and are recorded as gaps.
#[derive(Debug)]
pub(super) struct PrefetchedTail {
    size_bytes: u64,
    /// Sorted by offset; the last part ends at the end of the archive.
    parts: Vec<FetchedPart>,
    fetched_bytes: u64,
    /// Ranges that were read and are in no part.
    gaps: RefCell<Vec<Range<u64>>>,
    /// Whether a search for the end record has failed in all parts, and would have to go further back.
    is_not_found: Cell<bool>,
}

#[derive(Debug)]
struct FetchedPart {
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

impl FetchedPart {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }
}

/// The result of `find_directory`: the range of the directory, and the number of entries that it claims.
#[derive(Debug)]
struct FoundDirectory {
    directory: Range<u64>,
    entries: u64,
}

/// The next step of [`PrefetchedTail::complete`].
enum NextFetch {
    /// Nothing more is needed: it is known whether a directory exists.
    Nothing(Result<(), ZipError>),
    /// Fetch this range, for a directory of this number of entries.
    Fetch(Range<u64>, u64),
}

impl PrefetchedTail {
    pub(super) fn new(size_bytes: u64, tail: Arc<Vec<u8>>) -> Result<Self, ZipError> {
        let offset = size_bytes.checked_sub(tail.len() as u64).ok_or_else(|| {
            let have = tail.len();
            ZipError::BadDirectory(format!("{have} bytes of an archive of {size_bytes}"))
        })?;
        Ok(Self {
            size_bytes,
            parts: vec![FetchedPart {
                offset,
                bytes: tail,
            }],
            fetched_bytes: 0,
            gaps: RefCell::default(),
            is_not_found: Cell::new(false),
        })
    }

    /// Returns the number of fetched bytes, which are held in memory.
    pub(super) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }

    /// Whether the parts suffice to find and read the directory, or to see that there is none.
    pub(super) fn is_complete(&mut self) -> bool {
        matches!(self.next_fetch(false), NextFetch::Nothing(_))
    }

    /// Fetches missing parts, until the directory can be found and read.
    pub(super) async fn complete(
        &mut self,
        reader: &dyn SnapshotReader,
        options: &ZipOptions,
    ) -> Result<(), ZipError> {
        for fetches in 0..=MAX_FETCHES {
            let (missing, entries) = match self.next_fetch(fetches + 1 == MAX_FETCHES) {
                NextFetch::Nothing(found) => return found,
                NextFetch::Fetch(range, entries) => (range, entries),
            };
            if fetches == MAX_FETCHES {
                break;
            }
            self.fetch(reader, missing, entries, options).await?;
        }
        Err(ZipError::BadDirectory(
            "what belongs to it is strewn over the archive".into(),
        ))
    }

    /// Looks for the directory in the parts, and returns which range is missing.
    fn next_fetch(&mut self, is_last: bool) -> NextFetch {
        self.gaps.take();
        self.is_not_found.set(false);
        let mut buffer = match fallible::zeros(DIRECTORY_BUFFER_BYTES) {
            Ok(buffer) => buffer,
            Err(failure) => return NextFetch::Nothing(Err(failure.into())),
        };
        let found = find_directory(&*self, &mut buffer).map(|archive| FoundDirectory {
            directory: archive.directory_offset()..archive.eocd_offset(),
            entries: archive.entries_hint(),
        });
        match self.missing(found.as_ref().ok(), is_last) {
            None => NextFetch::Nothing(found.map(|_| ())),
            Some(range) => NextFetch::Fetch(range, found.map_or(0, |found| found.entries)),
        }
    }

    /// Returns the range to fetch next; `None` if nothing more is needed.
    fn missing(&self, found: Option<&FoundDirectory>, is_last: bool) -> Option<Range<u64>> {
        let gaps = self.gaps.borrow();
        let starts = gaps.iter().map(|gap| gap.start);
        let (Some(first), Some(low), Some(high)) =
            (gaps.first(), starts.clone().min(), starts.max())
        else {
            return match found {
                Some(found) => self.gap_in(&found.directory),
                None => self.is_not_found.get().then(|| {
                    let start = self.tail_start();
                    start.saturating_sub(SEARCHED_BYTES + RECORD_BYTES)..start
                }),
            };
        };
        let around = |gap: &Range<u64>, before: u64| {
            let start = gap.start.saturating_sub(before);
            let end = gap.start.saturating_add(RECORD_BYTES);
            start.max(self.end_before(gap.start))..end.min(self.start_behind(gap.start))
        };
        let Some(found) = found else {
            // The gap is a zip64 record or its locator; the record precedes the locator.
            return Some(around(first, RECORD_BYTES));
        };
        let begins = found.directory.start;
        let is_one_place = high - low <= NEAR_BYTES && begins <= low.saturating_add(NEAR_BYTES);
        let is_seen = low > begins && low - begins <= NEAR_BYTES;
        let all = low..self.start_behind(low);
        let is_short = all.end - all.start <= UNSEEN_MAX_BYTES;
        if is_one_place && (is_last || is_seen || is_short) {
            return Some(all);
        }
        // The directory is where the end record says. In an archive after a prepended program, it is
        // directly before the end record.
        Some(around(first, 0))
    }

    /// Returns the first missing part of `range`.
    fn gap_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        while let Some(part) = self.part_at(start) {
            start = part.end();
        }
        (start < range.end).then(|| start..self.start_behind(start))
    }

    fn part_at(&self, offset: u64) -> Option<&FetchedPart> {
        let behind = self.parts.partition_point(|part| part.offset <= offset);
        let part = self.parts.get(behind.checked_sub(1)?)?;
        (offset < part.end()).then_some(part)
    }

    /// Returns the end of the last part that begins at or before an offset.
    fn end_before(&self, offset: u64) -> u64 {
        let behind = self.parts.partition_point(|part| part.offset <= offset);
        let before = behind.checked_sub(1).and_then(|at| self.parts.get(at));
        before.map_or(0, FetchedPart::end)
    }

    /// Returns the beginning of the first part after an offset.
    fn start_behind(&self, offset: u64) -> u64 {
        let behind = self.parts.partition_point(|part| part.offset <= offset);
        self.parts.get(behind).map_or(self.size_bytes, |p| p.offset)
    }

    /// Returns the lowest offset from which all bytes up to the end of the archive are in memory.
    fn tail_start(&self) -> u64 {
        let parts = self.parts.iter().rev();
        parts.fold(self.size_bytes, |start, part| match part.end() == start {
            true => part.offset,
            false => start,
        })
    }

    async fn fetch(
        &mut self,
        reader: &dyn SnapshotReader,
        range: Range<u64>,
        entries: u64,
        options: &ZipOptions,
    ) -> Result<(), ZipError> {
        let length = range.end.saturating_sub(range.start);
        let need_bytes = self.fetched_bytes.saturating_add(length);
        let limit_bytes = options.memory_limit_bytes;
        let too_large = || ZipError::TooLarge {
            entries,
            need_bytes,
            limit_bytes,
        };
        if need_bytes > limit_bytes {
            return Err(too_large());
        }
        let length = usize::try_from(length).map_err(|_| too_large())?;
        let fetched = reader.read_once_at(range.start, length).await;
        let fetched =
            fetched.map_err(|error| ZipError::Source(archive_error(error, Key::root())))?;
        self.fetched_bytes = need_bytes;
        let place = self.parts.partition_point(|part| part.offset < range.start);
        let part = FetchedPart {
            offset: range.start,
            bytes: fetched,
        };
        self.parts.insert(place, part);
        Ok(())
    }
}

impl ReaderAt for &PrefetchedTail {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64);
        // The same error as that of pread(2).
        if i64::try_from(end).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if offset >= self.size_bytes || buffer.is_empty() {
            return Ok(0);
        }
        let Some(part) = self.part_at(offset) else {
            let gap = offset..end.min(self.size_bytes);
            self.gaps.borrow_mut().push(gap);
            return Err(io::Error::other("this part of the archive is not cached"));
        };
        let from = usize::try_from(offset - part.offset).unwrap_or(usize::MAX);
        let there = part.bytes.get(from..).unwrap_or_default();
        let count = there.len().min(buffer.len());
        if let (Some(target), Some(there)) = (buffer.get_mut(..count), there.get(..count)) {
            target.copy_from_slice(there);
        }
        Ok(count)
    }
}

impl DirectorySource for &PrefetchedTail {
    fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    fn search_bytes(self, end: u64) -> u64 {
        end.saturating_sub(self.tail_start()).min(SEARCHED_BYTES)
    }

    fn record_not_found(self, end: u64) {
        let reach = self.search_bytes(end);
        self.is_not_found.set(reach < end.min(SEARCHED_BYTES));
    }

    fn has_gaps(self) -> bool {
        !self.gaps.borrow().is_empty()
    }
}
