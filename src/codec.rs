//! Codecs decode the encoded bytes of a chunk to its elements. They do no I/O.
//!
//! The module owns the codec chains of Zarr v2, Zarr v3 and N5. A [`Pipeline`] is built once per array, which
//! checks the configurations and the geometry. It then decodes any number of chunks, from any thread.
//!
//! **Every decode is bounded.** Metadata give the size of the decoded chunk. The size of the bytes between
//! two codecs, or an upper limit of it, follows by walking the chain backwards. Sizes that encoded bytes
//! declare are compared with these limits before anything is allocated or called, and a decoder stops at the
//! limit. The output is exactly one chunk, or an error; damage never becomes fill values. Every checksum is
//! verified.
//!
//! Memory besides the caller's buffer: at most twice the chunk, plus a few MiB of state in the codec
//! libraries, whatever the input.
//!
//! **Bytes after the end** are handled as in numcodecs and Python: `zlib`, `bz2`, `lzma`, `pcodec`, `zfpy`,
//! `base64` and the `vlen` codecs ignore them; `gzip` ignores zeros; `zstd`, `lz4` and all codecs of a fixed
//! size fail. `blosc` is stricter than numcodecs: a chunk must be as long as its header declares.

mod astype;
mod base64;
mod blosc;
mod build;
mod byte_codec;
mod bzip;
mod cast_value;
mod categorize;
mod checksum;
mod conditional;
mod config;
mod cursor;
mod deflate;
mod delta;
mod element;
mod error;
mod fixed_scale_offset;
#[cfg(feature = "grib")]
mod grib;
mod imagecodecs;
mod json;
mod lz4;
mod lz4_block;
mod msgpack;
mod n5_block;
mod number;
mod object;
mod optional;
mod packbits;
mod packed_bits;
mod pcodec;
mod pipeline;
mod reals;
mod registry;
mod scale_offset;
mod scratch;
mod shard;
mod shuffle;
mod stage;
mod streams;
mod swap;
#[cfg(test)]
mod tests;
mod transpose;
mod vlen;
mod widen;
mod xz;
mod zfp;
mod zstandard;

pub use build::MAX_CODECS;
pub use byte_codec::{ByteCodec, StoredForm};
pub use checksum::lookup3;
pub use element::Element;
pub use error::CodecError;
pub use pipeline::Pipeline;
pub use scratch::keep_scratch;
pub use shard::{IndexLocation, ShardIndex, Sharding};

use crate::zarr::Fixed;
use registry::Codec;
use stage::Decode as _;

/// Returns the names of all codecs, which are the same in both Zarr versions (in v3 also `numcodecs.<name>`, except
/// those of imagecodecs and virtual-tiff).
pub fn names() -> impl Iterator<Item = &'static str> {
    registry::CODECS.iter().map(|(name, _)| *name)
}

/// Returns whether numcodecs has a codec of this name that encodes arrays as arrays, or whether the name is
/// v3's `transpose`.
pub fn is_array_to_array(name: &str) -> bool {
    match registry::find(name) {
        Some(Codec::ArrayToArray) => ["packbits", "transpose"].contains(&name),
        Some(Codec::NumbersToNumbers(_)) => true,
        _ => false,
    }
}

/// Returns whether a codec of this name, of numcodecs or of v3's core, encodes bytes as bytes.
pub fn is_bytes_to_bytes(name: &str) -> bool {
    !name.starts_with(imagecodecs::PREFIX)
        && matches!(registry::find(name), Some(Codec::BytesToBytes(_)))
}

/// Converts an element to [the next type that NumPy has](crate::zarr::Fixed::widened); the element is
/// unchanged if NumPy has its type.
///
/// # Errors
/// The bytes are not one element.
pub fn widened(stored: &Fixed, element: &[u8]) -> Result<Vec<u8>, CodecError> {
    let Some((widen, wide)) = widen::Widen::new(stored).zip(stored.widened()) else {
        return Ok(element.to_vec());
    };
    let mut bytes = vec![0; wide.size_bytes];
    let written = widen.decode(element, &mut bytes);
    written
        .map(|_| bytes)
        .map_err(|error| error.in_codec("widening"))
}

/// Returns the codecs that this build lacks, each with the cargo feature that adds it.
pub fn without_feature() -> impl Iterator<Item = (&'static str, &'static str)> {
    registry::NOT_BUILT_IN.iter().copied()
}

/// Codecs of numcodecs that are not built in: `pickle` would run code.
pub const NOT_BUILT_IN: [&str; 1] = ["pickle"];
