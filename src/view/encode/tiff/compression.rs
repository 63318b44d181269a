//! How the blocks of an image are compressed.

use std::sync::Arc;

use super::PixelLayout;
use super::field::{FieldValue, tag};
use crate::node::NumberKind;

/// Values of `PhotometricInterpretation`.
const BLACK_IS_ZERO: u16 = 1;
const RGB: u16 = 2;
const YCBCR: u16 = 6;

/// The compression of the blocks of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) enum Compression {
    None,
    /// "Adobe Photoshop TIFF Technical Notes" (ZIP).
    Zlib,
    /// libtiff's number for Zstandard.
    Zstd,
    /// "Draft TIFF Technical Note #2".
    Jpeg {
        /// The tables that the blocks lack, as an image without pixels.
        tables: Option<Arc<[u8]>>,
        /// Whether three components are YCbCr, else RGB. How many pixels share their chroma is in the blocks: libtiff
        /// looks into the first one if the tag `YCbCrSubSampling` is absent.
        is_ycbcr: bool,
    },
}

impl Compression {
    /// Returns the value of the tag `Compression`.
    pub(super) fn number(&self) -> u16 {
        match self {
            Self::None => 1,
            Self::Zlib => 8,
            Self::Zstd => 50_000,
            Self::Jpeg { .. } => 7,
        }
    }

    /// Checks that pixels can be compressed in this way.
    ///
    /// # Errors
    /// Returns why they cannot.
    pub(super) fn check(&self, pixels: &PixelLayout) -> Result<(), String> {
        let Self::Jpeg { .. } = self else {
            return Ok(());
        };
        let number = (pixels.number.kind, pixels.number.size_bytes, pixels.numbers);
        match (number, pixels.is_chunky, pixels.samples) {
            ((NumberKind::UInt, 1, 1), false, _) | ((NumberKind::UInt, 1, 1), true, 1 | 3) => {
                Ok(())
            }
            _ => Err("images of JPEG in TIFF have one or three components of 8 bits".into()),
        }
    }

    /// Checks that blocks may be missing.
    ///
    /// # Errors
    /// Returns why they may not.
    pub(in crate::view) fn check_sparse(&self, pixels: &PixelLayout) -> Result<(), String> {
        match self.colors(pixels) {
            (_, YCBCR) => Err(
                "chunks are missing, and programs look into the first one to know how many pixels share their chroma"
                    .into(),
            ),
            _ => Ok(()),
        }
    }

    /// Returns the number of samples that are colours, and the value of `PhotometricInterpretation`.
    pub(super) fn colors(&self, pixels: &PixelLayout) -> (u16, u16) {
        match self {
            Self::Jpeg { is_ycbcr, .. } if pixels.is_chunky && pixels.samples == 3 => {
                (3, if *is_ycbcr { YCBCR } else { RGB })
            }
            // The metadata have no colour space.
            _ => (1, BLACK_IS_ZERO),
        }
    }

    /// Returns the tag of the compression itself.
    pub(super) fn field(&self) -> Option<(u16, FieldValue)> {
        match self {
            Self::Jpeg {
                tables: Some(tables),
                ..
            } => Some((tag::JPEG_TABLES, FieldValue::Undefined(tables.to_vec()))),
            _ => None,
        }
    }
}
