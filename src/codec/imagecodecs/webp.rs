//! `imagecodecs_webp`: still images of WebP (RFC 9649), lossy and lossless, with the same output as libwebp.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::loose;
use crate::codec::config::Config;
use crate::codec::error::{CodecError, DecodeError, part_mut};
use crate::codec::scratch::Scratch;
use crate::codec::stage::{Decode, Size};

/// Decodes `imagecodecs_webp`.
#[derive(Debug)]
pub(in crate::codec) struct Webp {
    /// Whether pixels have an alpha; `None` for that of the image.
    has_alpha: Option<bool>,
}

impl Webp {
    /// Parses the configuration.
    ///
    /// # Errors
    /// An `index` of an animation.
    pub(in crate::codec) fn new(config: Config<'_>) -> Result<Self, CodecError> {
        match config.u64("index")? {
            None | Some(0) => Ok(Self {
                has_alpha: config.bool("hasalpha")?,
            }),
            Some(index) => Err(CodecError::unsupported(format!(
                "{} with index {index}",
                config.codec
            ))),
        }
    }
}

impl Decode for Webp {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(loose(decoded))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let mut decoder = WebPDecoder::new(Cursor::new(src)).map_err(|error| corrupt(&error))?;
        let (width, height) = decoder.dimensions();
        if decoder.is_animated() {
            return Err(DecodeError::corrupt("an animation, which is not supported"));
        }
        // The decoder allocates a lossy image before it compares the two sizes.
        if lossy_size(src).is_some_and(|size| size != (width, height)) {
            return Err(DecodeError::corrupt("two sizes of one image"));
        }
        let stored = if decoder.has_alpha() { 4 } else { 3 };
        let samples = match self.has_alpha {
            None => stored,
            Some(true) => 4,
            Some(false) => 3,
        };
        let (pixels, limit) = (u64::from(width) * u64::from(height), dst.len());
        let fits = usize::try_from(pixels * samples).ok();
        let Some(size) = fits.filter(|size| *size <= limit) else {
            return Err(DecodeError::declared_size(pixels * samples, limit));
        };
        let dst = part_mut(dst, 0..size)?;
        if samples == stored {
            decoder.read_image(dst).map_err(|error| corrupt(&error))?;
            return Ok(size);
        }
        let mut image = Scratch::new(
            size / if samples == 4 { 4 } else { 3 } * if stored == 4 { 4 } else { 3 },
        )?;
        let image = image.bytes_mut()?;
        decoder.read_image(image).map_err(|error| corrupt(&error))?;
        if stored == 3 {
            let (pixels, _) = dst.as_chunks_mut::<4>();
            for (pixel, [r, g, b]) in pixels.iter_mut().zip(image.as_chunks().0) {
                *pixel = [*r, *g, *b, u8::MAX];
            }
        } else {
            let (pixels, _) = dst.as_chunks_mut::<3>();
            for (pixel, [r, g, b, _]) in pixels.iter_mut().zip(image.as_chunks().0) {
                *pixel = [*r, *g, *b];
            }
        }
        Ok(size)
    }
}

/// Returns the width and height in the first lossy image of a container, if there is one.
fn lossy_size(src: &[u8]) -> Option<(u32, u32)> {
    // After `RIFF`, the size and `WEBP`: chunks with a name and a size, padded to an even size.
    let mut rest = src.get(12..)?;
    loop {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (size, body) = after.split_first_chunk::<4>()?;
        if name == b"VP8 " {
            let side = |at: usize| Some(u16::from_le_bytes(*body.get(at..)?.first_chunk()?));
            return Some((u32::from(side(6)? & 0x3fff), u32::from(side(8)? & 0x3fff)));
        }
        let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        rest = body.get(size.checked_next_multiple_of(2)?..)?;
    }
}

fn corrupt(error: &image_webp::DecodingError) -> DecodeError {
    DecodeError::corrupt(format!("WebP: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// 16 rows of 24 pixels without losses. imagecodecs 2026.3.6.
    const PIXELS: &[u8] = include_bytes!("pixels.webp");

    fn decode(has_alpha: Option<bool>, src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let written = Webp { has_alpha }.decode(src, &mut dst)?;
        dst.truncate(written);
        Ok(dst)
    }

    #[test]
    fn pixels_have_the_samples_of_the_configuration() {
        let count = 16 * 24;
        let expected = (0..count)
            .map(|at| (at % 24, at / 24))
            .map(|(x, y)| [x * 9 + y, x * 3, y * 5]);
        let expected: Vec<[u8; 3]> = expected
            .map(|pixel| pixel.map(|sample| u8::try_from(sample).unwrap()))
            .collect();
        for has_alpha in [None, Some(false)] {
            let found = decode(has_alpha, PIXELS, count * 3).unwrap();
            assert_eq!(found, expected.as_flattened());
        }
        let opaque: Vec<u8> = expected
            .iter()
            .flat_map(|[r, g, b]| [*r, *g, *b, 255])
            .collect();
        assert_eq!(decode(Some(true), PIXELS, count * 4).unwrap(), opaque);
        assert!(decode(None, PIXELS, count * 3 - 1).is_err());
        for length in 0..PIXELS.len() - 1 {
            assert!(
                decode(None, &PIXELS[..length], count * 3).is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn other_images_of_an_animation_are_refused() {
        let new = |map: serde_json::Value| {
            Webp::new(Config {
                codec: "imagecodecs_webp",
                map: map.as_object().unwrap(),
            })
        };
        assert_eq!(
            new(json!({"index": 0, "hasalpha": true}))
                .unwrap()
                .has_alpha,
            Some(true)
        );
        assert!(new(json!({"index": 1})).is_err());
    }

    #[test]
    fn the_size_of_a_lossy_image_is_found_among_other_chunks() {
        let chunk = |name: &[u8; 4], body: &[u8]| {
            let size = u32::try_from(body.len()).unwrap().to_le_bytes();
            [&name[..], &size, body, &[0][..body.len() % 2]].concat()
        };
        let image = [0, 0, 0, 0x9d, 1, 0x2a, 7, 0x40, 9, 0];
        let container = [
            b"RIFF\0\0\0\0WEBP".to_vec(),
            chunk(b"ICCP", b"odd"),
            chunk(b"VP8 ", &image),
        ];
        assert_eq!(lossy_size(&container.concat()), Some((7, 9)));
        assert_eq!(lossy_size(&container[..2].concat()), None);
        assert_eq!(lossy_size(b"RIFF"), None);
    }
}
