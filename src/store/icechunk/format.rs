//! The common format of metadata files: a header, then FlatBuffers that may be compressed
//! (Icechunk specification, "Binary File Format").

use std::borrow::Cow;

use zstd::bulk::Decompressor;

use super::flatbuffers;
use crate::fallible;
use crate::store::{Key, StoreError};

/// Why a file of the repository cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    /// The file violates the specification.
    #[error("{0}")]
    Malformed(Cow<'static, str>),
    /// The file may be valid, but this program cannot read it.
    #[error("{0}")]
    Unsupported(String),
    /// The file needs more memory than allowed.
    #[error("{need_bytes} bytes in memory, {limit_bytes} are allowed")]
    TooLarge {
        /// Upper bound of the needed bytes.
        need_bytes: u64,
        /// Bytes that are allowed.
        limit_bytes: u64,
    },
}

impl FormatError {
    pub(super) fn malformed(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(what.into())
    }

    /// Fails if more memory is needed than allowed.
    pub(super) fn check_limit(need_bytes: usize, limit_bytes: u64) -> Result<(), Self> {
        let need_bytes = need_bytes as u64;
        match need_bytes <= limit_bytes {
            true => Ok(()),
            false => Err(Self::TooLarge {
                need_bytes,
                limit_bytes,
            }),
        }
    }

    /// Converts the error of `file` into an error of `key`, whose bytes or names are in the file.
    pub(super) fn of(self, key: &Key, file: &str) -> StoreError {
        let key = key.clone();
        match self {
            Self::Malformed(what) => StoreError::Corrupt {
                key,
                what: format!("{file} of the repository: {what}"),
            },
            Self::Unsupported(what) => StoreError::Unsupported {
                key,
                what: format!("{file} of the repository: {what}"),
            },
            Self::TooLarge {
                need_bytes,
                limit_bytes,
            } => StoreError::TooLarge {
                key,
                need_bytes,
                limit_bytes,
            },
        }
    }
}

/// Returns a required field, or an error if it is missing.
pub(super) fn required<T>(field: Option<T>, name: &'static str) -> Result<T, FormatError> {
    field.ok_or_else(|| FormatError::malformed(format!("no {name}")))
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileType {
    Snapshot = 1,
    Manifest = 2,
    Repository = 6,
}

/// The first bytes of every file.
pub(super) const MAGIC: &[u8; 12] = b"ICE\xf0\x9f\xa7\x8aCHUNK";
/// Bytes of the writer's name, which follows the magic bytes; three more bytes follow it.
const WRITER_BYTES: usize = 24;
const HEADER_BYTES: usize = MAGIC.len() + WRITER_BYTES + 3;
/// The supported versions of the specification.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=2;

/// Returns the FlatBuffers of a file, at most `limit_bytes` of them.
pub(super) fn decode(file: &[u8], of: FileType, limit_bytes: u64) -> Result<Vec<u8>, FormatError> {
    let (header, body) = file
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or_else(|| FormatError::malformed(format!("{} bytes are no header", file.len())))?;
    if !header.starts_with(MAGIC) {
        return Err(FormatError::malformed(
            "it does not begin with ICE\u{1f9ca}CHUNK",
        ));
    }
    let [.., version, file_type, compression] = *header;
    if !VERSIONS.contains(&version) {
        return Err(FormatError::Unsupported(format!(
            "version {version} of the format; this version of zarrfs reads 1 and 2"
        )));
    }
    if file_type != of as u8 {
        return Err(FormatError::malformed(format!(
            "a file of the type {file_type}, not {}",
            of as u8
        )));
    }
    let limit_bytes = limit_bytes.min(flatbuffers::MAX_BYTES);
    match compression {
        0 => {
            FormatError::check_limit(body.len(), limit_bytes)?;
            Ok(body.to_vec())
        }
        1 => decompress(body, limit_bytes),
        other => Err(FormatError::Unsupported(format!("compression {other}"))),
    }
}

/// Decompresses zstd. Memory grows with the actual output, whatever sizes the input claims.
fn decompress(body: &[u8], limit_bytes: u64) -> Result<Vec<u8>, FormatError> {
    let most_bytes = decompressed_bound(body)?;
    let too_large = || FormatError::TooLarge {
        need_bytes: most_bytes,
        limit_bytes,
    };
    let capacity = usize::try_from(most_bytes.min(limit_bytes)).map_err(|_| too_large())?;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(capacity).map_err(|_| too_large())?;
    let mut decompressor = Decompressor::new().map_err(|_| too_large())?;
    match decompressor.decompress_to_buffer(body, &mut bytes) {
        // A short file that is kept for long must not keep the rest of a buffer of whole blocks from being used again.
        Ok(length) if length <= capacity / 2 => fallible::copy(&bytes).map_err(|_| too_large()),
        Ok(_) => {
            bytes.shrink_to_fit();
            Ok(bytes)
        }
        Err(_) if most_bytes > limit_bytes => Err(too_large()),
        Err(error) => Err(FormatError::malformed(format!("zstd: {error}"))),
    }
}

/// Largest size of a zstd block in bytes (RFC 8878, 3.1.1.2).
const MAX_BLOCK_BYTES: u64 = 128 << 10;

/// Upper bound of the decompressed size of a zstd frame, from its block headers (RFC 8878, 3.1.1).
fn decompressed_bound(frame: &[u8]) -> Result<u64, FormatError> {
    let cut = || FormatError::malformed("zstd: no complete frame");
    let descriptor = *frame.get(4).ok_or_else(cut)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = match (descriptor >> 6, is_single_segment) {
        (0, is_single_segment) => usize::from(is_single_segment),
        (flag, _) => 1 << flag,
    };
    let mut position = 5 + usize::from(!is_single_segment) + dictionary_bytes + size_bytes;
    let mut bound = 0_u64;
    loop {
        let header = frame
            .get(position..)
            .and_then(|rest| rest.first_chunk::<3>());
        let [a, b, c] = *header.ok_or_else(cut)?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = header >> 3;
        let (stored, decoded) = match (header >> 1) & 3 {
            0 => (size, u64::from(size)),
            1 => (1, u64::from(size)),
            2 => (size, MAX_BLOCK_BYTES),
            _ => return Err(FormatError::malformed("zstd: a block of an unknown type")),
        };
        bound = bound.saturating_add(decoded);
        if header & 1 == 1 {
            return Ok(bound);
        }
        let stored = usize::try_from(stored).map_err(|_| cut())?;
        position = position.saturating_add(3).saturating_add(stored);
    }
}
