//! The records of a zip, byte by byte, with valid or invalid values.

use crate::zipmaker::{Descriptor, End, End64, Entry, Fields};

/// The real values of the directory.
#[derive(Debug)]
pub struct DirectoryValues {
    pub entries: u64,
    pub directory_bytes: u64,
    pub directory_offset: u64,
}

/// Appends a local file header (section 4.3.7).
pub fn local_header(bytes: &mut Vec<u8>, fields: &Fields) {
    bytes.extend_from_slice(b"PK\x03\x04");
    let extra = common_fields(bytes, fields, None);
    bytes.extend_from_slice(&fields.name);
    bytes.extend_from_slice(&extra);
}

/// Appends a central directory header (section 4.3.12).
pub fn central_header(bytes: &mut Vec<u8>, entry: &Entry, offset: u64) {
    let fields = &entry.central;
    bytes.extend_from_slice(b"PK\x01\x02");
    put16(bytes, entry.made_by);
    let offset64 = (fields.zip64 || offset > u64::from(u32::MAX)).then_some(offset);
    let extra = common_fields(bytes, fields, offset64);
    put16(bytes, low16(entry.comment.len() as u64));
    put16(bytes, entry.disk);
    put16(bytes, 0);
    put32(bytes, entry.external);
    put32(
        bytes,
        if offset64.is_some() {
            u32::MAX
        } else {
            low32(offset)
        },
    );
    bytes.extend_from_slice(&fields.name);
    bytes.extend_from_slice(&extra);
    bytes.extend_from_slice(&entry.comment);
}

/// Appends the fields from "version needed" to the length of the extra field; returns the extra field.
fn common_fields(bytes: &mut Vec<u8>, fields: &Fields, offset64: Option<u64>) -> Vec<u8> {
    let mut extra = Vec::new();
    if fields.zip64 || offset64.is_some() {
        let mut wide = Vec::new();
        if fields.zip64 {
            put64(&mut wide, fields.size);
            put64(&mut wide, fields.compressed);
        }
        if let Some(offset) = offset64 {
            put64(&mut wide, offset);
        }
        put16(&mut extra, 1);
        put16(&mut extra, low16(wide.len() as u64));
        extra.extend_from_slice(&wide);
    }
    extra.extend_from_slice(&fields.extra);
    put16(bytes, fields.version);
    put16(bytes, fields.flags);
    put16(bytes, fields.method);
    put32(bytes, fields.time);
    put32(bytes, fields.crc);
    for size in [fields.compressed, fields.size] {
        put32(bytes, if fields.zip64 { u32::MAX } else { low32(size) });
    }
    put16(
        bytes,
        fields
            .name_length
            .unwrap_or(low16(fields.name.len() as u64)),
    );
    put16(
        bytes,
        fields.extra_length.unwrap_or(low16(extra.len() as u64)),
    );
    extra
}

pub fn data_descriptor(bytes: &mut Vec<u8>, fields: &Fields, descriptor: Descriptor) {
    if descriptor.signature {
        bytes.extend_from_slice(b"PK\x07\x08");
    }
    put32(bytes, fields.crc);
    for size in [fields.compressed, fields.size] {
        if descriptor.zip64 {
            put64(bytes, size);
        } else {
            put32(bytes, low32(size));
        }
    }
}

pub fn end_records64(bytes: &mut Vec<u8>, end: &End64, facts: &DirectoryValues, record: u64) {
    bytes.extend_from_slice(b"PK\x06\x06");
    put64(
        bytes,
        end.record_bytes.unwrap_or(44 + end.extensible.len() as u64),
    );
    put16(bytes, 45);
    put16(bytes, 45);
    put32(bytes, end.disk.unwrap_or(0));
    put32(bytes, end.disk.unwrap_or(0));
    put64(
        bytes,
        end.entries_here.or(end.entries).unwrap_or(facts.entries),
    );
    put64(bytes, end.entries.unwrap_or(facts.entries));
    put64(bytes, end.directory_bytes.unwrap_or(facts.directory_bytes));
    put64(
        bytes,
        end.directory_offset.unwrap_or(facts.directory_offset),
    );
    bytes.extend_from_slice(&end.extensible);
    bytes.extend_from_slice(b"PK\x06\x07");
    put32(bytes, end.locator_disk.unwrap_or(0));
    put64(bytes, end.locator_offset.unwrap_or(record));
    put32(bytes, end.disks.unwrap_or(1));
}

pub fn end_record(bytes: &mut Vec<u8>, end: &End, facts: &DirectoryValues, comment: &[u8]) {
    bytes.extend_from_slice(b"PK\x05\x06");
    put16(bytes, end.disk.unwrap_or(0));
    put16(bytes, end.directory_disk.or(end.disk).unwrap_or(0));
    let entries = end.entries.unwrap_or(low16(facts.entries));
    put16(bytes, end.entries_here.unwrap_or(entries));
    put16(bytes, entries);
    put32(
        bytes,
        end.directory_bytes.unwrap_or(low32(facts.directory_bytes)),
    );
    put32(
        bytes,
        end.directory_offset
            .unwrap_or(low32(facts.directory_offset)),
    );
    put16(
        bytes,
        end.comment_length.unwrap_or(low16(comment.len() as u64)),
    );
    bytes.extend_from_slice(comment);
}

/// Returns one field of an extra area, from its ID and its data.
pub fn extra_field(id: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put16(&mut bytes, id);
    put16(&mut bytes, low16(data.len() as u64));
    bytes.extend_from_slice(data);
    bytes
}

/// Returns the low half of a value that may be invalid.
#[allow(clippy::cast_possible_truncation)]
fn low16(value: u64) -> u16 {
    value as u16
}

#[allow(clippy::cast_possible_truncation)]
fn low32(value: u64) -> u32 {
    value as u32
}

pub fn put16(bytes: &mut Vec<u8>, value: u16) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

pub fn put32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

pub fn put64(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}
