//! PNG (ISO/IEC 15948) whose size is known before the pixels: the image data are stored without compression
//! (RFC 1951, 3.2.4), and text that depends on pixels is padded.
//!
//! The header follows from metadata alone; the body has the range, the image data and the end.

use libdeflater::{adler32, crc32};

/// The colours of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    /// Indexes into the palette; 0 is transparent.
    Indexed,
    Rgb,
    Rgba,
}

impl Colours {
    /// Returns the size of a pixel in bytes.
    pub(super) fn pixel_bytes(self) -> usize {
        match self {
            Self::Indexed => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }

    /// Returns the `Colour type` (11.2.1).
    fn code(self) -> u8 {
        match self {
            Self::Indexed => 3,
            Self::Rgb => 2,
            Self::Rgba => 6,
        }
    }
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageHeader {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) colours: Colours,
}

/// Size of a chunk without its data, in bytes: length, type and CRC.
const CHUNK_BYTES: usize = 12;
/// The maximum size of the data of a stored block, and the size of its header, in bytes.
const BLOCK_BYTES: usize = 0xFFFF;
const BLOCK_HEADER_BYTES: usize = 5;
/// The header of zlib (RFC 1950, 2.2): deflate with a window of 32 KiB, the fastest level.
const ZLIB: [u8; 2] = [0x78, 0x01];
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// The highest index of the palette.
pub(super) const MAX_INDEX: u8 = 255;

impl ImageHeader {
    /// Returns the size of the rows in bytes, each with a byte for the filter type, which is none.
    fn rows_bytes(self) -> usize {
        (1 + self.width as usize * self.colours.pixel_bytes()) * self.height as usize
    }

    /// Returns the size of the zlib stream of image data in bytes.
    fn data_bytes(self) -> usize {
        let rows = self.rows_bytes();
        ZLIB.len() + rows + BLOCK_HEADER_BYTES * rows.div_ceil(BLOCK_BYTES) + size_of::<u32>()
    }

    /// Returns the size of the body with a text of `text_bytes` bytes.
    pub(super) fn body_bytes(self, text_bytes: usize) -> u64 {
        let text = match text_bytes {
            0 => 0,
            size => CHUNK_BYTES + text_chunk("Range", "").len() + size,
        };
        (text + CHUNK_BYTES + self.data_bytes() + CHUNK_BYTES) as u64
    }

    /// Returns signature, format, palette, and texts as keywords with values.
    pub(super) fn header(self, texts: &[(&str, &str)]) -> Vec<u8> {
        let mut file = SIGNATURE.to_vec();
        let mut format = Vec::new();
        format.extend(self.width.to_be_bytes());
        format.extend(self.height.to_be_bytes());
        // 8 bits; the only methods of compression and filters; not interlaced.
        format.extend([8, self.colours.code(), 0, 0, 0]);
        push(&mut file, *b"IHDR", &format);
        if self.colours == Colours::Indexed {
            push(&mut file, *b"PLTE", &palette());
            push(&mut file, *b"tRNS", &[0]);
        }
        for (keyword, text) in texts {
            push(&mut file, *b"iTXt", &text_chunk(keyword, text));
        }
        file
    }

    /// Returns the body: the range of the colours as text, padded to `text_bytes` (no text if that is 0), and
    /// the pixels, row by row. `None` if the size of the pixels or of the text is wrong.
    pub(super) fn body(self, text: &str, text_bytes: usize, pixels: &[u8]) -> Option<Vec<u8>> {
        let row_bytes = self.width as usize * self.colours.pixel_bytes();
        let is_whole = pixels.len() == row_bytes * self.height as usize;
        if !is_whole || row_bytes == 0 || text.len() > text_bytes {
            return None;
        }
        let mut file = Vec::new();
        if text_bytes > 0 {
            let padding = " ".repeat(text_bytes - text.len());
            let text = format!("{text}{padding}");
            push(&mut file, *b"iTXt", &text_chunk("Range", &text));
        }
        let mut rows = Vec::with_capacity(self.rows_bytes());
        for row in pixels.chunks_exact(row_bytes) {
            rows.push(0);
            rows.extend(row);
        }
        let mut data = Vec::with_capacity(self.data_bytes());
        data.extend(ZLIB);
        let mut blocks = rows.chunks(BLOCK_BYTES).peekable();
        while let Some(block) = blocks.next() {
            let length = u16::try_from(block.len()).ok()?;
            data.push(u8::from(blocks.peek().is_none()));
            data.extend(length.to_le_bytes());
            data.extend((!length).to_le_bytes());
            data.extend(block);
        }
        data.extend(adler32(&rows).to_be_bytes());
        push(&mut file, *b"IDAT", &data);
        push(&mut file, *b"IEND", &[]);
        Some(file)
    }
}

/// Returns the data of an `iTXt` chunk (11.3.4.5): UTF-8, not compressed, without a language.
fn text_chunk(keyword: &str, text: &str) -> Vec<u8> {
    [keyword.as_bytes(), &[0; 5], text.as_bytes()].concat()
}

/// Appends a chunk (5.3).
fn push(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    // Images have at most 1024 x 1024 pixels.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    file.extend(length.to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let crc = crc32(file.get(start..).unwrap_or_default());
    file.extend(crc.to_be_bytes());
}

/// Returns the palette: index 0 for missing values, then viridis from dark to bright.
fn palette() -> Vec<u8> {
    let most = usize::from(MAX_INDEX - 1);
    let colours = (0..=most).map(|index| {
        let colour = colorous::VIRIDIS.eval_rational(index, most);
        [colour.r, colour.g, colour.b]
    });
    std::iter::once([255; 3]).chain(colours).flatten().collect()
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the arrays of the tests are small"
)]
mod tests {
    use super::*;

    /// Returns the types and data of all chunks, after a check of their CRCs.
    fn chunks(mut file: &[u8]) -> Vec<(&[u8], &[u8])> {
        let mut chunks = Vec::new();
        file = file.strip_prefix(&SIGNATURE).unwrap();
        while let Some((length, rest)) = file.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let (data, rest) = rest.split_at(4 + length);
            let (crc, rest) = rest.split_first_chunk::<4>().unwrap();
            assert_eq!(u32::from_be_bytes(*crc), crc32(data));
            chunks.push(data.split_at(4));
            file = rest;
        }
        chunks
    }

    #[test]
    fn a_file_has_the_computed_size() {
        for (width, height, colours, text_bytes) in [
            (1, 1, Colours::Indexed, 0),
            (3, 2, Colours::Rgb, 20),
            (1024, 1024, Colours::Rgba, 80),
            (0xFFFE, 1, Colours::Indexed, 80),
            (0xFFFE, 2, Colours::Indexed, 80),
        ] {
            let format = ImageHeader {
                width,
                height,
                colours,
            };
            let count = (width * height) as usize * colours.pixel_bytes();
            let pixels: Vec<u8> = (0..count).map(|place| (place % 251) as u8).collect();
            let text = if text_bytes > 0 { "1 to 2 \u{b0}" } else { "" };
            let body = format.body(text, text_bytes, &pixels).unwrap();
            assert_eq!(body.len() as u64, format.body_bytes(text_bytes));
            let file = [format.header(&[("Title", "a \u{e4}")]), body].concat();
            let chunks = chunks(&file);
            let (_, data) = chunks.iter().find(|(kind, _)| *kind == b"IDAT").unwrap();
            let row_bytes = 1 + width as usize * colours.pixel_bytes();
            let mut rows = vec![0; row_bytes * height as usize];
            let mut inflate = libdeflater::Decompressor::new();
            assert_eq!(inflate.zlib_decompress(data, &mut rows), Ok(rows.len()));
            let found: Vec<u8> = rows
                .chunks(row_bytes)
                .flat_map(|row| &row[1..])
                .copied()
                .collect();
            assert_eq!(found, pixels);
            assert_eq!(chunks.last().unwrap(), &(&b"IEND"[..], &[][..]));
        }
    }

    #[test]
    fn pixels_of_another_size_are_no_image() {
        let format = ImageHeader {
            width: 2,
            height: 2,
            colours: Colours::Indexed,
        };
        assert!(format.body("", 0, &[0; 5]).is_none());
        assert!(format.body("too long", 3, &[0; 4]).is_none());
        assert_eq!(palette().len(), 768);
        assert_eq!(palette()[3..6], [68, 1, 84]);
    }
}
