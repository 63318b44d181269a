//! Interprets a record of the directory.

use rawzip::ZipFileHeaderRecord;

use crate::store::check_key;

/// Returns the lower bound of an entry's end: fixed local header, name, data.
pub(super) fn data_end(header_offset: u64, name_bytes: u64, compressed_bytes: u64) -> Option<u64> {
    header_offset
        .checked_add(30)?
        .checked_add(name_bytes)?
        .checked_add(compressed_bytes)
}

/// Whether a name can be shown. Names with a backslash cannot, because some writers use it as a separator.
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
