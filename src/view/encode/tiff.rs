//! TIFF encoder: a header with directories and block tables before uncompressed elements or stored chunks
//! (TIFF 6.0; BigTIFF for files of 4 GiB and more).
//!
//! Chunks become tiles if their shape allows it, so that reading a tile decodes one chunk; other arrays
//! become strips of rows.

mod blocks;
mod compression;
mod directory;
mod field;
mod header;

use std::sync::Arc;

use crate::array::{ArrayReader, ChunkTable};
use crate::fallible;
use crate::node::{ContentError, Conversion, Number, NumberKind};
use crate::view::file::layout::{ArrayExtent, FileLayout, Segment, StoredExtent};
use crate::zarr::ByteOrder;
use blocks::Blocks;
pub(in crate::view) use compression::Compression;
pub(in crate::view) use directory::Image;
pub(in crate::view) use field::{FieldValue, tag};
pub(in crate::view) use header::Directories;
use header::{FileContents, Header};

/// The pixels of an image.
#[derive(Debug, Clone)]
pub(in crate::view) struct PixelLayout {
    pub(in crate::view) width: u64,
    pub(in crate::view) height: u64,
    /// Number of samples of a pixel.
    pub(in crate::view) samples: u64,
    /// Whether the samples of a pixel are contiguous; otherwise each sample is in its own plane.
    pub(in crate::view) is_chunky: bool,
    /// Number of planes along each leading axis.
    pub(in crate::view) planes: Vec<u64>,
    /// The type of the numbers in the file.
    pub(in crate::view) number: Number,
    /// Count of numbers in a sample: two if it is complex.
    pub(in crate::view) numbers: u64,
    /// The conversion from the array's numbers to those of the file.
    pub(in crate::view) conversion: Option<Conversion>,
}

impl PixelLayout {
    /// Returns the distance in bytes from one pixel to the next.
    fn pixel_bytes(&self) -> u64 {
        let sample = self.numbers * self.number.size_bytes as u64;
        sample * if self.is_chunky { self.samples } else { 1 }
    }

    /// Returns `SampleFormat` (TIFF 6.0, section 19), with libtiff's extension for complex numbers.
    fn sample_format(&self) -> u16 {
        match (self.number.kind, self.numbers) {
            (NumberKind::UInt, _) => 1,
            (NumberKind::Int, _) => 2,
            (NumberKind::Float, 1) => 3,
            (NumberKind::Float, _) => 6,
        }
    }

    /// Returns pixels with one number each, in planes.
    #[cfg(test)]
    fn of_planes(planes: &[u64], height: u64, width: u64, number: Number) -> Self {
        Self {
            width,
            height,
            samples: planes.iter().product(),
            is_chunky: false,
            planes: planes.to_vec(),
            number,
            numbers: 1,
            conversion: None,
        }
    }
}

/// Encodes the file of these images, the first of which is the main image.
///
/// # Errors
/// The tables exceed the limit of a header, or the file would exceed 2^63 - 1 bytes.
pub(in crate::view) fn encode<E: Clone + Into<Segment>>(
    images: &[(Image, E)],
    order: ByteOrder,
) -> Result<FileLayout, ContentError> {
    encode_directories(images, Directories::Images, &[], order)
}

/// Encodes the file of these images with given directories; the first directory also has the tags `first`.
///
/// # Errors
/// As [`encode`].
pub(in crate::view) fn encode_directories<E: Clone + Into<Segment>>(
    images: &[(Image, E)],
    directories: Directories<'_>,
    first: &[(u16, FieldValue)],
    order: ByteOrder,
) -> Result<FileLayout, ContentError> {
    with_contents(images, directories, first, |contents| {
        header::encode(contents, order)
    })
}

/// Encodes the classic TIFF file of an image in which only the first plane has a directory.
///
/// # Errors
/// As [`encode`].
pub(in crate::view) fn encode_first_plane(
    image: (Image, Segment),
    first: &[(u16, FieldValue)],
    order: ByteOrder,
) -> Result<FileLayout, ContentError> {
    with_contents(&[image], Directories::Planes(&[0]), first, |contents| {
        header::encode_first(contents, order)
    })
}

fn with_contents<E: Clone + Into<Segment>>(
    images: &[(Image, E)],
    directories: Directories<'_>,
    first: &[(u16, FieldValue)],
    encode: impl FnOnce(FileContents<'_>) -> Result<Header, ContentError>,
) -> Result<FileLayout, ContentError> {
    let only: Vec<&Image> = images.iter().map(|(image, _)| image).collect();
    let header = encode(FileContents {
        images: &only,
        directories,
        first,
    })?;
    let mut end = header.bytes.len() as u64;
    let mut segments = vec![Segment::Bytes(header.bytes)];
    // The data are in the opposite order of the directories.
    for ((image, extent), start) in images.iter().zip(header.starts).rev() {
        let gap = start.checked_sub(end).ok_or("data overlap the header")?;
        segments.push(Segment::Zeros(gap));
        segments.push(extent.clone().into());
        end = start.checked_add(image.size_bytes).ok_or(TOO_LONG)?;
    }
    FileLayout::new(segments).ok_or_else(|| TOO_LONG.into())
}

const TOO_LONG: &str = "no file can be so long";
/// The maximum size of a strip or tile: GDAL and libtiff count its bytes in a C `int`.
const MAX_BLOCK_BYTES: u64 = 0x7FFF_FFFF;

/// Returns the image of an array's elements with all baseline tags; `source` is the index of the array in the
/// file.
///
/// # Errors
/// No TIFF file can contain the pixels.
pub(in crate::view) fn image(
    pixels: &PixelLayout,
    reader: &Arc<ArrayReader>,
    source: usize,
) -> Result<(Image, ArrayExtent), ContentError> {
    let blocks = match reader.read_chunk_shape() {
        Some(chunk) => Blocks::new(pixels, chunk),
        None => Blocks::strips(pixels, reader.chunks().grid().array_shape()),
    };
    image_of_blocks(pixels, blocks, reader, source)
}

/// As [`image`], in strips, for programs that cannot read tiles.
///
/// # Errors
/// As [`image`].
pub(in crate::view) fn image_in_strips(
    pixels: &PixelLayout,
    reader: &Arc<ArrayReader>,
    source: usize,
) -> Result<(Image, ArrayExtent), ContentError> {
    let chunk = reader.read_chunk_shape();
    let chunk = chunk.unwrap_or_else(|| reader.chunks().grid().array_shape());
    let blocks = Blocks::strips(pixels, chunk);
    image_of_blocks(pixels, blocks, reader, source)
}

/// Checks that the stored chunks of an array can be the blocks of an image.
///
/// # Errors
/// Returns why they cannot.
pub(in crate::view) fn check_stored(
    pixels: &PixelLayout,
    reader: &ArrayReader,
    compression: &Compression,
) -> Result<(), String> {
    let chunk = reader
        .read_chunk_shape()
        .ok_or("its chunks have several shapes")?;
    compression.check(pixels)?;
    blocks::stored_sides(pixels, chunk, compression).map(drop)
}

/// Returns the image of an array's stored chunks.
///
/// # Errors
/// As [`check_stored`] and [`image`].
pub(in crate::view) fn stored_image(
    pixels: &PixelLayout,
    reader: &ArrayReader,
    source: usize,
    compression: &Compression,
    table: Arc<ChunkTable>,
) -> Result<(Image, StoredExtent), ContentError> {
    let chunk = reader
        .read_chunk_shape()
        .ok_or("its chunks have several shapes")?;
    let blocks = Blocks::stored(pixels, chunk, compression, Arc::clone(&table))?;
    if blocks.largest_bytes() > MAX_BLOCK_BYTES {
        return Err("stored chunks of 2 GiB and more".into());
    }
    let image = Image {
        fields: fields(pixels, &blocks, compression)?,
        blocks,
        size_bytes: table.size_bytes(),
    };
    Ok((image, StoredExtent { source, table }))
}

fn image_of_blocks(
    pixels: &PixelLayout,
    blocks: Blocks,
    reader: &Arc<ArrayReader>,
    source: usize,
) -> Result<(Image, ArrayExtent), ContentError> {
    let largest = blocks.largest_bytes();
    if largest > MAX_BLOCK_BYTES {
        let why =
            format!("a row of {largest} bytes is one strip: programs read strips below 2 GiB");
        return Err(why.into());
    }
    let extent =
        ArrayExtent::new(source, reader, blocks.order(), pixels.conversion).ok_or(TOO_LONG)?;
    let image = Image {
        fields: fields(pixels, &blocks, &Compression::None)?,
        blocks,
        size_bytes: extent.size_bytes,
    };
    Ok((image, extent))
}

/// Returns all baseline tags except for the tables of blocks.
fn fields(
    pixels: &PixelLayout,
    blocks: &Blocks,
    compression: &Compression,
) -> Result<Vec<(u16, FieldValue)>, ContentError> {
    let samples = u16::try_from(pixels.samples).map_err(|_| "too many bands")?;
    let each = |value: u16| fallible::repeat(value, samples.into()).map(FieldValue::Shorts);
    let one = |value: u16| FieldValue::Shorts(vec![value]);
    let bits = 8 * pixels.numbers * pixels.number.size_bytes as u64;
    let bits = u16::try_from(bits).map_err(|_| "samples of too many bits")?;
    let (colors, photometric) = compression.colors(pixels);
    let mut fields = vec![
        (tag::IMAGE_WIDTH, FieldValue::long(pixels.width)?),
        (tag::IMAGE_LENGTH, FieldValue::long(pixels.height)?),
        (tag::BITS_PER_SAMPLE, each(bits)?),
        (tag::COMPRESSION, one(compression.number())),
        (tag::PHOTOMETRIC, one(photometric)),
        (tag::SAMPLES_PER_PIXEL, one(samples)),
        (
            tag::PLANAR_CONFIGURATION,
            one(if pixels.is_chunky || samples == 1 {
                1
            } else {
                2
            }),
        ),
        (tag::SAMPLE_FORMAT, each(pixels.sample_format())?),
        (
            tag::SOFTWARE,
            FieldValue::Text(concat!("zarrfs ", env!("CARGO_PKG_VERSION")).into()),
        ),
    ];
    if samples > colors {
        let extra = fallible::repeat(0, usize::from(samples - colors))?;
        fields.push((tag::EXTRA_SAMPLES, FieldValue::Shorts(extra)));
    }
    fields.extend(compression.field());
    fields.extend(blocks.fields()?);
    Ok(fields)
}
