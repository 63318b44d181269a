//! What a codec is to the pipeline: one step back from the stored bytes to the elements.

use std::fmt;
use std::ops::Range;

use super::error::Fault;

/// How many bytes stand between two codecs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Exact(u64),
    /// A sane upper limit of what an encoder makes.
    AtMost(u64),
}

impl Size {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Exact(n) | Self::AtMost(n) => n,
        }
    }

    /// Applies `f` to the number, keeping exact what is exact.
    pub(super) fn try_map(self, f: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        match self {
            Self::Exact(n) => f(n).map(Self::Exact),
            Self::AtMost(n) => Some(Self::AtMost(f(n).unwrap_or(u64::MAX))),
        }
    }

    /// The most that a compressor makes of so many bytes: every one here adds less than 1/64 and
    /// 64 KiB to what it cannot compress.
    pub(super) fn compressed(self) -> Self {
        let n = self.bytes();
        Self::AtMost(n.saturating_add(n / 64).saturating_add(64 << 10))
    }
}

/// Checks bytes and says which of them are the payload.
pub(super) trait Verify: fmt::Debug + Send + Sync {
    /// Bytes around the payload.
    fn overhead(&self) -> u64;
    fn verify(&self, src: &[u8]) -> Result<Range<usize>, Fault>;
}

/// Changes bytes where they are.
pub(super) trait Change: fmt::Debug + Send + Sync {
    fn change(&self, bytes: &mut [u8]) -> Result<(), Fault>;
}

/// Makes other bytes.
pub(super) trait Convert: fmt::Debug + Send + Sync {
    /// What is encoded, of so many bytes decoded. None: no encoder makes such a size.
    fn encoded_size(&self, decoded: Size) -> Option<Size>;

    /// Decodes into the beginning of `dst` and returns how many bytes came out. It is a fault if
    /// they do not fit; nothing of the size of what `src` claims is allocated.
    fn convert(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, Fault>;

    /// Memory the codec itself takes while it decodes `src`, where that grows with the chunk.
    fn working_bytes(&self, _src: &[u8]) -> usize {
        0
    }
}

/// One codec to undo.
#[derive(Debug)]
pub(super) enum Action {
    Verify(Box<dyn Verify>),
    Change(Box<dyn Change>),
    Convert(Box<dyn Convert>),
}

/// An action with the codec's name in the metadata.
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

    pub(super) fn change(name: &str, change: impl Change + 'static) -> Self {
        Self {
            name: name.into(),
            action: Action::Change(Box::new(change)),
        }
    }

    pub(super) fn convert(name: &str, convert: impl Convert + 'static) -> Self {
        Self {
            name: name.into(),
            action: Action::Convert(Box::new(convert)),
        }
    }

    /// Whether it makes other bytes, in a buffer of their own.
    pub(super) fn is_change(&self) -> bool {
        !matches!(self.action, Action::Verify(_))
    }

    pub(super) fn encoded_size(&self, decoded: Size) -> Option<Size> {
        match &self.action {
            Action::Verify(verify) => decoded.try_map(|n| n.checked_add(verify.overhead())),
            Action::Change(_) => Some(decoded),
            Action::Convert(convert) => convert.encoded_size(decoded),
        }
    }
}
