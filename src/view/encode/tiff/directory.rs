//! One directory of a TIFF file: the fields and the block tables of an image, or of one of its planes.

use std::ops::Range;

use super::blocks::Blocks;
use super::field::{FieldValue, Flavour, put, put_word, tag};
use crate::fallible::List;
use crate::node::ContentError;
use crate::zarr::ByteOrder;

/// One image of a file.
#[derive(Debug, Clone)]
pub(in crate::view) struct Image {
    /// All tags except those of the block tables.
    pub(in crate::view) fields: Vec<(u16, FieldValue)>,
    /// The blocks of the image data.
    pub(super) blocks: Blocks,
    /// Size of the image data in bytes.
    pub(super) size_bytes: u64,
}

impl Image {
    /// Returns the size of an entry in the table of sizes, in bytes.
    fn count_bytes(&self) -> u64 {
        match u32::try_from(self.blocks.largest_bytes()) {
            Ok(_) => 4,
            Err(_) => 8,
        }
    }

    /// Returns whether some blocks are not in the file.
    pub(in crate::view) fn is_sparse(&self) -> bool {
        self.blocks.is_sparse()
    }

    /// Returns the size of the image's directory and tables in the header of a BigTIFF file, in bytes.
    pub(in crate::view) fn tables_bytes(&self) -> Option<u64> {
        Directory::whole(self, 0).size_bytes(Flavour::Big, 0)
    }
}

/// A directory: a range of blocks of an image.
#[derive(Debug, Clone)]
pub(super) struct Directory<'a> {
    image: &'a Image,
    /// The offset of the image's data.
    start: u64,
    blocks: Range<u64>,
    /// Tags of this directory only.
    pub(super) own: &'a [(u16, FieldValue)],
}

impl<'a> Directory<'a> {
    /// Returns a directory of all blocks of an image.
    pub(super) fn whole(image: &'a Image, start: u64) -> Self {
        Self {
            image,
            start,
            blocks: 0..image.blocks.count(),
            own: &[],
        }
    }

    /// Returns a directory of the blocks of one plane.
    pub(super) fn plane(image: &'a Image, start: u64, plane: u64) -> Self {
        let count = image.blocks.per_plane();
        let first = plane.saturating_mul(count);
        Self {
            blocks: first..first.saturating_add(count),
            ..Self::whole(image, start)
        }
    }

    fn fields(&self) -> impl Iterator<Item = &(u16, FieldValue)> {
        self.image.fields.iter().chain(self.own)
    }

    /// Returns the size of the directory and its values in bytes; `below` is the number of its `SubIFDs`.
    pub(super) fn size_bytes(&self, flavour: Flavour, below: u64) -> Option<u64> {
        let blocks = self.blocks.end.checked_sub(self.blocks.start)?;
        let offsets = blocks.checked_mul(flavour.word())?;
        let counts = blocks.checked_mul(self.image.count_bytes())?;
        let fields = self.fields().map(|(_, values)| values.size_bytes());
        let tables = [offsets, counts, below.checked_mul(flavour.word())?];
        let entries = self.fields().count() as u64 + 2 + u64::from(below > 0);
        let mut sum = flavour.directory_bytes(entries);
        sum = sum.checked_next_multiple_of(8)?;
        for size in fields.chain(tables) {
            sum = sum.checked_add(flavour.outside(size)?)?;
        }
        Some(sum)
    }
}

/// An entry of a directory.
pub(super) struct Entry {
    tag: u16,
    /// The type of the values.
    kind: u16,
    count: u64,
    bytes: Vec<u8>,
}

/// Returns the entries of a directory, sorted by tag; `below` are the offsets of its `SubIFDs`.
pub(super) fn entries(
    directory: &Directory<'_>,
    below: &[u64],
    flavour: Flavour,
    order: ByteOrder,
) -> Result<Vec<Entry>, ContentError> {
    let mut entries: Vec<Entry> = Vec::new();
    for (tag, values) in directory.fields() {
        let (kind, count, bytes) = values.encode(order)?;
        entries.push(Entry {
            tag: *tag,
            kind,
            count,
            bytes,
        });
    }
    let blocks = &directory.image.blocks;
    let (mut offsets, mut sizes) = (List::default(), List::default());
    let sizes_flavour = if directory.image.count_bytes() == 4 {
        Flavour::Classic
    } else {
        Flavour::Big
    };
    for block in directory.blocks.clone() {
        let size = blocks.size_bytes(block);
        // A missing block has offset and size 0 ("GTiff - GeoTIFF File Format", sparse files).
        let offset = match size {
            0 => 0,
            _ => directory.start + blocks.offset(block),
        };
        put_word(&mut offsets, order, flavour, offset)?;
        put_word(&mut sizes, order, sizes_flavour, size)?;
    }
    let count = directory.blocks.end - directory.blocks.start;
    let (offsets_tag, counts_tag) = blocks.tags();
    for (tag, flavour, bytes) in [
        (offsets_tag, flavour, offsets),
        (counts_tag, sizes_flavour, sizes),
    ] {
        // `LONG`, `LONG8`.
        let kind = if flavour == Flavour::Classic { 4 } else { 16 };
        entries.push(Entry {
            tag,
            kind,
            count,
            bytes: bytes.finish()?,
        });
    }
    if !below.is_empty() {
        let mut bytes = List::default();
        for offset in below {
            put_word(&mut bytes, order, flavour, *offset)?;
        }
        entries.push(Entry {
            tag: tag::SUB_IFDS,
            // `IFD`, `IFD8`.
            kind: if flavour == Flavour::Classic { 13 } else { 18 },
            count: below.len() as u64,
            bytes: bytes.finish()?,
        });
    }
    entries.sort_by_key(|entry| entry.tag);
    Ok(entries)
}

/// Appends a directory, followed by its values; `next` is the offset of the next directory.
pub(super) fn push(
    target: &mut List<u8>,
    entries: Vec<Entry>,
    next: u64,
    flavour: Flavour,
    order: ByteOrder,
) -> Result<(), ContentError> {
    let begin = target.len() as u64;
    let directory_bytes = flavour.directory_bytes(entries.len() as u64);
    let values_begin = (begin + directory_bytes).next_multiple_of(8);
    let mut values = List::default();
    match flavour {
        Flavour::Classic => {
            let count = u16::try_from(entries.len()).map_err(|_| "too many tags")?;
            put(target, order, count.to_le_bytes());
        }
        Flavour::Big => put(target, order, (entries.len() as u64).to_le_bytes()),
    }
    for entry in entries {
        put(target, order, entry.tag.to_le_bytes());
        put(target, order, entry.kind.to_le_bytes());
        put_word(target, order, flavour, entry.count)?;
        let size = entry.bytes.len() as u64;
        if size <= flavour.word() {
            target.extend_from_slice(&entry.bytes);
            target.extend((size..flavour.word()).map(|_| 0));
            continue;
        }
        let values_at = values_begin + values.len() as u64;
        put_word(target, order, flavour, values_at)?;
        values.extend_from_slice(&entry.bytes);
        values.resize(values.len().next_multiple_of(8), 0);
    }
    put_word(target, order, flavour, next)?;
    let padding = values_begin - target.len() as u64;
    target.extend((0..padding).map(|_| 0));
    target.extend_from_slice(&values.finish()?);
    Ok(())
}
