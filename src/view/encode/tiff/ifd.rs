//! The header of a TIFF file: directories with their values and block tables.
//!
//! TIFF 6.0, section 2 (image file header, directory, types); BigTIFF is the same with 8 bytes for
//! counts and offsets ("The BigTIFF File Format", Aware Systems; version 43).

use std::ops::Range;

use super::blocks::Blocks;
use crate::view::layout::has_gap;
use crate::zarr::ByteOrder;

/// Tags, by their names in TIFF 6.0.
pub(in crate::view) mod tag {
    pub(in crate::view) const NEW_SUBFILE_TYPE: u16 = 254;
    pub(in crate::view) const IMAGE_WIDTH: u16 = 256;
    pub(in crate::view) const IMAGE_LENGTH: u16 = 257;
    pub(in crate::view) const BITS_PER_SAMPLE: u16 = 258;
    pub(in crate::view) const COMPRESSION: u16 = 259;
    pub(in crate::view) const PHOTOMETRIC: u16 = 262;
    pub(in crate::view) const IMAGE_DESCRIPTION: u16 = 270;
    pub(in crate::view) const STRIP_OFFSETS: u16 = 273;
    pub(in crate::view) const SAMPLES_PER_PIXEL: u16 = 277;
    pub(in crate::view) const ROWS_PER_STRIP: u16 = 278;
    pub(in crate::view) const STRIP_BYTE_COUNTS: u16 = 279;
    pub(in crate::view) const X_RESOLUTION: u16 = 282;
    pub(in crate::view) const Y_RESOLUTION: u16 = 283;
    pub(in crate::view) const PLANAR_CONFIGURATION: u16 = 284;
    pub(in crate::view) const RESOLUTION_UNIT: u16 = 296;
    pub(in crate::view) const SOFTWARE: u16 = 305;
    pub(in crate::view) const TILE_WIDTH: u16 = 322;
    pub(in crate::view) const TILE_LENGTH: u16 = 323;
    pub(in crate::view) const TILE_OFFSETS: u16 = 324;
    pub(in crate::view) const TILE_BYTE_COUNTS: u16 = 325;
    /// "Adobe PageMaker 6.0 TIFF Technical Notes", note 1.
    pub(super) const SUB_IFDS: u16 = 330;
    pub(in crate::view) const EXTRA_SAMPLES: u16 = 338;
    pub(in crate::view) const SAMPLE_FORMAT: u16 = 339;
    /// The tags of GeoTIFF (OGC 19-008r4, Annex B).
    pub(in crate::view) const MODEL_PIXEL_SCALE: u16 = 33_550;
    pub(in crate::view) const MODEL_TIEPOINT: u16 = 33_922;
    pub(in crate::view) const MODEL_TRANSFORMATION: u16 = 34_264;
    pub(in crate::view) const GEO_KEY_DIRECTORY: u16 = 34_735;
    pub(in crate::view) const GEO_DOUBLE_PARAMS: u16 = 34_736;
    pub(in crate::view) const GEO_ASCII_PARAMS: u16 = 34_737;
    /// Private tags of ImageJ (ij.io.TiffDecoder).
    pub(in crate::view) const IMAGEJ_BYTE_COUNTS: u16 = 50_838;
    pub(in crate::view) const IMAGEJ_PROPERTIES: u16 = 50_839;
    /// Private tags of GDAL ("GTiff - GeoTIFF File Format").
    pub(in crate::view) const GDAL_METADATA: u16 = 42_112;
    pub(in crate::view) const GDAL_NODATA: u16 = 42_113;
}

/// The values of a tag.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::view) enum FieldValue {
    /// `SHORT`.
    Shorts(Vec<u16>),
    /// `BYTE`.
    Bytes(Vec<u8>),
    /// `LONG`.
    Long(u32),
    /// Several of `LONG`.
    Longs(Vec<u32>),
    /// `RATIONAL`: numerator and denominator.
    Rational(u32, u32),
    /// `DOUBLE`.
    Doubles(Vec<f64>),
    /// `ASCII`, without the NUL at its end.
    Text(String),
}

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

/// The header, and the offset of each image's data.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) bytes: Vec<u8>,
    pub(super) starts: Vec<u64>,
}

/// The maximum size of a header in bytes.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Data of large files begin at a multiple of the boundary, at least this distance after the header. The
/// kernel's readahead of the header then includes no data.
const DATA_BOUNDARY: u64 = 1 << 20;
const DATA_DISTANCE: u64 = 128 << 10;
/// Data of each image begin at a page boundary, so that the header is readable even if the data are not.
const IMAGE_BOUNDARY: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Classic,
    Big,
}

impl Flavour {
    /// Returns the size of a count or an offset in bytes; values up to this size are in the entry itself.
    fn word(self) -> u64 {
        match self {
            Self::Classic => 4,
            Self::Big => 8,
        }
    }

    fn preamble_bytes(self) -> u64 {
        2 * self.word()
    }

    fn entry_bytes(self) -> u64 {
        4 + 2 * self.word()
    }

    fn directory_bytes(self, entries: u64) -> u64 {
        let count = if self == Self::Big { 8 } else { 2 };
        count + entries * self.entry_bytes() + self.word()
    }

    /// Returns the number of bytes that a value takes after its directory.
    fn outside(self, bytes: u64) -> Option<u64> {
        match bytes <= self.word() {
            true => Some(0),
            false => bytes.checked_next_multiple_of(8),
        }
    }
}

impl FieldValue {
    /// Returns a `LONG`.
    ///
    /// # Errors
    /// The value exceeds 32 bits.
    pub(super) fn long(value: u64) -> Result<Self, String> {
        let value = u32::try_from(value).map_err(|_| format!("{value} exceeds 32 bits"))?;
        Ok(Self::Long(value))
    }

    /// Returns the number of the type, the count, and the bytes.
    fn encode(&self, order: ByteOrder) -> (u16, u64, Vec<u8>) {
        let mut bytes = Vec::new();
        match self {
            Self::Shorts(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (3, values.len() as u64, bytes)
            }
            Self::Bytes(values) => (1, values.len() as u64, values.clone()),
            Self::Long(value) => {
                put(&mut bytes, order, value.to_le_bytes());
                (4, 1, bytes)
            }
            Self::Longs(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (4, values.len() as u64, bytes)
            }
            Self::Rational(numerator, denominator) => {
                put(&mut bytes, order, numerator.to_le_bytes());
                put(&mut bytes, order, denominator.to_le_bytes());
                (5, 1, bytes)
            }
            Self::Doubles(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (12, values.len() as u64, bytes)
            }
            Self::Text(text) => {
                bytes.extend(text.bytes());
                bytes.push(0);
                (2, bytes.len() as u64, bytes)
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        match self {
            Self::Shorts(values) => 2 * values.len() as u64,
            Self::Bytes(values) => values.len() as u64,
            Self::Long(_) => 4,
            Self::Longs(values) => 4 * values.len() as u64,
            Self::Rational(..) => 8,
            Self::Doubles(values) => 8 * values.len() as u64,
            Self::Text(text) => text.len() as u64 + 1,
        }
    }
}

fn put<const N: usize>(target: &mut Vec<u8>, order: ByteOrder, mut bytes: [u8; N]) {
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    target.extend(bytes);
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

/// Selects the directories of a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::view) enum Directories<'a> {
    /// One for each image.
    Images,
    /// One for each of these planes of the first image, in this order. The same planes of the other images
    /// are the `SubIFDs` of each directory.
    Planes(&'a [u64]),
}

/// A directory: a range of blocks of an image.
#[derive(Debug, Clone)]
struct Directory<'a> {
    image: &'a Image,
    /// The offset of the image's data.
    start: u64,
    blocks: Range<u64>,
    /// Tags of this directory only.
    own: &'a [(u16, FieldValue)],
}

/// A directory of the file's chain, and the directories in its `SubIFDs`.
type Chained<'a> = (Directory<'a>, Vec<Directory<'a>>);

/// The input for the header of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileContents<'a> {
    /// The images, of which the first is the main image.
    pub(super) images: &'a [&'a Image],
    pub(super) directories: Directories<'a>,
    /// Tags of the first directory only.
    pub(super) first: &'a [(u16, FieldValue)],
}

impl<'a> FileContents<'a> {
    /// Returns the directories, with data at these offsets.
    fn chain(self, starts: &'a [u64]) -> impl Iterator<Item = Chained<'a>> {
        let count = match self.directories {
            Directories::Images => self.images.len(),
            Directories::Planes(planes) => planes.len(),
        };
        (0..count).filter_map(move |index| {
            let start = |image: usize| starts.get(image).copied().unwrap_or(0);
            let (mut main, below) = match self.directories {
                Directories::Images => {
                    let image = self.images.get(index)?;
                    (Directory::whole(image, start(index)), Vec::new())
                }
                Directories::Planes(planes) => {
                    let plane = *planes.get(index)?;
                    let images = self.images.iter().enumerate();
                    let mut all =
                        images.map(|(place, image)| Directory::plane(image, start(place), plane));
                    (all.next()?, all.collect())
                }
            };
            if index == 0 {
                main.own = self.first;
            }
            Some((main, below))
        })
    }
}

impl<'a> Directory<'a> {
    /// Returns a directory of all blocks of an image.
    fn whole(image: &'a Image, start: u64) -> Self {
        Self {
            image,
            start,
            blocks: 0..image.blocks.count(),
            own: &[],
        }
    }

    /// Returns a directory of the blocks of one plane.
    fn plane(image: &'a Image, start: u64, plane: u64) -> Self {
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
    fn size_bytes(&self, flavour: Flavour, below: u64) -> Option<u64> {
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

/// Encodes the header of a file.
///
/// # Errors
/// The tables exceed the limit, or the file would exceed 2^63 - 1 bytes.
pub(super) fn encode(contents: FileContents<'_>, order: ByteOrder) -> Result<Header, String> {
    let (starts, end) = starts(contents, Flavour::Classic)?;
    let (flavour, starts) = match u32::try_from(end) {
        Ok(_) => (Flavour::Classic, starts),
        Err(_) => (Flavour::Big, self::starts(contents, Flavour::Big)?.0),
    };
    write(contents, starts, flavour, order)
}

/// Encodes the header of a classic file with one directory, whose data may exceed 4 GiB: programs compute the
/// offsets of all planes but the first.
///
/// # Errors
/// As [`encode`]; or the first plane ends beyond 4 GiB.
pub(super) fn encode_first(contents: FileContents<'_>, order: ByteOrder) -> Result<Header, String> {
    let (starts, _) = starts(contents, Flavour::Classic)?;
    write(contents, starts, Flavour::Classic, order)
}

fn write(
    contents: FileContents<'_>,
    starts: Vec<u64>,
    flavour: Flavour,
    order: ByteOrder,
) -> Result<Header, String> {
    let mut bytes = Vec::new();
    bytes.extend(match order {
        ByteOrder::Little => b"II",
        ByteOrder::Big => b"MM",
    });
    match flavour {
        Flavour::Classic => put(&mut bytes, order, 42_u16.to_le_bytes()),
        Flavour::Big => {
            put(&mut bytes, order, 43_u16.to_le_bytes());
            put(&mut bytes, order, 8_u16.to_le_bytes());
            put(&mut bytes, order, 0_u16.to_le_bytes());
        }
    }
    put_word(&mut bytes, order, flavour, flavour.preamble_bytes())?;
    let mut chain = contents.chain(&starts).peekable();
    while let Some((main, below)) = chain.next() {
        let mut end = bytes.len() as u64 + size_of(&main, flavour, below.len() as u64)?;
        let mut offsets = Vec::with_capacity(below.len());
        for directory in &below {
            offsets.push(end);
            end += size_of(directory, flavour, 0)?;
        }
        let next = if chain.peek().is_some() { end } else { 0 };
        let main = entries(&main, &offsets, flavour, order)?;
        push(&mut bytes, main, next, flavour, order)?;
        for directory in &below {
            let reduced = entries(directory, &[], flavour, order)?;
            push(&mut bytes, reduced, 0, flavour, order)?;
        }
    }
    drop(chain);
    Ok(Header { bytes, starts })
}

fn size_of(directory: &Directory<'_>, flavour: Flavour, below: u64) -> Result<u64, String> {
    let size = directory.size_bytes(flavour, below);
    size.ok_or_else(|| TOO_LONG_TABLES.to_owned())
}

const TOO_LONG_TABLES: &str = "its tables take more than 16 MiB";

/// Returns the offset of each image's data, and the end of the data. As in a Cloud Optimized GeoTIFF, the
/// smallest overview is the first and the main image the last.
fn starts(contents: FileContents<'_>, flavour: Flavour) -> Result<(Vec<u64>, u64), String> {
    let too_long = || "no file can be so long".to_owned();
    let mut header = flavour.preamble_bytes();
    for (main, below) in contents.chain(&[]) {
        let mut size = main.size_bytes(flavour, below.len() as u64);
        for directory in &below {
            let more = directory.size_bytes(flavour, 0);
            size = size
                .zip(more)
                .and_then(|(size, more)| size.checked_add(more));
        }
        header = size
            .and_then(|size| header.checked_add(size))
            .filter(|size| *size <= MAX_HEADER_BYTES)
            .ok_or(TOO_LONG_TABLES)?;
    }
    let sizes = contents.images.iter().map(|image| image.size_bytes);
    let mut end = match has_gap(sizes.fold(0, u64::saturating_add)) {
        true => (header + DATA_DISTANCE).next_multiple_of(DATA_BOUNDARY),
        false => header,
    };
    let mut starts = Vec::new();
    for image in contents.images.iter().rev() {
        end = end
            .checked_next_multiple_of(IMAGE_BOUNDARY)
            .ok_or_else(too_long)?;
        starts.push(end);
        end = end.checked_add(image.size_bytes).ok_or_else(too_long)?;
    }
    starts.reverse();
    Ok((starts, end))
}

/// Appends an offset, a size or a count.
///
/// # Errors
/// The file is a classic one, and the number takes more than 32 bits.
fn put_word(
    target: &mut Vec<u8>,
    order: ByteOrder,
    flavour: Flavour,
    word: u64,
) -> Result<(), String> {
    match flavour {
        Flavour::Classic => {
            let word = u32::try_from(word).map_err(|_| "a plane that ends beyond 4 GiB")?;
            put(target, order, word.to_le_bytes());
        }
        Flavour::Big => put(target, order, word.to_le_bytes()),
    }
    Ok(())
}

/// An entry of a directory.
struct Entry {
    tag: u16,
    /// The type of the values.
    kind: u16,
    count: u64,
    bytes: Vec<u8>,
}

/// Returns the entries of a directory, sorted by tag; `below` are the offsets of its `SubIFDs`.
fn entries(
    directory: &Directory<'_>,
    below: &[u64],
    flavour: Flavour,
    order: ByteOrder,
) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for (tag, values) in directory.fields() {
        let (kind, count, bytes) = values.encode(order);
        entries.push(Entry {
            tag: *tag,
            kind,
            count,
            bytes,
        });
    }
    let blocks = &directory.image.blocks;
    let (mut offsets, mut sizes) = (Vec::new(), Vec::new());
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
            bytes,
        });
    }
    if !below.is_empty() {
        let mut bytes = Vec::new();
        for offset in below {
            put_word(&mut bytes, order, flavour, *offset)?;
        }
        entries.push(Entry {
            tag: tag::SUB_IFDS,
            // `IFD`, `IFD8`.
            kind: if flavour == Flavour::Classic { 13 } else { 18 },
            count: below.len() as u64,
            bytes,
        });
    }
    entries.sort_by_key(|entry| entry.tag);
    Ok(entries)
}

/// Appends a directory, followed by its values; `next` is the offset of the next directory.
fn push(
    target: &mut Vec<u8>,
    entries: Vec<Entry>,
    next: u64,
    flavour: Flavour,
    order: ByteOrder,
) -> Result<(), String> {
    let begin = target.len() as u64;
    let directory_bytes = flavour.directory_bytes(entries.len() as u64);
    let values_begin = (begin + directory_bytes).next_multiple_of(8);
    let mut values: Vec<u8> = Vec::new();
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
            target.extend(entry.bytes);
            target.extend((size..flavour.word()).map(|_| 0));
            continue;
        }
        let values_at = values_begin + values.len() as u64;
        put_word(target, order, flavour, values_at)?;
        values.extend(entry.bytes);
        values.resize(values.len().next_multiple_of(8), 0);
    }
    put_word(target, order, flavour, next)?;
    let padding = values_begin - target.len() as u64;
    target.extend((0..padding).map(|_| 0));
    target.extend(values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::view::encode::tiff::PixelLayout;

    fn image(planes: u64, side: u64, order: ByteOrder, fields: Vec<(u16, FieldValue)>) -> Image {
        let number = Number::new(NumberKind::UInt, 2, order);
        let pixels = PixelLayout::of_planes(&[planes], side, side, number);
        Image {
            fields,
            blocks: Blocks::new(&pixels, &[1, side.min(128), side.min(128)]),
            size_bytes: planes * side * side * 2,
        }
    }

    fn of_images<'a>(images: &'a [&'a Image]) -> FileContents<'a> {
        FileContents {
            images,
            directories: Directories::Images,
            first: &[],
        }
    }

    /// Returns the values of a tag of the directory at `at` (classic, little-endian), and the next directory.
    fn classic(bytes: &[u8], at: usize, wanted: u16) -> (Option<(u32, u32)>, usize) {
        let short = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let long = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let count = usize::from(short(at));
        let mut entries = (0..count).map(|entry| at + 2 + 12 * entry);
        let found = entries.find(|entry| short(*entry) == wanted);
        let found = found.map(|entry| (long(entry + 4), long(entry + 8)));
        (found, long(at + 2 + 12 * count) as usize)
    }

    #[test]
    fn each_plane_has_a_directory_and_its_coarser_images() {
        let order = ByteOrder::Little;
        let fine = image(
            3,
            128,
            order,
            vec![(tag::IMAGE_WIDTH, FieldValue::Long(128))],
        );
        let coarse = image(3, 64, order, vec![(tag::IMAGE_WIDTH, FieldValue::Long(64))]);
        let contents = FileContents {
            images: &[&fine, &coarse],
            directories: Directories::Planes(&[0, 2, 1]),
            first: &[(
                tag::IMAGE_DESCRIPTION,
                FieldValue::Text("about all planes".into()),
            )],
        };
        let Header { bytes, starts } = encode(contents, order).unwrap();
        let mut at = 8;
        for (index, plane) in [0_u64, 2, 1].into_iter().enumerate() {
            let (width, next) = classic(&bytes, at, tag::IMAGE_WIDTH);
            assert_eq!(width, Some((1, 128)));
            let (offset, _) = classic(&bytes, at, tag::TILE_OFFSETS);
            assert_eq!(
                u64::from(offset.unwrap().1),
                starts[0] + plane * 128 * 128 * 2
            );
            let (text, _) = classic(&bytes, at, tag::IMAGE_DESCRIPTION);
            assert_eq!(text.is_some(), index == 0);
            let (below, _) = classic(&bytes, at, tag::SUB_IFDS);
            let below = below.unwrap();
            assert_eq!(below.0, 1);
            let (width, last) = classic(&bytes, below.1 as usize, tag::IMAGE_WIDTH);
            assert_eq!((width, last), (Some((1, 64)), 0));
            let (offset, _) = classic(&bytes, below.1 as usize, tag::TILE_OFFSETS);
            assert_eq!(
                u64::from(offset.unwrap().1),
                starts[1] + plane * 64 * 64 * 2
            );
            at = next;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn a_small_file_is_classic_tiff() {
        let fields = vec![
            (tag::SOFTWARE, FieldValue::Text("abc".into())),
            (tag::IMAGE_WIDTH, FieldValue::Long(16)),
        ];
        let image = image(1, 16, ByteOrder::Big, fields);
        let header = encode(of_images(&[&image]), ByteOrder::Big).unwrap();
        assert_eq!(header.starts, [4096]);
        let expected = [
            &b"MM\0\x2a\0\0\0\x08"[..],
            &[0, 4],
            &[1, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 16],
            &[1, 49, 0, 2, 0, 0, 0, 4, b'a', b'b', b'c', 0],
            &[1, 68, 0, 4, 0, 0, 0, 1, 0, 0, 16, 0],
            &[1, 69, 0, 4, 0, 0, 0, 1, 0, 0, 2, 0],
            &[0; 4],
        ];
        let expected = expected.concat();
        assert_eq!(header.bytes[..expected.len()], expected);
        assert_eq!(header.bytes.len(), expected.len().next_multiple_of(8));
    }

    #[test]
    fn a_large_file_is_bigtiff_and_its_tables_point_to_its_blocks() {
        let (order, side) = (ByteOrder::Little, 32_768);
        let images = [
            image(3, side, order, Vec::new()),
            image(3, side / 16, order, Vec::new()),
        ];
        let header = encode(of_images(&[&images[0], &images[1]]), order).unwrap();
        assert_eq!(header.bytes[..8], *b"II\x2b\0\x08\0\0\0");
        let word = |at: usize| u64::from_le_bytes(header.bytes[at..at + 8].try_into().unwrap());
        let mut at = usize::try_from(word(8)).unwrap();
        for (image, start) in images.iter().zip(&header.starts) {
            assert_eq!(word(at), 2);
            assert_eq!(header.bytes[at + 8..at + 12], [68, 1, 16, 0]);
            let count = image.blocks.count();
            assert_eq!(word(at + 12), count);
            let table = usize::try_from(word(at + 20)).unwrap();
            assert_eq!(word(table), *start);
            let last = table + 8 * usize::try_from(count - 1).unwrap();
            assert_eq!(word(last) + 128 * 128 * 2, start + image.size_bytes);
            at = usize::try_from(word(at + 48)).unwrap();
        }
        assert_eq!(at, 0);
        assert!(header.starts[0] >= header.bytes.len() as u64 + (128 << 10));
        assert_eq!(header.starts[0] % (1 << 20), 0);
    }

    #[test]
    fn too_long_tables_are_errors() {
        let text = "a".repeat(17 << 20);
        let image = image(1, 16, ByteOrder::Little, vec![(1, FieldValue::Text(text))]);
        let why = encode(of_images(&[&image]), ByteOrder::Little).unwrap_err();
        assert!(why.contains("tables"), "{why}");
        let mut image = self::image(1, 16, ByteOrder::Little, Vec::new());
        image.size_bytes = u64::MAX;
        assert!(encode(of_images(&[&image]), ByteOrder::Little).is_err());
    }
}
