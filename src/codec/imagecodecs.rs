//! Codecs of the Python packages imagecodecs and virtual-tiff, with which references and Icechunk repositories
//! describe the strips and tiles of TIFF files, and the codecs of images in zarr-extensions.

mod jpeg;
#[cfg(feature = "jpegxl")]
mod jpegxl;
mod lzw;
mod packbits;
mod predictor;
mod webp;

pub(super) use jpeg::Jpeg;
#[cfg(feature = "jpegxl")]
pub(super) use jpegxl::JpegXl;
pub(super) use lzw::Lzw;
pub(super) use packbits::PackBits;
pub(super) use predictor::{Predictor, Rows};
pub(super) use webp::Webp;

use super::stage::Size;

/// What the names of the codecs of imagecodecs begin with.
pub(super) const PREFIX: &str = "imagecodecs_";

/// Returns the maximum size of encoded bytes. These encoders are not made for incompressible input, and images
/// have metadata of their own.
fn loose(decoded: Size) -> Size {
    Size::AtMost(decoded.bytes().saturating_mul(4).saturating_add(1 << 20))
}
