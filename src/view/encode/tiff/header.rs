//! The header of a TIFF file: the chain of directories, and the place of the data of each image.
//!
//! TIFF 6.0, section 2 (image file header, directory); BigTIFF is the same with 8 bytes for counts and offsets ("The
//! BigTIFF File Format", Aware Systems; version 43).

use super::directory::{Directory, Image, entries, push};
use super::field::{FieldValue, Flavour, put, put_word};
use crate::fallible::List;
use crate::node::ContentError;
use crate::view::file::layout::has_gap;
use crate::zarr::ByteOrder;

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

/// Selects the directories of a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::view) enum Directories<'a> {
    /// One for each image.
    Images,
    /// One for each of these planes of the first image, in this order. The same planes of the other images
    /// are the `SubIFDs` of each directory.
    Planes(&'a [u64]),
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

/// Encodes the header of a file.
///
/// # Errors
/// The tables exceed the limit, or the file would exceed 2^63 - 1 bytes.
pub(super) fn encode(contents: FileContents<'_>, order: ByteOrder) -> Result<Header, ContentError> {
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
pub(super) fn encode_first(
    contents: FileContents<'_>,
    order: ByteOrder,
) -> Result<Header, ContentError> {
    let (starts, _) = starts(contents, Flavour::Classic)?;
    write(contents, starts, Flavour::Classic, order)
}

fn write(
    contents: FileContents<'_>,
    starts: Vec<u64>,
    flavour: Flavour,
    order: ByteOrder,
) -> Result<Header, ContentError> {
    let mut bytes = List::default();
    bytes.extend_from_slice(match order {
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
    let bytes = bytes.finish()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::view::encode::tiff::blocks::Blocks;
    use crate::view::encode::tiff::{PixelLayout, tag};

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
        let why = encode(of_images(&[&image]), ByteOrder::Little);
        assert!(
            matches!(&why, Err(ContentError::Absent(why)) if why.contains("tables")),
            "{why:?}"
        );
        let mut image = self::image(1, 16, ByteOrder::Little, Vec::new());
        image.size_bytes = u64::MAX;
        assert!(encode(of_images(&[&image]), ByteOrder::Little).is_err());
    }
}
