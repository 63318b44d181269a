//! The pixels of a `.png` view.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Transformations};

/// The texts of the view that are its captions.
const CAPTIONS: [&str; 2] = ["Description", "Range"];
/// Size of a pixel in bytes: red, green, blue, alpha.
const PIXEL_BYTES: usize = 4;

/// A picture: its pixels, row by row, and what they show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixels: Vec<[u8; PIXEL_BYTES]>,
    pub(super) captions: Vec<String>,
}

impl Picture {
    /// Decodes a file.
    ///
    /// # Errors
    /// If it is no PNG.
    pub(super) fn of_png(file: &[u8]) -> Result<Self, DecodingError> {
        let mut decoder = Decoder::new(Cursor::new(file));
        decoder.set_transformations(Transformations::ALPHA | Transformations::STRIP_16);
        let mut reader = decoder.read_info()?;
        let size = (reader.output_buffer_size()).ok_or(DecodingError::LimitsExceeded)?;
        let mut bytes = vec![0; size];
        let frame = reader.next_frame(&mut bytes)?;
        let texts = &reader.info().utf8_text;
        let caption = |keyword: &&str| {
            let text = texts.iter().find(|text| text.keyword == *keyword)?;
            let text = text.get_text().ok()?;
            Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
        };
        let (pixels, _) = bytes.as_chunks::<PIXEL_BYTES>();
        Ok(Self {
            width: frame.width,
            height: frame.height,
            pixels: pixels.to_vec(),
            captions: CAPTIONS.iter().filter_map(caption).collect(),
        })
    }

    /// Returns a pixel; a transparent one outside the picture.
    pub(super) fn pixel(&self, column: u32, row: u32) -> [u8; PIXEL_BYTES] {
        let place = row as usize * self.width as usize + column as usize;
        let is_inside = column < self.width;
        let pixel = self.pixels.get(place).filter(|_| is_inside);
        pixel.copied().unwrap_or_default()
    }

    /// Returns the picture with another size. A pixel is the mean of those that it replaces, weighted by their alpha.
    pub(super) fn resized(&self, width: u32, height: u32) -> Self {
        let columns: Vec<_> = (0..width).map(|at| span(at, width, self.width)).collect();
        let mut pixels = Vec::with_capacity(width as usize * height as usize);
        for row in 0..height {
            let (top, bottom) = span(row, height, self.height);
            for (left, right) in &columns {
                let rows = top..bottom;
                let all = rows.flat_map(|row| (*left..*right).map(move |column| (column, row)));
                pixels.push(mean(all.map(|(column, row)| self.pixel(column, row))));
            }
        }
        Self {
            width,
            height,
            pixels,
            captions: self.captions.clone(),
        }
    }

    /// Encodes the pixels.
    ///
    /// # Errors
    /// If a side is 0.
    pub(super) fn to_png(&self) -> Result<Vec<u8>, EncodingError> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(ColorType::Rgba);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(file)
    }
}

/// Returns the range of `from` pixels that the pixel `at` of `to` replaces; it has at least one.
fn span(at: u32, to: u32, from: u32) -> (u32, u32) {
    let to = u64::from(to.max(1));
    let bound = |at: u32| u32::try_from(u64::from(at) * u64::from(from) / to).unwrap_or(from);
    let start = bound(at);
    (start, bound(at + 1).max(start + 1))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the mean of bytes is a byte"
)]
fn mean(pixels: impl Iterator<Item = [u8; PIXEL_BYTES]>) -> [u8; PIXEL_BYTES] {
    let (mut sums, mut weight, mut count) = ([0_u64; 3], 0_u64, 0_u64);
    for [red, green, blue, alpha] in pixels {
        for (sum, color) in sums.iter_mut().zip([red, green, blue]) {
            *sum += u64::from(color) * u64::from(alpha);
        }
        weight += u64::from(alpha);
        count += 1;
    }
    let [red, green, blue] = sums.map(|sum| (sum / weight.max(1)) as u8);
    [red, green, blue, (weight / count.max(1)) as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, pixels: &[[u8; 4]]) -> Picture {
        Picture {
            width,
            height,
            pixels: pixels.to_vec(),
            captions: Vec::new(),
        }
    }

    #[test]
    fn pixels_survive_a_file() {
        let pixels = [[1, 2, 3, 255], [0, 0, 0, 0], [9, 8, 7, 255], [5, 5, 5, 128]];
        let picture = picture(2, 2, &pixels);
        let file = picture.to_png().unwrap();
        assert_eq!(Picture::of_png(&file).unwrap(), picture);
        assert!(Picture::of_png(&file[..40]).is_err());
    }

    #[test]
    fn a_smaller_picture_has_means_and_a_larger_one_repeats_pixels() {
        let (red, blue, none) = ([200, 0, 0, 255], [0, 0, 100, 255], [255, 255, 255, 0]);
        let wide = picture(4, 1, &[red, blue, none, red]);
        let small = wide.resized(2, 1);
        // A transparent pixel has no colour.
        assert_eq!(small.pixels, [[100, 0, 50, 255], [200, 0, 0, 127]]);
        let large = wide.resized(8, 2);
        assert_eq!(large.pixels[..4], [red, red, blue, blue]);
        assert_eq!(large.pixels[8..12], [red, red, blue, blue]);
        let mut spans = Vec::new();
        for at in 0..7 {
            spans.push(span(at, 7, 1000));
        }
        assert!(
            spans.windows(2).all(|pair| pair[0].1 == pair[1].0),
            "{spans:?}"
        );
        assert_eq!((spans[0].0, spans[6].1), (0, 1000));
    }
}
