//! The offsets of tiles or strips in the data of an image.

use std::sync::Arc;

use super::PixelLayout;
use super::compression::Compression;
use super::field::{FieldValue, tag};
use crate::array::ChunkTable;
use crate::view::file::layout::ElementOrder;

/// The blocks of an image (TIFF 6.0, section 3 for strips, section 15 for tiles).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocks {
    /// A tile is a plane of a chunk; chunks are contiguous.
    Tiles(Tiles),
    /// A strip is some rows of a plane.
    Strips(Strips),
    /// A tile or a strip is a stored chunk.
    Stored(StoredBlocks),
}

/// Stored chunks, in the order of the blocks, plane by plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredBlocks {
    /// The width of a tile in pixels; `None` if blocks are strips.
    width: Option<u64>,
    /// Number of rows of a block.
    rows: u64,
    per_plane: u64,
    planes: u64,
    /// The maximum size of the last strip of a plane, which ends with the image; `None` if a block is the
    /// whole chunk.
    last_strip_bytes: Option<u64>,
    table: Arc<ChunkTable>,
}

/// Consecutive chunks, each of which is one or more tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tiles {
    width: u64,
    height: u64,
    across: u64,
    down: u64,
    /// Number of planes of the array and of a chunk along each leading axis.
    planes: Vec<(u64, u64)>,
    tile_bytes: u64,
}

/// Consecutive planes, each of which is one or more strips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strips {
    rows: u64,
    height: u64,
    row_bytes: u64,
    planes: u64,
}

/// The maximum size of a tile, which programs hold in memory to read one pixel.
const MAX_TILE_BYTES: u64 = 256 << 20;
/// The maximum number of blocks of an image; readers are slow with larger tables.
const MAX_BLOCKS: u64 = 700_000;
/// The size of a strip in bytes. It doubles up to the maximum for more than `FEW_STRIPS` strips.
const STRIP_BYTES: u64 = 128 << 10;
const FEW_STRIPS: u64 = 1 << 16;
const MAX_STRIP_BYTES: u64 = 1 << 20;

impl Blocks {
    /// Returns the blocks of an image with chunks of this shape.
    pub(super) fn new(pixels: &PixelLayout, chunk: &[u64]) -> Self {
        match tiles(pixels, chunk) {
            Some(tiles) => Self::Tiles(tiles),
            None => Self::strips(pixels, chunk),
        }
    }

    /// Returns strips, for programs that cannot read tiles.
    pub(super) fn strips(pixels: &PixelLayout, chunk: &[u64]) -> Self {
        Self::Strips(strips(pixels, chunk))
    }

    /// Returns the blocks of an image whose stored chunks, of this shape, are in the file.
    ///
    /// # Errors
    /// Returns why chunks of this shape cannot be blocks.
    pub(super) fn stored(
        pixels: &PixelLayout,
        chunk: &[u64],
        compression: &Compression,
        table: Arc<ChunkTable>,
    ) -> Result<Self, String> {
        let [rows, width] = stored_sides(pixels, chunk, compression)?;
        let is_tile = is_side(width) && is_side(rows);
        let last_rows = (pixels.height.checked_rem(rows)).filter(|last| *last > 0 && !is_tile);
        let row_bytes = width.saturating_mul(pixels.pixel_bytes());
        Ok(Self::Stored(StoredBlocks {
            last_strip_bytes: last_rows.map(|last| last.saturating_mul(row_bytes)),
            width: is_tile.then_some(width),
            rows,
            per_plane: pixels
                .height
                .div_ceil(rows)
                .saturating_mul(pixels.width.div_ceil(width)),
            planes: pixels.planes.iter().product(),
            table,
        }))
    }

    /// Returns the order of the decoded elements in the file.
    pub(super) fn order(&self) -> ElementOrder {
        match self {
            Self::Tiles(_) | Self::Stored(_) => ElementOrder::ChunkMajor,
            Self::Strips(_) => ElementOrder::RowMajor,
        }
    }

    /// Returns the tags of the tables of offsets and of sizes.
    pub(super) fn tags(&self) -> (u16, u16) {
        match self {
            Self::Tiles(_) => (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS),
            Self::Stored(blocks) if blocks.width.is_some() => {
                (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS)
            }
            Self::Strips(_) | Self::Stored(_) => (tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS),
        }
    }

    /// Returns the tags with the shape of a block.
    pub(super) fn fields(&self) -> Result<Vec<(u16, FieldValue)>, String> {
        Ok(match self {
            Self::Tiles(tiles) => vec![
                (tag::TILE_WIDTH, FieldValue::long(tiles.width)?),
                (tag::TILE_LENGTH, FieldValue::long(tiles.height)?),
            ],
            Self::Strips(strips) => {
                vec![(tag::ROWS_PER_STRIP, FieldValue::long(strips.rows)?)]
            }
            Self::Stored(blocks) => match blocks.width {
                Some(width) => vec![
                    (tag::TILE_WIDTH, FieldValue::long(width)?),
                    (tag::TILE_LENGTH, FieldValue::long(blocks.rows)?),
                ],
                None => vec![(tag::ROWS_PER_STRIP, FieldValue::long(blocks.rows)?)],
            },
        })
    }

    /// Returns the number of blocks.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.count(),
            Self::Strips(strips) => strips.planes.saturating_mul(strips.per_plane()),
            Self::Stored(blocks) => blocks.planes.saturating_mul(blocks.per_plane),
        }
    }

    /// Returns whether some blocks are not in the file.
    pub(super) fn is_sparse(&self) -> bool {
        match self {
            Self::Stored(blocks) => blocks.table.len() < self.count(),
            Self::Tiles(_) | Self::Strips(_) => false,
        }
    }

    /// Returns the number of blocks of a plane. Blocks are ordered by plane.
    pub(super) fn per_plane(&self) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.down.saturating_mul(tiles.across),
            Self::Strips(strips) => strips.per_plane(),
            Self::Stored(blocks) => blocks.per_plane,
        }
    }

    /// Returns the offset of a block.
    pub(super) fn offset(&self, block: u64) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.offset(block),
            Self::Strips(strips) => {
                let count = strips.per_plane();
                let row = (block / count)
                    .saturating_mul(strips.height)
                    .saturating_add((block % count).saturating_mul(strips.rows));
                row.saturating_mul(strips.row_bytes)
            }
            Self::Stored(blocks) => blocks.table.find(block).map_or(0, |range| range.start),
        }
    }

    /// Returns the size of a block; 0 if it is not in the file.
    pub(super) fn size_bytes(&self, block: u64) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.tile_bytes,
            Self::Strips(strips) => {
                let before = (block % strips.per_plane()).saturating_mul(strips.rows);
                let rows = strips.rows.min(strips.height.saturating_sub(before));
                rows.saturating_mul(strips.row_bytes)
            }
            Self::Stored(blocks) => {
                let range = blocks.table.find(block).unwrap_or_default();
                let size_bytes = range.end - range.start;
                let is_last = (block + 1).is_multiple_of(blocks.per_plane.max(1));
                match blocks.last_strip_bytes {
                    Some(most_bytes) if is_last => size_bytes.min(most_bytes),
                    _ => size_bytes,
                }
            }
        }
    }

    /// Returns the size of the largest block.
    pub(super) fn largest_bytes(&self) -> u64 {
        match self {
            Self::Stored(blocks) => blocks.table.largest_bytes(),
            // No other block exceeds the first one.
            Self::Tiles(_) | Self::Strips(_) => self.size_bytes(0),
        }
    }
}

impl Tiles {
    fn count(&self) -> u64 {
        let planes = self.planes.iter().map(|(length, _)| *length);
        let sides = [self.down, self.across];
        planes.chain(sides).fold(1, u64::saturating_mul)
    }

    /// Returns the offset of a tile. Tiles are numbered plane by plane, in C order over the leading axes.
    fn offset(&self, tile: u64) -> u64 {
        let per_plane = self.down.saturating_mul(self.across).max(1);
        let (mut plane, in_plane) = (tile / per_plane, tile % per_plane);
        let (mut chunk, mut inside) = (0_u64, 0_u64);
        let (mut chunks, mut planes) = (1_u64, 1_u64);
        for (length, in_chunk) in self.planes.iter().rev() {
            let at = plane % length.max(&1);
            plane /= length.max(&1);
            chunk = chunk.saturating_add((at / in_chunk).saturating_mul(chunks));
            inside = inside.saturating_add((at % in_chunk).saturating_mul(planes));
            chunks = chunks.saturating_mul(length.div_ceil(*in_chunk));
            planes = planes.saturating_mul(*in_chunk);
        }
        chunk
            .saturating_mul(per_plane)
            .saturating_add(in_plane)
            .saturating_mul(planes)
            .saturating_add(inside)
            .saturating_mul(self.tile_bytes)
    }
}

impl Strips {
    fn per_plane(&self) -> u64 {
        self.height.div_ceil(self.rows.max(1)).max(1)
    }
}

/// Returns whether TIFF permits a tile side of this length (TIFF 6.0, section 15).
fn is_side(side: u64) -> bool {
    side > 0 && side.is_multiple_of(16) && u32::try_from(side).is_ok()
}

/// Returns the rows and columns of a chunk that is one tile, or one strip of the whole width.
///
/// # Errors
/// Returns why the chunk is neither.
pub(super) fn stored_sides(
    pixels: &PixelLayout,
    chunk: &[u64],
    compression: &Compression,
) -> Result<[u64; 2], String> {
    let sides = match pixels.is_chunky {
        true => chunk
            .split_last()
            .filter(|(samples, _)| **samples == pixels.samples),
        false => Some((&1, chunk)),
    };
    let split = sides.and_then(|(_, sides)| sides.split_last_chunk::<2>());
    let Some(([rows, width], leading)) = split.map(|(leading, sides)| (*sides, leading)) else {
        return Err("a chunk has not all bands of a pixel".into());
    };
    if leading.iter().any(|length| *length != 1) {
        return Err(
            "a chunk has several bands, plane by plane: TIFF has each in tiles of its own".into(),
        );
    }
    let is_tile = is_side(width) && is_side(rows);
    let is_strip = width == pixels.width && rows > 0;
    if !is_tile && !is_strip {
        return Err(format!(
            "chunks of {rows} rows and {width} columns are neither tiles of TIFF, whose sides are multiples of \
             16, nor as wide as the image"
        ));
    }
    // Readers allocate the rows of the image, and some refuse a strip that decodes to more. A strip without
    // compression ends with the image.
    if !is_tile && !pixels.height.is_multiple_of(rows) && *compression != Compression::None {
        return Err(format!(
            "chunks of {rows} rows as strips of TIFF: the last one would decode to more rows than the image \
             of {} rows",
            pixels.height
        ));
    }
    if matches!(compression, Compression::Jpeg { .. }) && !is_tile && rows < pixels.height {
        return Err("strips of JPEG have the rows of the whole image".into());
    }
    let block_bytes = rows
        .checked_mul(width)
        .and_then(|n| n.checked_mul(pixels.pixel_bytes()));
    if block_bytes.is_none_or(|bytes| bytes > MAX_TILE_BYTES) {
        return Err(format!("chunks of more than {MAX_TILE_BYTES} bytes"));
    }
    let per_plane = pixels
        .height
        .div_ceil(rows)
        .saturating_mul(pixels.width.div_ceil(width));
    let blocks = pixels
        .planes
        .iter()
        .copied()
        .fold(per_plane, u64::saturating_mul);
    match blocks > MAX_BLOCKS {
        true => Err(format!("more than {MAX_BLOCKS} chunks")),
        false => Ok([rows, width]),
    }
}

/// Returns the chunks as tiles, if their shape allows it.
fn tiles(pixels: &PixelLayout, chunk: &[u64]) -> Option<Tiles> {
    let (leading, [height, width]) = match pixels.is_chunky {
        false => chunk.split_last_chunk::<2>()?,
        true => {
            let (samples, sides) = chunk.split_last()?;
            // A chunk with more or fewer samples than a pixel cannot be a tile.
            sides
                .split_last_chunk::<2>()
                .filter(|_| *samples == pixels.samples)?
        }
    };
    if !is_side(*width) || !is_side(*height) || leading.contains(&0) {
        return None;
    }
    let tile_bytes = width
        .checked_mul(*height)?
        .checked_mul(pixels.pixel_bytes())?;
    let tiles = Tiles {
        width: *width,
        height: *height,
        across: pixels.width.div_ceil(*width),
        down: pixels.height.div_ceil(*height),
        planes: pixels
            .planes
            .iter()
            .copied()
            .zip(leading.iter().copied())
            .collect(),
        tile_bytes,
    };
    (tile_bytes <= MAX_TILE_BYTES && tiles.count() <= MAX_BLOCKS).then_some(tiles)
}

fn strips(pixels: &PixelLayout, chunk: &[u64]) -> Strips {
    let row_bytes = pixels.width.saturating_mul(pixels.pixel_bytes()).max(1);
    let planes: u64 = pixels.planes.iter().product();
    let height = pixels.height.max(1);
    let rows_of = |bytes: u64| (bytes / row_bytes).clamp(1, height);
    let count = |rows: u64| planes.saturating_mul(height.div_ceil(rows));
    let mut bytes = STRIP_BYTES;
    while bytes < MAX_STRIP_BYTES && count(rows_of(bytes)) > FEW_STRIPS {
        bytes *= 2;
    }
    let mut rows = rows_of(bytes);
    while rows < height && count(rows) > MAX_BLOCKS {
        rows = rows.saturating_mul(2).min(height);
    }
    // Strips that end at chunk boundaries touch no further chunks.
    let down = if pixels.is_chunky { 3 } else { 2 };
    let chunk_rows = chunk
        .len()
        .checked_sub(down)
        .and_then(|axis| chunk.get(axis));
    if let Some(side) = chunk_rows.filter(|side| **side > 0 && rows > **side && rows < height) {
        let whole = rows - rows % side;
        if count(whole) <= MAX_BLOCKS {
            rows = whole;
        }
    }
    Strips {
        rows,
        height,
        row_bytes,
        planes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    const U2: Number = Number::new(NumberKind::UInt, 2, ByteOrder::Little);

    fn offsets(blocks: &Blocks) -> Vec<u64> {
        (0..blocks.count())
            .map(|block| blocks.offset(block))
            .collect()
    }

    #[test]
    fn tiles_are_planes_of_chunks() {
        let pixels = PixelLayout::of_planes(&[3], 20, 40, U2);
        let blocks = Blocks::new(&pixels, &[2, 16, 32]);
        assert_eq!(blocks.order(), ElementOrder::ChunkMajor);
        let tile = 16 * 32 * 2;
        assert_eq!(blocks.size_bytes(11), tile);
        // Four chunks of two planes, and four chunks with one plane beyond the edge.
        let places = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14];
        assert_eq!(offsets(&blocks), places.map(|place| place * tile));
        let deep = PixelLayout::of_planes(&[2, 3], 16, 16, U2);
        let blocks = Blocks::new(&deep, &[1, 2, 16, 16]);
        let places = [0, 1, 2, 4, 5, 6].map(|place| place * 512);
        assert_eq!(offsets(&blocks), places);
    }

    #[test]
    fn chunks_that_are_no_tiles_become_strips() {
        let pixels = PixelLayout::of_planes(&[2], 1000, 1000, U2);
        for chunk in [[1, 100, 16], [1, 16, 8], [1, 1 << 14, 1 << 14], [0, 16, 16]] {
            let blocks = Blocks::new(&pixels, &chunk);
            assert_eq!(blocks.order(), ElementOrder::RowMajor, "{chunk:?}");
            let (mut end, count) = (0, blocks.count());
            for block in 0..count {
                assert_eq!(blocks.offset(block), end);
                end += blocks.size_bytes(block);
            }
            assert_eq!(end, 2 * 1000 * 1000 * 2);
            assert!((64 << 10..=256 << 10).contains(&blocks.size_bytes(0)));
        }
        // Strips end at chunk boundaries.
        let blocks = Blocks::new(&pixels, &[1, 20, 1000]);
        assert_eq!(blocks.size_bytes(0), 60 * 2000);
    }

    #[test]
    fn tables_stay_small() {
        let most = 0x7FFF_FFFF;
        for (planes, height, width) in [(65_535, most, 1), (1, most, most), (65_535, 4, most)] {
            let pixels = PixelLayout::of_planes(&[planes], height, width, U2);
            for chunk in [[1, 16, 16], [1, 1, 1]] {
                let blocks = Blocks::new(&pixels, &chunk);
                assert!(blocks.count() <= MAX_BLOCKS, "{planes} {height} {width}");
                blocks.offset(blocks.count() - 1);
            }
        }
    }

    #[test]
    fn chunky_samples_of_a_pixel_are_in_one_tile() {
        let mut pixels = PixelLayout::of_planes(&[], 20, 40, U2);
        (pixels.samples, pixels.is_chunky) = (3, true);
        let blocks = Blocks::new(&pixels, &[16, 16, 3]);
        assert_eq!(
            offsets(&blocks),
            [0, 1, 2, 3, 4, 5].map(|tile| tile * 16 * 16 * 6)
        );
        for chunk in [[16, 16, 2], [16, 16, 4]] {
            assert_eq!(Blocks::new(&pixels, &chunk).order(), ElementOrder::RowMajor);
        }
    }
}
