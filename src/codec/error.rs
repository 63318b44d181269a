//! Errors of decoding a chunk.

use std::ops::Range;

/// A codec chain that cannot be built, or a chunk that contradicts its metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The chain contains an unknown codec, or a known codec with an unknown option.
    #[error("codec {name} is not supported{}", advice(name))]
    Unsupported {
        /// The codec's name in the metadata, with the unknown option.
        name: String,
    },
    /// The chain or a configuration contradicts itself or the array.
    #[error("codec {codec}: {what}")]
    Invalid {
        /// The codec's name in the metadata.
        codec: String,
        /// The contradiction, with the actual value.
        what: String,
    },
    /// The encoded bytes are damaged, or belong to another array.
    #[error("corrupt chunk: {codec}: {what}")]
    Corrupt {
        /// The codec that detected the damage.
        codec: String,
        /// The damage, with actual and expected numbers.
        what: String,
    },
    /// Decoding needs more memory than the system has or the caller allows.
    #[error("codec {codec} needs {needed_bytes} bytes, {}", allowed(*limit_bytes))]
    TooLarge {
        /// The codec.
        codec: String,
        /// The memory needed, in bytes.
        needed_bytes: u64,
        /// The limit of the caller in bytes; 0 if the system is out of memory.
        limit_bytes: u64,
    },
    /// A bug in this program: its own data are inconsistent.
    #[error("internal error: codec {codec}: {what}")]
    Internal {
        /// The codec.
        codec: String,
        /// The violated invariant.
        what: String,
    },
}

/// Returns what users can do about a codec that is not supported; empty if nothing.
fn advice(name: &str) -> String {
    super::registry::missing_feature(name).map_or_else(String::new, |feature| {
        format!(" by this build: build zarrfs with `--features {feature}`")
    })
}

fn allowed(limit_bytes: u64) -> String {
    match limit_bytes {
        0 => "and there is no memory for them".into(),
        limit => format!("{limit} are allowed"),
    }
}

impl CodecError {
    pub(super) fn invalid(codec: &str, what: impl Into<String>) -> Self {
        Self::Invalid {
            codec: codec.into(),
            what: what.into(),
        }
    }

    pub(super) fn unsupported(name: impl Into<String>) -> Self {
        Self::Unsupported { name: name.into() }
    }

    pub(super) fn internal(codec: &str, what: impl Into<String>) -> Self {
        DecodeError::internal(what).in_codec(codec)
    }

    /// Returns the same error, with the affected part of the chunk.
    pub(super) fn within(self, part: &str) -> Self {
        match self {
            Self::Corrupt { codec, what } => Self::Corrupt {
                codec,
                what: format!("{part}: {what}"),
            },
            other => other,
        }
    }
}

/// An error of decoding; the pipeline adds the codec's name.
#[derive(Debug)]
pub(super) enum DecodeError {
    Corrupt(String),
    Memory { needed: usize, limit: u64 },
    Nested(CodecError),
    Internal(String),
}

impl DecodeError {
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// Returns the error for inconsistent data of this program.
    pub(super) fn internal(what: impl Into<String>) -> Self {
        Self::Internal(what.into())
    }

    /// Returns the error for an output that is larger than its buffer.
    pub(super) fn overflow(limit: usize) -> Self {
        Self::Corrupt(format!("decodes to more than {limit} bytes"))
    }

    /// Returns the error for encoded bytes that declare a size above the limit.
    pub(super) fn declared_size(claimed: u64, limit: usize) -> Self {
        Self::Corrupt(format!("claims {claimed} bytes, at most {limit} expected"))
    }

    pub(super) fn in_codec(self, codec: &str) -> CodecError {
        match self {
            Self::Corrupt(what) => CodecError::Corrupt {
                // Libraries name themselves too.
                what: match what
                    .strip_prefix(codec)
                    .and_then(|rest| rest.strip_prefix(": "))
                {
                    Some(rest) => rest.to_owned(),
                    None => what,
                },
                codec: codec.into(),
            },
            Self::Memory { needed, limit } => CodecError::TooLarge {
                codec: codec.into(),
                needed_bytes: needed as u64,
                limit_bytes: limit,
            },
            Self::Nested(error) => error,
            Self::Internal(what) => CodecError::Internal {
                codec: codec.into(),
                what,
            },
        }
    }
}

/// Returns the first bytes of `src`, as an array, and the bytes after them.
pub(super) fn split_head<const N: usize>(src: &[u8]) -> Result<([u8; N], &[u8]), DecodeError> {
    match src.split_first_chunk::<N>() {
        Some((head, rest)) => Ok((*head, rest)),
        None => Err(truncated(src.len(), N)),
    }
}

/// Returns the first bytes of `src`, as an array.
pub(super) fn head<const N: usize>(src: &[u8]) -> Result<[u8; N], DecodeError> {
    split_head(src).map(|(head, _)| head)
}

pub(super) fn truncated(found: usize, needed: usize) -> DecodeError {
    DecodeError::Corrupt(format!("{found} bytes are left, {needed} are needed"))
}

/// Returns `src[range]`, for a range from encoded bytes.
///
/// # Errors
/// [`DecodeError::Corrupt`] if `src` is shorter.
pub(super) fn slice(src: &[u8], range: Range<usize>) -> Result<&[u8], DecodeError> {
    let end = range.end;
    src.get(range).ok_or_else(|| truncated(src.len(), end))
}

/// Returns `bytes[range]`, for a range that this program computed.
///
/// # Errors
/// [`DecodeError::Internal`] if `bytes` has no such range.
pub(super) fn part(bytes: &[u8], range: Range<usize>) -> Result<&[u8], DecodeError> {
    let length = bytes.len();
    let found = bytes.get(range.clone());
    found.ok_or_else(|| DecodeError::internal(format!("{range:?} of {length} bytes")))
}

/// As [`part`], for mutable bytes.
///
/// # Errors
/// As [`part`].
pub(super) fn part_mut(bytes: &mut [u8], range: Range<usize>) -> Result<&mut [u8], DecodeError> {
    let length = bytes.len();
    let found = bytes.get_mut(range.clone());
    found.ok_or_else(|| DecodeError::internal(format!("{range:?} of {length} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, StoreError};

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    fn a_range_of_encoded_bytes_is_corrupt_and_one_of_this_program_is_internal() {
        let mut bytes = [1, 2, 3, 4];
        assert!(matches!(slice(&bytes, 2..5), Err(DecodeError::Corrupt(_))));
        for range in [2..5, 5..6, 3..2] {
            let error = part(&bytes, range.clone()).unwrap_err();
            assert!(matches!(error.in_codec("x"), CodecError::Internal { .. }));
            let error = part_mut(&mut bytes, range).unwrap_err();
            assert!(matches!(error, DecodeError::Internal(_)), "{error:?}");
        }
        assert_eq!(part(&bytes, 1..3).unwrap(), [2, 3]);
        assert!(part(&bytes, 4..4).unwrap().is_empty());
    }

    #[test]
    fn no_layer_repeats_what_another_says() {
        let library = DecodeError::corrupt("zstd: Src size is incorrect").in_codec("zstd");
        let error = StoreError::Corrupt {
            key: Key::new(b"a/c/0").unwrap(),
            what: library.to_string(),
        };
        let expected = "a/c/0: corrupt chunk: zstd: Src size is incorrect";
        assert_eq!(error.to_string(), expected);
        let inner = DecodeError::corrupt("zstd: Src size is incorrect").in_codec("blosc");
        assert!(
            inner
                .to_string()
                .ends_with("blosc: zstd: Src size is incorrect")
        );
    }
}
