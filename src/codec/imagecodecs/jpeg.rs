//! `imagecodecs_jpeg`, and `jpeg` of zarr-extensions (pull request 66): JPEG images with 8 bits per sample.
//!
//! Decoders of JPEG differ in the rounding of the transform, and more where they enlarge chroma. Differences from
//! libjpeg-turbo, which imagecodecs has, are at most 1 in grayscale and a few units in colours.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::loose;
use crate::codec::byte_codec::ByteCodec;
use crate::codec::config::Config;
use crate::codec::error::{CodecError, DecodeError, part, part_mut};
use crate::codec::scratch::Scratch;
use crate::codec::stage::{Decode, Size};
use crate::zarr::{Fixed, Scalar};

/// The marker at the end of an image.
const END: [u8; 2] = [0xff, 0xd9];
/// The maximum size of tables or a header, in bytes. Tables take at most some 3 KiB.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// The bytes of a whole image that a chunk lacks.
#[derive(Debug)]
enum Missing {
    Nothing,
    /// An image of tables only, without its end, which replaces the first marker of the chunk.
    Tables(Arc<[u8]>),
    /// The bytes before the chunk; the end is missing too.
    Header(Vec<u8>),
}

/// The colours of three components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colors {
    /// Those that the image declares are decoded to RGB.
    Declared,
    /// Components are not converted.
    Stored,
    /// Only grayscale is decoded.
    Gray,
}

/// Decodes `imagecodecs_jpeg` and `jpeg`.
#[derive(Debug)]
pub(in crate::codec) struct Jpeg {
    missing: Missing,
    colors: Colors,
    /// Whether three components are encoded as RGB.
    is_rgb: bool,
    /// The height, the width and the number of components, if the metadata have them.
    shape: Option<[u64; 3]>,
}

impl Jpeg {
    /// Parses the configuration of `imagecodecs_jpeg`.
    ///
    /// # Errors
    /// Colour spaces that neither tifffile nor virtual-tiff writes.
    pub(in crate::codec) fn of_tiff(config: Config<'_>) -> Result<Self, CodecError> {
        let missing = match (base64(config, "tables")?, base64(config, "header")?) {
            (None, None) => Missing::Nothing,
            (Some(mut tables), None) => {
                tables.truncate(tables.strip_suffix(&END).map_or(tables.len(), <[u8]>::len));
                Missing::Tables(tables.into())
            }
            (None, Some(header)) => Missing::Header(header),
            (Some(_), Some(_)) => return Err(config.invalid("tables and a header")),
        };
        let unsupported = |key: &str, value: &Value| {
            CodecError::unsupported(format!("{} with {key} {value}", config.codec))
        };
        // Numbers are those of libjpeg.
        let is = |value: &Value, number: u64, names: &[&str]| {
            value.as_u64() == Some(number)
                || value.as_str().is_some_and(|name| names.contains(&name))
        };
        let is_stored = match config.get("colorspace_jpeg") {
            None => false,
            Some(value) if is(value, 2, &["RGB"]) => true,
            Some(value) => return Err(unsupported("colorspace_jpeg", value)),
        };
        let colors = match (config.get("colorspace_data"), is_stored) {
            (None, true) => Colors::Stored,
            (None, false) => Colors::Declared,
            (Some(value), true) if is(value, 2, &["RGB"]) => Colors::Stored,
            (Some(value), false) if is(value, 2, &["RGB"]) => Colors::Declared,
            (Some(value), false) if is(value, 1, &["MINISBLACK", "GRAYSCALE"]) => Colors::Gray,
            (Some(value), _) => return Err(unsupported("colorspace_data", value)),
        };
        Ok(Self {
            missing,
            colors,
            is_rgb: is_stored,
            shape: None,
        })
    }

    /// Parses the configuration of `jpeg`, for an array of `fixed` with this shape.
    ///
    /// # Errors
    /// The array is no image with one or three components of `uint8`, or the configuration does not fit it.
    pub(in crate::codec) fn of_array(
        config: Config<'_>,
        fixed: &Fixed,
        shape: &[u64],
    ) -> Result<Self, CodecError> {
        config.only(&["quality", "encoded_color_space", "subsampling"])?;
        if fixed.size_bytes != 1 || !matches!(fixed.scalar, Scalar::UInt(_)) {
            return Err(config.invalid(format!("encodes uint8, not {fixed}")));
        }
        let shape = match *shape {
            [height, width] => [height, width, 1],
            [height, width, components @ (1 | 3)] => [height, width, components],
            _ => return Err(config.invalid(format!("{shape:?} is no image of 1 or 3 components"))),
        };
        let [.., components] = shape;
        let space = config.str("encoded_color_space")?;
        match space {
            None if components == 1 => {}
            Some("ycbcr" | "rgb") => {}
            Some("grayscale") if components == 1 => {}
            Some(other) => return Err(config.invalid(format!("encoded_color_space is {other}"))),
            None => return Err(config.invalid("encoded_color_space is missing")),
        }
        if let Some(factors) = config.list("subsampling")?
            && factors.len() as u64 != components
        {
            let what = format!(
                "subsampling of {} components, not {components}",
                factors.len()
            );
            return Err(config.invalid(what));
        }
        Ok(Self {
            missing: Missing::Nothing,
            colors: Colors::Declared,
            is_rgb: space == Some("rgb"),
            shape: Some(shape),
        })
    }

    /// Returns the whole image, if the chunk is only a part of it.
    fn whole(&self, src: &[u8]) -> Result<Option<Scratch>, DecodeError> {
        let (head, body, end) = match &self.missing {
            Missing::Nothing => return Ok(None),
            Missing::Tables(tables) => match src {
                [0xff, 0xd8, body @ ..] => (&tables[..], body, &END[..0]),
                _ => return Err(DecodeError::corrupt("not a JPEG image")),
            },
            Missing::Header(header) => (&header[..], src, &END[..]),
        };
        let parts = [head, body, end];
        let mut whole = Scratch::new(parts.iter().map(|part| part.len()).sum())?;
        let mut at = 0;
        for bytes in parts {
            part_mut(whole.bytes_mut()?, at..at + bytes.len())?.copy_from_slice(bytes);
            at += bytes.len();
        }
        Ok(Some(whole))
    }

    /// Decodes a whole image.
    fn image(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        // The decoder fills the last rows of a truncated image.
        let padding = src.iter().rev().take_while(|byte| **byte == 0).count();
        let end = src.len() - padding;
        if !part(src, 0..end)?.ends_with(&END) {
            return Err(DecodeError::corrupt("JPEG: the end is missing"));
        }
        let options = DecoderOptions::new_safe()
            .set_max_width(usize::from(u16::MAX))
            .set_max_height(usize::from(u16::MAX))
            .set_strict_mode(true);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(src), options);
        decoder.decode_headers().map_err(|error| corrupt(&error))?;
        let header = decoder.info().zip(decoder.input_colorspace());
        let (info, declared) = header.ok_or_else(|| DecodeError::corrupt("no header"))?;
        let found = [
            info.height.into(),
            info.width.into(),
            info.components.into(),
        ];
        if let Some(expected) = self.shape.filter(|expected| *expected != found) {
            let what = format!("an image of {found:?}, expected {expected:?}");
            return Err(DecodeError::corrupt(what));
        }
        let [height, width, components] = found;
        let size: u64 = height * width * components;
        let limit = dst.len();
        let fits = usize::try_from(size).ok().filter(|size| *size <= limit);
        let Some(size) = fits else {
            return Err(DecodeError::declared_size(size, limit));
        };
        let output = match (components, self.colors) {
            (1, _) => ColorSpace::Luma,
            (3, Colors::Declared) => ColorSpace::RGB,
            (3, Colors::Stored) => declared,
            _ => {
                let what = format!("{components} components, which are not supported here");
                return Err(DecodeError::corrupt(what));
            }
        };
        decoder.set_options(options.jpeg_set_out_colorspace(output));
        let decoded = decoder.decode_into(part_mut(dst, 0..size)?);
        decoded.map_err(|error| corrupt(&error))?;
        Ok(size)
    }
}

fn base64(config: Config<'_>, key: &str) -> Result<Option<Vec<u8>>, CodecError> {
    let Some(text) = config.str(key)? else {
        return Ok(None);
    };
    match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() <= MAX_HEAD_BYTES => Ok(Some(bytes)),
        Ok(bytes) => Err(config.invalid(format!("{key} has {} bytes", bytes.len()))),
        Err(error) => Err(config.invalid(format!("{key}: {error}"))),
    }
}

fn corrupt(error: &DecodeErrors) -> DecodeError {
    DecodeError::corrupt(format!("JPEG: {error:?}"))
}

impl Decode for Jpeg {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(loose(decoded))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        match self.whole(src)? {
            Some(whole) => {
                let bytes = whole.bytes()?;
                self.image(part(bytes, 0..bytes.len())?, dst)
            }
            None => self.image(src, dst),
        }
    }

    fn byte_codec(&self) -> Option<ByteCodec> {
        let tables = match &self.missing {
            Missing::Nothing => None,
            Missing::Tables(tables) => Some([&tables[..], &END].concat().into()),
            Missing::Header(_) => return None,
        };
        Some(ByteCodec::Jpeg {
            tables,
            is_ycbcr: !self.is_rgb,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// 16 rows of 24 pixels: nine times the column, plus the row, within 2. imagecodecs 2026.3.6.
    const GRAY: &[u8] = include_bytes!("gray.jpg");

    fn codec(map: &Value) -> Result<Jpeg, CodecError> {
        Jpeg::of_tiff(Config {
            codec: "imagecodecs_jpeg",
            map: map.as_object().unwrap(),
        })
    }

    #[test]
    fn an_image_decodes_to_rows_of_pixels_and_damage_is_an_error() {
        let codec = codec(&json!({"tables": null, "colorspace_data": 1})).unwrap();
        let mut dst = [0; 16 * 24];
        assert_eq!(codec.decode(GRAY, &mut dst).unwrap(), dst.len());
        for (at, value) in dst.iter().enumerate() {
            let expected = u8::try_from(at % 24 * 9 + at / 24).unwrap();
            assert!(value.abs_diff(expected) <= 3, "{at}: {value}");
        }
        assert!(codec.decode(GRAY, &mut dst[1..]).is_err());
        let padded = [GRAY, &[0; 3]].concat();
        assert_eq!(codec.decode(&padded, &mut dst).unwrap(), dst.len());
        for length in 0..GRAY.len() {
            assert!(codec.decode(&GRAY[..length], &mut dst).is_err(), "{length}");
        }
    }

    #[test]
    fn an_array_has_the_shape_of_its_image() {
        let bytes = Fixed {
            scalar: Scalar::UInt(crate::zarr::ByteOrder::Little),
            size_bytes: 1,
        };
        let new = |map: Value, shape: &[u64]| {
            let config = Config {
                codec: "jpeg",
                map: map.as_object().unwrap(),
            };
            Jpeg::of_array(config, &bytes, shape)
        };
        let mut dst = [0; 16 * 24];
        let gray = json!({"quality": 95, "subsampling": [[1, 1]]});
        for shape in [&[16, 24][..], &[16, 24, 1]] {
            let codec = new(gray.clone(), shape).unwrap();
            assert_eq!(codec.decode(GRAY, &mut dst).unwrap(), dst.len());
        }
        let turned = new(gray.clone(), &[24, 16]).unwrap().decode(GRAY, &mut dst);
        assert!(format!("{turned:?}").contains("expected [24, 16, 1]"));
        for shape in [
            &[384][..],
            &[16, 12, 2],
            &[16, 6, 4],
            &[2, 8, 24, 1],
            &[16, 8, 3],
        ] {
            assert!(new(gray.clone(), shape).is_err(), "{shape:?}");
        }
        let colors = json!({"quality": 1, "encoded_color_space": "xyb", "subsampling": [1, 1, 1]});
        assert!(new(colors, &[16, 8, 3]).is_err());
    }

    #[test]
    fn tables_and_colours_that_are_not_known_are_refused() {
        for map in [
            json!({"tables": "/9j/2Q==", "header": "/9g="}),
            json!({"tables": "?"}),
            json!({"colorspace_jpeg": 3}),
            json!({"colorspace_data": "CIELAB"}),
            json!({"colorspace_data": 4}),
            json!({"colorspace_jpeg": 2, "colorspace_data": 1}),
        ] {
            assert!(codec(&map).is_err(), "{map}");
        }
    }
}
