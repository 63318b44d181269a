//! What a record of the directory says of one entry.

use rawzip::ZipFileHeaderRecord;

use crate::store::check_component;

/// Longest key: what a path can hold (`PATH_MAX`).
const MAX_KEY_BYTES: usize = 4095;

/// Where an entry's bytes end at the earliest: fixed local header, name, data.
pub(super) fn data_end(header_offset: u64, name_bytes: u64, compressed_bytes: u64) -> Option<u64> {
    header_offset
        .checked_add(30)?
        .checked_add(name_bytes)?
        .checked_add(compressed_bytes)
}

/// Whether a name can be shown. A backslash is a separator to some writers, so it is not.
pub(super) fn is_valid_key(path: &[u8]) -> bool {
    path.len() <= MAX_KEY_BYTES
        && !path.contains(&b'\\')
        && path
            .split(|b| *b == b'/')
            .all(|name| check_component(name).is_ok())
}

/// The time of change. Times without a zone are taken as UTC.
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
