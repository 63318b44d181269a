//! Codecs: the encoded bytes of a chunk in, its elements out, no I/O.
//!
//! Owns the chains of Zarr v2 and v3 and of N5. A [`Pipeline`] is built once for an array and checks the
//! configurations and the geometry; after that it decodes chunk after chunk, from any thread.
//!
//! **Every decode is bounded.** The size of the decoded chunk is known from the metadata; walking
//! the chain backwards gives the size, or an upper limit, of the bytes between two codecs.
//! Sizes that encoded bytes declare are compared with these before anything is allocated or called,
//! and a decoder stops at the limit. The output is exactly one chunk, or an error; damage never
//! becomes fill values. Every checksum is verified.
//!
//! Memory besides the caller's buffer: at most twice the chunk and some MiB of the codec libraries'
//! own state, whatever the input.
//!
//! **Bytes after the end** are treated as numcodecs and Python treat them: ignored by `zlib`, `bz2`,
//! `lzma`, `pcodec`, `zfpy`, `base64` and the `vlen` codecs; zeros are ignored after `gzip`; an error for
//! `zstd`, `lz4` and everything of a fixed size. `blosc` is stricter than numcodecs: a chunk must be
//! as long as its header declares.

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
pub use shard::{IndexLocation, ShardIndex, Sharding};

use crate::zarr::Fixed;
use registry::Codec;
use stage::Decode as _;

/// The names of all codecs, as both Zarr versions have them (v3 also as `numcodecs.<name>`).
pub fn names() -> impl Iterator<Item = &'static str> {
    registry::CODECS.iter().map(|(name, _)| *name)
}

/// Whether numcodecs has a codec of this name that encodes arrays as arrays, or v3 has it as
/// `transpose`.
pub fn is_array_to_array(name: &str) -> bool {
    match registry::find(name) {
        Some(Codec::ArrayToArray) => name != "reshape",
        Some(Codec::NumbersToNumbers(_)) => true,
        _ => false,
    }
}

/// Whether a codec of this name, of numcodecs or of v3's core, encodes bytes as bytes.
pub fn is_bytes_to_bytes(name: &str) -> bool {
    matches!(registry::find(name), Some(Codec::BytesToBytes(_)))
}

/// An element as one of [the next type that NumPy has](crate::zarr::Fixed::widened); itself if that is
/// its own.
///
/// # Errors
/// Bytes that are not one element.
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

/// Codecs of numcodecs that are not built in: `pickle` runs code.
pub const NOT_BUILT_IN: [&str; 1] = ["pickle"];
