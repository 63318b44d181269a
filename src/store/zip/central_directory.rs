//! Finds the central directory of an archive from its end: the end record, the zip64 end record, the directory.

use std::io;
use std::os::unix::fs::FileExt;

use rawzip::{ReaderAt, ZipArchive, ZipLocator};

use super::index::{self, Directory};
use super::{ZipError, ZipOptions};
use crate::store::snapshot::SnapshotFile;

/// Buffer size for reading the directory, in bytes.
pub(super) const DIRECTORY_BUFFER_BYTES: usize = 1 << 20;
/// Longest distance of the end record from the end of the archive, in bytes.
pub(super) const SEARCHED_BYTES: u64 = 1 << 20;
/// Number of end records that are tried; each round continues before the last false one.
const MAX_ROUNDS: usize = 64;

/// An archive to find a directory in: a whole file, or the parts of one that are in memory.
pub(super) trait DirectorySource: ReaderAt + Copy {
    fn size_bytes(self) -> u64;

    /// Returns how many bytes back from `end` are searched for an end record.
    fn search_bytes(self, end: u64) -> u64;

    /// Records that no end record was found in these bytes.
    fn record_not_found(self, end: u64);

    /// Whether a read needed a part that is not in memory.
    fn has_gaps(self) -> bool;
}

impl ReaderAt for &SnapshotFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file().read_at(buffer, offset)
    }
}

impl DirectorySource for &SnapshotFile {
    fn size_bytes(self) -> u64 {
        self.size_bytes()
    }

    fn search_bytes(self, _: u64) -> u64 {
        SEARCHED_BYTES
    }

    fn record_not_found(self, _: u64) {}

    fn has_gaps(self) -> bool {
        false
    }
}

/// Finds and reads the directory. `held_bytes` of the memory limit are already in use.
pub(super) fn read_directory<S: DirectorySource>(
    source: S,
    buffer: &mut [u8],
    held_bytes: u64,
    options: &ZipOptions,
) -> Result<Directory, ZipError> {
    let located = find_directory(source, buffer)?;
    let split = is_split(source, located.eocd_offset())?;
    index::build(&located, buffer, split, held_bytes, options)
}

/// Finds the end record, even if a comment after it looks like one. If the source has gaps, the result
/// is only provisional.
pub(super) fn find_directory<S: DirectorySource>(
    source: S,
    buffer: &mut [u8],
) -> Result<ZipArchive<S>, ZipError> {
    let mut end = source.size_bytes();
    let mut first_failure = None;
    for _ in 0..MAX_ROUNDS {
        let locator = ZipLocator::new().max_search_space(source.search_bytes(end));
        match locator.locate_in_reader(source, buffer, end) {
            Ok(archive) => {
                // An empty directory has no record to check, so its end record must end the file.
                let begins_well = match archive.entries_hint() {
                    0 => comment_fits(source, archive.eocd_offset())?,
                    _ => archive.entries(buffer).next_entry().is_ok(),
                };
                let is_before = archive.directory_offset() <= archive.eocd_offset();
                if source.has_gaps() || begins_well && is_before {
                    return Ok(archive);
                }
                first_failure.get_or_insert("does not begin where the end record says".to_owned());
                end = archive.eocd_offset();
            }
            Err((_, e)) => {
                let offset = e.eocd_offset().filter(|offset| *offset < end);
                let (what, is_false_record) = match e.into_kind() {
                    // A false record may point outside of the file.
                    rawzip::ErrorKind::IO(e) if is_beyond(&e) => {
                        ("it points behind the end of the file".into(), true)
                    }
                    rawzip::ErrorKind::IO(e) => return Err(e.into()),
                    kind => (rawzip::Error::from(kind).to_string(), true),
                };
                let (Some(offset), true) = (offset, is_false_record) else {
                    source.record_not_found(end);
                    break;
                };
                first_failure.get_or_insert(what);
                end = offset;
            }
        }
    }
    Err(first_failure.map_or(ZipError::NoDirectory, ZipError::BadDirectory))
}

/// Whether a read was beyond the end of the file, or beyond the largest offset.
fn is_beyond(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput
    )
}

/// Reads the end record (APPNOTE 4.3.16).
fn end_record<S: DirectorySource>(source: S, eocd_offset: u64) -> io::Result<[u8; 22]> {
    let mut record = [0; 22];
    source.read_exact_at(&mut record, eocd_offset)?;
    Ok(record)
}

/// Whether the comment of an end record ends at the end of the file.
fn comment_fits<S: DirectorySource>(source: S, eocd_offset: u64) -> io::Result<bool> {
    let [.., low, high] = end_record(source, eocd_offset)?;
    let comment_bytes = u64::from(u16::from_le_bytes([low, high]));
    Ok(eocd_offset.saturating_add(22 + comment_bytes) == source.size_bytes())
}

/// Whether the end record belongs to a split archive.
fn is_split<S: DirectorySource>(source: S, eocd_offset: u64) -> io::Result<bool> {
    let [_, _, _, _, disk_low, disk_high, first_low, first_high, ..] =
        end_record(source, eocd_offset)?;
    let disk = u16::from_le_bytes([disk_low, disk_high]);
    let first = u16::from_le_bytes([first_low, first_high]);
    if disk != first || !matches!(disk, 0 | u16::MAX) {
        return Ok(true);
    }
    let Some(locator_offset) = eocd_offset.checked_sub(20) else {
        return Ok(false);
    };
    // The zip64 locator has the number of files (APPNOTE 4.3.15).
    let mut locator = [0; 20];
    source.read_exact_at(&mut locator, locator_offset)?;
    let [b'P', b'K', 6, 7, a, b, c, d, .., e, f, g, h] = locator else {
        return Ok(false);
    };
    let files = u32::from_le_bytes([e, f, g, h]);
    Ok(u32::from_le_bytes([a, b, c, d]) != 0 || files > 1)
}
