//! Stages: single steps of decoding, from the encoded bytes to the elements.

use std::fmt;
use std::ops::Range;

use super::byte_codec::ByteCodec;
use super::error::DecodeError;

/// The size in bytes of the data between two codecs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Exact(u64),
    /// An upper limit of the output of encoders.
    AtMost(u64),
}

impl Size {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Exact(n) | Self::AtMost(n) => n,
        }
    }

    /// Applies `f` to the size; an exact size remains exact.
    pub(super) fn try_map(self, f: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        match self {
            Self::Exact(n) => f(n).map(Self::Exact),
            Self::AtMost(n) => Some(Self::AtMost(f(n).unwrap_or(u64::MAX))),
        }
    }

    /// Returns the maximum output of a compressor. Each codec here adds less than 1/64 and 64 KiB to
    /// incompressible input.
    pub(super) fn compressed(self) -> Self {
        let n = self.bytes();
        Self::AtMost(n.saturating_add(n / 64).saturating_add(64 << 10))
    }
}

/// A checksum codec: verifies the bytes and returns the range of the payload.
pub(super) trait Verify: fmt::Debug + Send + Sync {
    /// Returns the number of bytes that the checksum adds.
    fn overhead(&self) -> u64;
    fn verify(&self, src: &[u8]) -> Result<Range<usize>, DecodeError>;

    /// Returns the codec, if other file formats have it too.
    fn byte_codec(&self) -> Option<ByteCodec> {
        None
    }
}

/// A codec that decodes in place, without a change of size.
pub(super) trait DecodeInPlace: fmt::Debug + Send + Sync {
    fn decode_in_place(&self, bytes: &mut [u8]) -> Result<(), DecodeError>;
}

/// A codec that decodes into another buffer.
pub(super) trait Decode: fmt::Debug + Send + Sync {
    /// Returns the size of the encoded bytes for a decoded size, by default that of a compressor; `None` if
    /// no encoder accepts that size.
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(decoded.compressed())
    }

    /// Decodes into the beginning of `dst` and returns how many bytes were written. Output that does not fit
    /// is an error. The decoder never allocates memory of a size that `src` declares.
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError>;

    /// Returns the memory that the codec itself takes to decode `src`, if it grows with the chunk, in bytes.
    fn working_bytes(&self, _src: &[u8]) -> usize {
        0
    }

    /// As [`Pipeline::raw_header`](super::Pipeline::raw_header), for this codec alone.
    fn raw_header(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the codec, if other file formats have it too.
    fn byte_codec(&self) -> Option<ByteCodec> {
        None
    }
}

/// The action of a stage.
#[derive(Debug)]
pub(super) enum Action {
    Verify(Box<dyn Verify>),
    InPlace(Box<dyn DecodeInPlace>),
    Decode(Box<dyn Decode>),
}

/// One step of decoding, with the codec's name in the metadata.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    pub(super) action: Action,
}

impl Stage {
    pub(super) fn verify(name: &str, verify: impl Verify + 'static) -> Self {
        Self {
            name: name.into(),
            action: Action::Verify(Box::new(verify)),
        }
    }

    pub(super) fn in_place(name: &str, codec: impl DecodeInPlace + 'static) -> Self {
        Self {
            name: name.into(),
            action: Action::InPlace(Box::new(codec)),
        }
    }

    pub(super) fn decode(name: &str, codec: impl Decode + 'static) -> Self {
        Self {
            name: name.into(),
            action: Action::Decode(Box::new(codec)),
        }
    }

    /// Returns whether the output is in a different buffer than the input.
    pub(super) fn needs_buffer(&self) -> bool {
        !matches!(self.action, Action::Verify(_))
    }

    pub(super) fn encoded_size(&self, decoded: Size) -> Option<Size> {
        match &self.action {
            Action::Verify(verify) => decoded.try_map(|n| n.checked_add(verify.overhead())),
            Action::InPlace(_) => Some(decoded),
            Action::Decode(codec) => codec.encoded_size(decoded),
        }
    }
}
