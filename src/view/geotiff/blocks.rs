//! Where the tiles or strips of an image are in its data.

use super::ifd::{Values, tag};
use crate::view::georef::raster::Raster;
use crate::view::layout::ElementOrder;

/// The blocks of an image (TIFF 6.0, section 3 for strips, section 15 for tiles).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocks {
    /// A tile is a plane of a piece.
    Tiles(Tiles),
    /// A strip is some rows of a plane.
    Strips(Strips),
}

/// Pieces one behind the other, each of them some tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tiles {
    width: u64,
    height: u64,
    across: u64,
    down: u64,
    /// Planes of the array along each leading axis, and of a piece.
    planes: Vec<(u64, u64)>,
    tile_bytes: u64,
}

/// Planes one behind the other, each of them some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strips {
    rows: u64,
    height: u64,
    row_bytes: u64,
    planes: u64,
}

/// A tile larger than this is more than what a program wants to hold for one pixel.
const MAX_TILE_BYTES: u64 = 256 << 20;
/// Blocks of one image; more of them make a table that is slow to read.
const MAX_BLOCKS: u64 = 700_000;
/// Strips are about so large, and larger where they are many.
const STRIP_BYTES: u64 = 128 << 10;
const FEW_STRIPS: u64 = 1 << 16;
const MAX_STRIP_BYTES: u64 = 1 << 20;

impl Blocks {
    /// The blocks of a raster in pieces of this shape.
    pub(super) fn of(raster: &Raster, piece: &[u64]) -> Self {
        match tiles(raster, piece) {
            Some(tiles) => Self::Tiles(tiles),
            None => Self::Strips(strips(raster, piece)),
        }
    }

    /// How the elements have to lie.
    pub(super) fn order(&self) -> ElementOrder {
        match self {
            Self::Tiles(_) => ElementOrder::ChunkMajor,
            Self::Strips(_) => ElementOrder::RowMajor,
        }
    }

    /// The tags of the tables of offsets and of sizes.
    pub(super) fn tags(&self) -> (u16, u16) {
        match self {
            Self::Tiles(_) => (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS),
            Self::Strips(_) => (tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS),
        }
    }

    /// What says the shape of a block.
    pub(super) fn fields(&self) -> Vec<(u16, Values)> {
        let long = |value: u64| Values::Long(u32::try_from(value).unwrap_or(u32::MAX));
        match self {
            Self::Tiles(tiles) => vec![
                (tag::TILE_WIDTH, long(tiles.width)),
                (tag::TILE_LENGTH, long(tiles.height)),
            ],
            Self::Strips(strips) => vec![(tag::ROWS_PER_STRIP, long(strips.rows))],
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.count(),
            Self::Strips(strips) => strips.planes.saturating_mul(strips.of_a_plane()),
        }
    }

    /// Where a block begins.
    pub(super) fn offset(&self, block: u64) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.offset(block),
            Self::Strips(strips) => {
                let count = strips.of_a_plane();
                let row = (block / count)
                    .saturating_mul(strips.height)
                    .saturating_add((block % count).saturating_mul(strips.rows));
                row.saturating_mul(strips.row_bytes)
            }
        }
    }

    /// The size of a block.
    pub(super) fn size_bytes(&self, block: u64) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.tile_bytes,
            Self::Strips(strips) => {
                let before = (block % strips.of_a_plane()).saturating_mul(strips.rows);
                let rows = strips.rows.min(strips.height.saturating_sub(before));
                rows.saturating_mul(strips.row_bytes)
            }
        }
    }

    /// The size of the first block, which no other exceeds.
    pub(super) fn largest_bytes(&self) -> u64 {
        self.size_bytes(0)
    }
}

impl Tiles {
    fn count(&self) -> u64 {
        let planes = self.planes.iter().map(|(length, _)| *length);
        let sides = [self.down, self.across];
        planes.chain(sides).fold(1, u64::saturating_mul)
    }

    /// Tiles are counted plane by plane, in C order over the leading axes.
    fn offset(&self, tile: u64) -> u64 {
        let of_a_plane = self.down.saturating_mul(self.across).max(1);
        let (mut plane, in_plane) = (tile / of_a_plane, tile % of_a_plane);
        let (mut piece, mut inside) = (0_u64, 0_u64);
        let (mut pieces, mut planes) = (1_u64, 1_u64);
        for (length, in_piece) in self.planes.iter().rev() {
            let at = plane % length.max(&1);
            plane /= length.max(&1);
            piece = piece.saturating_add((at / in_piece).saturating_mul(pieces));
            inside = inside.saturating_add((at % in_piece).saturating_mul(planes));
            pieces = pieces.saturating_mul(length.div_ceil(*in_piece));
            planes = planes.saturating_mul(*in_piece);
        }
        piece
            .saturating_mul(of_a_plane)
            .saturating_add(in_plane)
            .saturating_mul(planes)
            .saturating_add(inside)
            .saturating_mul(self.tile_bytes)
    }
}

impl Strips {
    fn of_a_plane(&self) -> u64 {
        self.height.div_ceil(self.rows.max(1)).max(1)
    }
}

/// Pieces as tiles, if a tile can be so.
fn tiles(raster: &Raster, piece: &[u64]) -> Option<Tiles> {
    let (leading, [height, width]) = match raster.is_chunky {
        false => piece.split_last_chunk::<2>()?,
        true => {
            let (samples, sides) = piece.split_last()?;
            // What lies beyond the last band would be one more sample.
            sides
                .split_last_chunk::<2>()
                .filter(|_| *samples == raster.samples)?
        }
    };
    let is_side = |side: u64| side > 0 && side.is_multiple_of(16) && u32::try_from(side).is_ok();
    if !is_side(*width) || !is_side(*height) || leading.contains(&0) {
        return None;
    }
    let tile_bytes = width
        .checked_mul(*height)?
        .checked_mul(raster.pixel_bytes())?;
    let tiles = Tiles {
        width: *width,
        height: *height,
        across: raster.width.div_ceil(*width),
        down: raster.height.div_ceil(*height),
        planes: raster
            .planes
            .iter()
            .copied()
            .zip(leading.iter().copied())
            .collect(),
        tile_bytes,
    };
    (tile_bytes <= MAX_TILE_BYTES && tiles.count() <= MAX_BLOCKS).then_some(tiles)
}

fn strips(raster: &Raster, piece: &[u64]) -> Strips {
    let row_bytes = raster.width.saturating_mul(raster.pixel_bytes()).max(1);
    let planes: u64 = raster.planes.iter().product();
    let height = raster.height.max(1);
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
    // A strip that ends where pieces end needs no others.
    let down = if raster.is_chunky { 3 } else { 2 };
    let of_a_piece = piece
        .len()
        .checked_sub(down)
        .and_then(|axis| piece.get(axis));
    if let Some(side) = of_a_piece.filter(|side| **side > 0 && rows > **side && rows < height) {
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
    use crate::view::number::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    const U2: Number = Number::new(NumberKind::UInt, 2, ByteOrder::Little);

    fn offsets(blocks: &Blocks) -> Vec<u64> {
        (0..blocks.count())
            .map(|block| blocks.offset(block))
            .collect()
    }

    #[test]
    fn tiles_are_where_the_planes_of_pieces_are() {
        let raster = Raster::of_planes(&[3], 20, 40, U2);
        let blocks = Blocks::of(&raster, &[2, 16, 32]);
        assert_eq!(blocks.order(), ElementOrder::ChunkMajor);
        let tile = 16 * 32 * 2;
        assert_eq!(blocks.size_bytes(11), tile);
        // Four pieces of two planes, and four of one plane and what is beyond the edge.
        let places = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14];
        assert_eq!(offsets(&blocks), places.map(|place| place * tile));
        let deep = Raster::of_planes(&[2, 3], 16, 16, U2);
        let blocks = Blocks::of(&deep, &[1, 2, 16, 16]);
        let places = [0, 1, 2, 4, 5, 6].map(|place| place * 512);
        assert_eq!(offsets(&blocks), places);
    }

    #[test]
    fn what_no_tile_can_be_is_strips() {
        let raster = Raster::of_planes(&[2], 1000, 1000, U2);
        for piece in [[1, 100, 16], [1, 16, 8], [1, 1 << 14, 1 << 14], [0, 16, 16]] {
            let blocks = Blocks::of(&raster, &piece);
            assert_eq!(blocks.order(), ElementOrder::RowMajor, "{piece:?}");
            let (mut end, count) = (0, blocks.count());
            for block in 0..count {
                assert_eq!(blocks.offset(block), end);
                end += blocks.size_bytes(block);
            }
            assert_eq!(end, 2 * 1000 * 1000 * 2);
            assert!((64 << 10..=256 << 10).contains(&blocks.size_bytes(0)));
        }
        // A strip ends where pieces do.
        let blocks = Blocks::of(&raster, &[1, 20, 1000]);
        assert_eq!(blocks.size_bytes(0), 60 * 2000);
    }

    #[test]
    fn tables_stay_small() {
        let most = 0x7FFF_FFFF;
        for (planes, height, width) in [(65_535, most, 1), (1, most, most), (65_535, 4, most)] {
            let raster = Raster::of_planes(&[planes], height, width, U2);
            for piece in [[1, 16, 16], [1, 1, 1]] {
                let blocks = Blocks::of(&raster, &piece);
                assert!(blocks.count() <= MAX_BLOCKS, "{planes} {height} {width}");
                blocks.offset(blocks.count() - 1);
            }
        }
    }

    #[test]
    fn samples_of_a_pixel_lie_in_one_tile() {
        let mut raster = Raster::of_planes(&[], 20, 40, U2);
        (raster.samples, raster.is_chunky) = (3, true);
        let blocks = Blocks::of(&raster, &[16, 16, 3]);
        assert_eq!(
            offsets(&blocks),
            [0, 1, 2, 3, 4, 5].map(|tile| tile * 16 * 16 * 6)
        );
        for piece in [[16, 16, 2], [16, 16, 4]] {
            assert_eq!(Blocks::of(&raster, &piece).order(), ElementOrder::RowMajor);
        }
    }
}
