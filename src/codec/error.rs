//! Why a chunk cannot be decoded.

use std::ops::Range;

/// A codec chain that cannot be built, or a chunk that is not what its metadata say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The chain names a codec, or asks one for something, that is not known here.
    #[error("codec {name} is not supported")]
    Unsupported {
        /// The codec's name in the metadata, with what is not known of it.
        name: String,
    },
    /// The chain or a configuration contradicts itself or the array.
    #[error("codec {codec}: {what}")]
    Invalid {
        /// The codec's name in the metadata.
        codec: String,
        /// What is wrong, with the value found.
        what: String,
    },
    /// The encoded bytes are damaged, or are not of this array.
    #[error("corrupt chunk: {codec}: {what}")]
    Corrupt {
        /// The codec that noticed.
        codec: String,
        /// What is wrong, with found and expected numbers.
        what: String,
    },
    /// Decoding needs more memory than there is or than the caller allows.
    #[error("codec {codec} needs {needed_bytes} bytes, {}", allowed(*limit_bytes))]
    TooLarge {
        /// The codec that needs them.
        codec: String,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes that the caller allows; 0 if it is the system that has no more.
        limit_bytes: u64,
    },
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

    /// The same error with the part of the chunk that it is about.
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

/// What a codec says about bytes that it cannot undo; the pipeline adds the codec's name.
#[derive(Debug)]
pub(super) enum Fault {
    Corrupt(String),
    Memory { needed: usize, limit: u64 },
    Nested(CodecError),
}

impl Fault {
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// More comes out than fits.
    pub(super) fn overflow(limit: usize) -> Self {
        Self::Corrupt(format!("decodes to more than {limit} bytes"))
    }

    /// The encoded bytes declare a size that is not the expected one.
    pub(super) fn claim(claimed: u64, limit: usize) -> Self {
        Self::Corrupt(format!("claims {claimed} bytes, at most {limit} expected"))
    }

    pub(super) fn of(self, codec: &str) -> CodecError {
        match self {
            Self::Corrupt(what) => CodecError::Corrupt {
                codec: codec.into(),
                what,
            },
            Self::Memory { needed, limit } => CodecError::TooLarge {
                codec: codec.into(),
                needed_bytes: needed as u64,
                limit_bytes: limit,
            },
            Self::Nested(error) => error,
        }
    }
}

/// The first bytes of `src`, as an array.
pub(super) fn head<const N: usize>(src: &[u8]) -> Result<[u8; N], Fault> {
    match src.first_chunk::<N>() {
        Some(bytes) => Ok(*bytes),
        None => Err(truncated(src.len(), N)),
    }
}

pub(super) fn truncated(found: usize, needed: usize) -> Fault {
    Fault::Corrupt(format!("{found} bytes are left, {needed} are needed"))
}

/// `src[range]`, or a fault.
pub(super) fn slice(src: &[u8], range: Range<usize>) -> Result<&[u8], Fault> {
    let end = range.end;
    src.get(range).ok_or_else(|| truncated(src.len(), end))
}
