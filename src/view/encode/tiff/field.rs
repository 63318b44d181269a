//! The fields of a directory: tags, values, and the sizes of counts and offsets.
//!
//! TIFF 6.0, section 2 (types); BigTIFF is the same with 8 bytes for counts and offsets ("The BigTIFF File Format",
//! Aware Systems; version 43).

use crate::fallible::{List, NoMemory};
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
    pub(in crate::view) const SUB_IFDS: u16 = 330;
    pub(in crate::view) const EXTRA_SAMPLES: u16 = 338;
    pub(in crate::view) const SAMPLE_FORMAT: u16 = 339;
    /// "Draft TIFF Technical Note #2".
    pub(in crate::view) const JPEG_TABLES: u16 = 347;
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
    /// `UNDEFINED`.
    Undefined(Vec<u8>),
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
    ///
    /// # Errors
    /// The system has no memory for the bytes.
    pub(super) fn encode(&self, order: ByteOrder) -> Result<(u16, u64, Vec<u8>), NoMemory> {
        let mut bytes = List::default();
        let (kind, count) = match self {
            Self::Shorts(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (3, values.len() as u64)
            }
            Self::Bytes(values) => {
                bytes.extend_from_slice(values);
                (1, values.len() as u64)
            }
            Self::Undefined(values) => {
                bytes.extend_from_slice(values);
                (7, values.len() as u64)
            }
            Self::Long(value) => {
                put(&mut bytes, order, value.to_le_bytes());
                (4, 1)
            }
            Self::Longs(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (4, values.len() as u64)
            }
            Self::Rational(numerator, denominator) => {
                put(&mut bytes, order, numerator.to_le_bytes());
                put(&mut bytes, order, denominator.to_le_bytes());
                (5, 1)
            }
            Self::Doubles(values) => {
                values
                    .iter()
                    .for_each(|v| put(&mut bytes, order, v.to_le_bytes()));
                (12, values.len() as u64)
            }
            Self::Text(text) => {
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(0);
                (2, text.len() as u64 + 1)
            }
        };
        Ok((kind, count, bytes.finish()?))
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Shorts(values) => 2 * values.len() as u64,
            Self::Bytes(values) | Self::Undefined(values) => values.len() as u64,
            Self::Long(_) => 4,
            Self::Longs(values) => 4 * values.len() as u64,
            Self::Rational(..) => 8,
            Self::Doubles(values) => 8 * values.len() as u64,
            Self::Text(text) => text.len() as u64 + 1,
        }
    }
}

/// The two variants of TIFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// TIFF 6.0, with offsets of 32 bits.
    Classic,
    /// BigTIFF, with offsets of 64 bits.
    Big,
}

impl Flavour {
    /// Returns the size of a count or an offset in bytes; values up to this size are in the entry itself.
    pub(super) fn word(self) -> u64 {
        match self {
            Self::Classic => 4,
            Self::Big => 8,
        }
    }

    pub(super) fn preamble_bytes(self) -> u64 {
        2 * self.word()
    }

    pub(super) fn entry_bytes(self) -> u64 {
        4 + 2 * self.word()
    }

    pub(super) fn directory_bytes(self, entries: u64) -> u64 {
        let count = if self == Self::Big { 8 } else { 2 };
        count + entries * self.entry_bytes() + self.word()
    }

    /// Returns the number of bytes that a value takes after its directory.
    pub(super) fn outside(self, bytes: u64) -> Option<u64> {
        match bytes <= self.word() {
            true => Some(0),
            false => bytes.checked_next_multiple_of(8),
        }
    }
}

/// Appends the bytes of a number, which are in little-endian order, in `order`.
pub(super) fn put<const N: usize>(target: &mut List<u8>, order: ByteOrder, mut bytes: [u8; N]) {
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    target.extend_from_slice(&bytes);
}

/// Appends an offset, a size or a count.
///
/// # Errors
/// The file is a classic one, and the number takes more than 32 bits.
pub(super) fn put_word(
    target: &mut List<u8>,
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
