//! GNU dbm files: a header, a directory of buckets, buckets of records, and the records.
//!
//! A record is a key followed by its value. The bucket of a record has its hash, its address and its sizes.
//! The directory maps the first bits of a hash to a bucket. If a bucket uses fewer bits than the directory,
//! all entries with its prefix refer to it. Tables of free space are not read.
//! Source: `gdbmdefs.h`, `bucket.c`, `findkey.c` and `gdbmopen.c` of gdbm 1.23.
//!
//! A key is accepted if its hash matches that of its record and selects the record's bucket, and if no other
//! record overlaps it: a directory, bucket or key of a different state is an error.

use super::bytes::{ByteOrder, Bytes};
use super::index::{Builder, ValueLocation, check_key_length};
use crate::store::database::{Failure, corrupt};

/// Magic numbers: the original one, the 32-bit and 64-bit ones, and those with a synchronization counter.
const MAGICS: [u32; 5] = [
    0x1357_9ace,
    0x1357_9acd,
    0x1357_9acf,
    0x1357_9ad0,
    0x1357_9ad1,
];
/// Files with the original magic number have offsets of either size.
const ORIGINAL: u32 = 0x1357_9ace;
const SMALL: [u32; 2] = [0x1357_9acd, 0x1357_9ad0];

const HEADER_BYTES: usize = 40;
/// A bucket has the size of a file system block, or the size that was passed to `gdbm_open`.
const MAX_BUCKET_BYTES: usize = 1 << 24;
/// Number of bits in a hash.
const HASH_BITS: u32 = 31;
/// The hash of an unused entry.
const UNUSED: u32 = u32::MAX;

/// Whether a file begins like a GNU dbm file.
pub(super) fn is_gnu(header: &[u8]) -> bool {
    magic(header).is_some()
}

fn magic(header: &[u8]) -> Option<(ByteOrder, u32)> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .filter_map(|order| Some((order, order.u32(header, 0)?)))
        .find(|(_, magic)| MAGICS.contains(magic))
}

/// The positions of fields, which depend on the machine that created a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) offset_bytes: usize,
    /// Offset of the bit count in a bucket; the record count and the record table follow.
    pub(super) bits_at: usize,
    pub(super) element_bytes: usize,
}

/// Layouts with offsets of 4 bytes, with offsets of 8 bytes, and with the unaligned 8-byte offsets of 32-bit
/// x86. The number of elements that fit into a bucket distinguishes the last two.
pub(super) const FIELDS: [Fields; 3] = [
    Fields {
        offset_bytes: 4,
        bits_at: 52,
        element_bytes: 20,
    },
    Fields {
        offset_bytes: 8,
        bits_at: 104,
        element_bytes: 24,
    },
    Fields {
        offset_bytes: 8,
        bits_at: 76,
        element_bytes: 24,
    },
];

impl Fields {
    pub(super) fn table_at(&self) -> usize {
        self.bits_at + 8
    }
}

#[derive(Debug, Clone, Copy)]
struct Layout {
    order: ByteOrder,
    fields: Fields,
}

impl Layout {
    fn offset(self, bytes: &[u8], at: usize) -> Option<u64> {
        match self.fields.offset_bytes {
            8 => self.order.u64(bytes, at),
            _ => self.order.u32(bytes, at).map(u64::from),
        }
    }
}

/// The header of a file.
#[derive(Debug)]
struct Header {
    layout: Layout,
    directory: u64,
    directory_bytes: u64,
    /// Number of hash bits that the directory uses.
    bits: u32,
    bucket_bytes: usize,
    elements: usize,
}

impl Header {
    fn read(file: Bytes<'_>) -> Result<Self, Failure> {
        let mut bytes = [0; HEADER_BYTES];
        file.read(0, &mut bytes)?;
        let bad = || corrupt("it is no header of GNU dbm");
        let (order, magic) = magic(&bytes).ok_or_else(bad)?;
        let mut failure = None;
        for fields in FIELDS {
            let is_small = fields.offset_bytes == 4;
            if magic != ORIGINAL && is_small != SMALL.contains(&magic) {
                continue;
            }
            let layout = Layout { order, fields };
            match Self::of(layout, &bytes, file.size_bytes).ok_or_else(bad)? {
                Ok(header) => return Ok(header),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(bad))
    }

    fn of(layout: Layout, bytes: &[u8], file_bytes: u64) -> Option<Result<Self, Failure>> {
        let bad = |what: &str| Some(Err(corrupt(format!("its header: {what}"))));
        let mut at = 8;
        let directory = layout.offset(bytes, at)?;
        at += layout.fields.offset_bytes;
        let mut integer = || {
            at += 4;
            layout.order.u32(bytes, at - 4)
        };
        let directory_bytes = u64::from(integer()?);
        let bits = integer()?;
        let bucket_bytes = integer()? as usize;
        let elements = integer()? as usize;
        let end = layout.offset(bytes, at)?;
        let is_directory = (1..HASH_BITS).contains(&bits)
            && directory_bytes == (layout.fields.offset_bytes as u64) << bits
            && directory > 0;
        let directory_end = directory.checked_add(directory_bytes);
        let Some(directory_end) = directory_end.filter(|_| is_directory) else {
            return bad("a directory that cannot be");
        };
        if directory_end > file_bytes {
            return bad("the directory ends behind the end of the file, which is truncated");
        }
        let table_bytes = bucket_bytes.saturating_sub(layout.fields.table_at());
        if elements == 0
            || table_bytes / layout.fields.element_bytes != elements
            || bucket_bytes > MAX_BUCKET_BYTES
        {
            return bad("a size of buckets that cannot be");
        }
        if end < file_bytes {
            return bad(
                "it is older than the end of the file: a writer was stopped, and `recover` of \
                 gdbmtool repairs the database",
            );
        }
        Some(Ok(Self {
            layout,
            directory,
            directory_bytes,
            bits,
            bucket_bytes,
            elements,
        }))
    }
}

/// The entry of a record in its bucket.
#[derive(Debug, Clone, Copy)]
struct Record {
    address: u64,
    hash: u32,
    key_bytes: u32,
    value_bytes: u32,
}

impl Record {
    fn end(&self) -> u64 {
        self.address
            .saturating_add(u64::from(self.key_bytes))
            .saturating_add(u64::from(self.value_bytes))
    }
}

/// Reads all keys.
///
/// # Errors
/// [`Failure::Failed`] if a key cannot be read.
pub(super) fn read_index(file: Bytes<'_>, builder: &mut Builder) -> Result<(), Failure> {
    let header = Header::read(file)?;
    let mut records = read_buckets(file, &header, builder)?;
    records.sort_unstable_by_key(|record| record.address);
    let mut end = 0;
    for record in &records {
        if record.address < end {
            return Err(corrupt(format!("two records are at {:#x}", record.address)));
        }
        end = record.end();
    }
    read_keys(file, &records, builder)
}

/// Bytes of the directory read at a time.
const PIECE_BYTES: u64 = 1 << 16;

/// Reads the records of all buckets, in the order of the directory.
fn read_buckets(
    file: Bytes<'_>,
    header: &Header,
    builder: &mut Builder,
) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    let mut piece = vec![0; in_piece(header.directory_bytes)];
    let mut content = Vec::new();
    builder.budget.grow(&mut content, header.bucket_bytes)?;
    content.resize(header.bucket_bytes, 0);
    let (mut bucket, mut left) = (0, 0_u64);
    let (mut number, mut read_bytes) = (0_u64, 0_u64);
    let mut done = 0;
    while done < header.directory_bytes {
        let piece = piece
            .get_mut(..in_piece(header.directory_bytes - done))
            .unwrap_or_default();
        file.read(header.directory.saturating_add(done), piece)?;
        done += piece.len() as u64;
        for entry in piece.chunks_exact(header.layout.fields.offset_bytes) {
            let address = header.layout.offset(entry, 0).unwrap_or(0);
            let bad = |what: &str| corrupt(format!("directory entry {number}: {what}"));
            if left > 0 {
                if address != bucket {
                    return Err(bad("it is not that of its neighbours"));
                }
            } else {
                read_bytes = read_bytes.saturating_add(header.bucket_bytes as u64);
                // Buckets do not overlap, so together they cannot be larger than the file.
                if address == 0 || read_bytes > file.size_bytes {
                    return Err(bad("it leads to no bucket"));
                }
                file.read(address, &mut content)?;
                bucket = address;
                left = read_bucket(header, &content, number, file, builder, &mut records)
                    .ok_or_else(|| bad("its bucket is too short"))??;
            }
            left -= 1;
            number += 1;
        }
    }
    Ok(records)
}

fn in_piece(left: u64) -> usize {
    usize::try_from(left.min(PIECE_BYTES)).unwrap_or(0)
}

/// Reads the records of the bucket whose first directory entry is `number`; returns how many directory
/// entries refer to the bucket. `None` if the bucket is too short.
fn read_bucket(
    header: &Header,
    bucket: &[u8],
    number: u64,
    file: Bytes<'_>,
    builder: &mut Builder,
    records: &mut Vec<Record>,
) -> Option<Result<u64, Failure>> {
    let Header { layout, bits, .. } = *header;
    let order = layout.order;
    let bad = |what: &str| {
        Some(Err(corrupt(format!(
            "the bucket of directory entry {number}: {what}"
        ))))
    };
    let own_bits = order.u32(bucket, layout.fields.bits_at)?;
    let count = order.u32(bucket, layout.fields.bits_at + 4)? as usize;
    if own_bits > bits {
        return bad("it uses more bits than the directory");
    }
    let entries = 1_u64 << (bits - own_bits);
    if !number.is_multiple_of(entries) {
        return bad("it begins at another entry");
    }
    let before = records.len();
    for element in 0..header.elements {
        let at = layout.fields.table_at() + element * layout.fields.element_bytes;
        let hash = order.u32(bucket, at)?;
        if hash == UNUSED {
            continue;
        }
        let sizes = at + 8 + layout.fields.offset_bytes;
        let record = Record {
            address: layout.offset(bucket, at + 8)?,
            hash,
            key_bytes: order.u32(bucket, sizes)?,
            value_bytes: order.u32(bucket, sizes + 4)?,
        };
        if u64::from(hash >> (HASH_BITS - own_bits)) != number / entries {
            return bad("it has a record of another bucket");
        }
        if record.address == 0 || record.end() > file.size_bytes {
            return bad("it has a record that is not in the file");
        }
        if let Err(error) =
            check_key_length(record.key_bytes.into()).and_then(|()| builder.budget.grow(records, 1))
        {
            return Some(Err(error));
        }
        records.push(record);
    }
    if records.len() - before != count {
        return bad("it has another number of records than it says");
    }
    Some(Ok(entries))
}

/// Most bytes that one read of keys takes; at least the longest key.
const CLUSTER_BYTES: u64 = 1 << 17;
/// Longest gap between two keys, in bytes, that is read rather than skipped.
const GAP_BYTES: u64 = 4096;

/// Reads the keys of records that are sorted by address.
fn read_keys(file: Bytes<'_>, records: &[Record], builder: &mut Builder) -> Result<(), Failure> {
    let mut buffer = Vec::new();
    let mut rest = records;
    while let Some(first) = rest.first() {
        let key_end = |record: &Record| record.address + u64::from(record.key_bytes);
        let (mut end, mut count) = (key_end(first), 0);
        for record in rest {
            let is_near = record.address.saturating_sub(end) <= GAP_BYTES
                && key_end(record) - first.address <= CLUSTER_BYTES;
            if !is_near {
                break;
            }
            end = end.max(key_end(record));
            count += 1;
        }
        let (cluster, behind) = rest.split_at(count.max(1));
        rest = behind;
        buffer.resize(usize::try_from(end - first.address).unwrap_or(0), 0);
        file.read(first.address, &mut buffer)?;
        for record in cluster {
            let start = usize::try_from(record.address - first.address).unwrap_or(usize::MAX);
            let key = start
                .checked_add(record.key_bytes as usize)
                .and_then(|end| buffer.get(start..end))
                .unwrap_or_default();
            if ![Char::Signed, Char::Unsigned]
                .iter()
                .any(|char| hash(*char, key) == record.hash)
            {
                return Err(corrupt(format!(
                    "the key at {:#x} has another hash than its record",
                    record.address
                )));
            }
            builder.push(
                key,
                ValueLocation::Offset(key_end(record)),
                record.value_bytes.into(),
            )?;
        }
    }
    Ok(())
}

/// Signedness of `char` on the machine that wrote a file, which affects the hash of keys.
#[derive(Debug, Clone, Copy)]
enum Char {
    Signed,
    Unsigned,
}

/// The hash function on most machines.
#[cfg(test)]
pub(super) fn hash_of_signed(key: &[u8]) -> u32 {
    hash(Char::Signed, key)
}

fn hash(char: Char, key: &[u8]) -> u32 {
    let mut value = u32::try_from(key.len())
        .unwrap_or(u32::MAX)
        .wrapping_mul(0x238f_13af);
    let mut shift = 0;
    for byte in key {
        let wide = match char {
            Char::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Char::Unsigned => u32::from(*byte),
        };
        value = value.wrapping_add(wide << shift) & 0x7fff_ffff;
        shift = (shift + 5) % 24;
    }
    value.wrapping_mul(1_103_515_243).wrapping_add(12_345) & 0x7fff_ffff
}
