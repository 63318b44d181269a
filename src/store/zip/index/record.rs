//! Interprets a record of the directory.

use std::borrow::Cow;

use rawzip::{CreatorSystem, ZipFileHeaderRecord};

use crate::store::check_key;

/// Returns the lower bound of an entry's end: fixed local header, name, data.
pub(super) fn data_end(header_offset: u64, name_bytes: u64, compressed_bytes: u64) -> Option<u64> {
    header_offset
        .checked_add(30)?
        .checked_add(name_bytes)?
        .checked_add(compressed_bytes)
}

/// Returns the path that a record names, which ends with a slash for a directory. Backslashes are separators
/// if the record was made on a system where no name has one, and the name has no slash.
pub(super) fn path_of<'a>(record: &ZipFileHeaderRecord<'_>, name: &'a [u8]) -> Cow<'a, [u8]> {
    let is_dos = matches!(
        record.version_made_by().creator_system(),
        CreatorSystem::FAT | CreatorSystem::NTFS | CreatorSystem::VFAT | INFO_ZIP_NTFS
    );
    match is_dos {
        true => with_slashes(name),
        false => Cow::Borrowed(without_dot(name)),
    }
}

/// NTFS in archives of Info-ZIP.
const INFO_ZIP_NTFS: CreatorSystem = CreatorSystem::MVS;

/// Returns a name whose separators are slashes, without `./` at its beginning.
pub(super) fn with_slashes(name: &[u8]) -> Cow<'_, [u8]> {
    if name.contains(&b'/') || !name.contains(&b'\\') {
        return Cow::Borrowed(without_dot(name));
    }
    let slashed: Vec<u8> = name
        .iter()
        .map(|byte| if *byte == b'\\' { b'/' } else { *byte })
        .collect();
    Cow::Owned(without_dot(&slashed).to_vec())
}

/// Returns a name without `./` at its beginning, which some writers put before all names.
fn without_dot(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    name
}

/// Whether a path can be shown. A backslash may be a separator, so a path with one cannot.
pub(super) fn is_valid_key(path: &[u8]) -> bool {
    !path.is_empty() && !path.contains(&b'\\') && check_key(path).is_ok()
}

/// Returns the modification time in seconds since 1970. Times without a zone are taken as UTC.
pub(super) fn unix_seconds(record: &ZipFileHeaderRecord<'_>) -> i64 {
    let time = record.last_modified();
    match time {
        rawzip::time::ZipDateTimeKind::Utc(time) => time.to_unix(),
        rawzip::time::ZipDateTimeKind::Local(time) => rawzip::time::UtcDateTime::from_components(
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            0,
        )
        .map_or(0, |time| time.to_unix()),
    }
}
