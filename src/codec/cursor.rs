//! The buffers that a chunk passes through from stage to stage.

use std::ops::Range;

use super::error::DecodeError;
use super::scratch::Scratch;
use super::stage::{Action, Size, Stage};

/// A codec that takes this much memory by itself decodes into the caller's buffer first, so that no
/// third chunk-sized buffer is alive meanwhile.
const LARGE_WORKING_BYTES: usize = 4 << 20;

/// The buffer with the input of the next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buffer {
    Input,
    Scratch,
    Out,
}

/// The bytes between two stages.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    buffer: Buffer,
    range: Range<usize>,
    encoded: &'a [u8],
    scratch: Option<Scratch>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(encoded: &'a [u8]) -> Self {
        Self {
            buffer: Buffer::Input,
            range: 0..encoded.len(),
            encoded,
            scratch: None,
        }
    }

    /// The bytes, or none if they are in `out`.
    pub(super) fn outside(&self) -> Option<&[u8]> {
        (self.buffer != Buffer::Out).then(|| self.bytes())
    }

    /// The bytes, unless they are in `out`.
    fn bytes(&self) -> &[u8] {
        let all = match self.buffer {
            Buffer::Input => self.encoded,
            Buffer::Scratch => self
                .scratch
                .as_ref()
                .map(Scratch::bytes)
                .unwrap_or_default(),
            Buffer::Out => &[],
        };
        all.get(self.range.clone()).unwrap_or_default()
    }

    /// Applies a stage. `last`: its output goes to `out`. `in_tail`: all following stages decode in
    /// place, so that `out` has their size.
    pub(super) fn apply(
        &mut self,
        stage: &Stage,
        size: Option<Size>,
        out: &mut [u8],
        last: bool,
        in_tail: bool,
    ) -> Result<(), DecodeError> {
        match &stage.action {
            Action::Verify(verify) => {
                let payload = verify.verify(self.bytes())?;
                let start = self.range.start;
                self.range = start + payload.start..start + payload.end;
            }
            Action::InPlace(change) => {
                if self.buffer == Buffer::Input && in_tail {
                    out.copy_from_slice(self.bytes());
                    self.moved(Buffer::Out, out.len(), None);
                } else if self.buffer == Buffer::Input {
                    let copy = copied(self.bytes())?;
                    self.moved(Buffer::Scratch, copy.bytes().len(), Some(copy));
                }
                let range = self.range.clone();
                let bytes = match (self.buffer, &mut self.scratch) {
                    (Buffer::Scratch, Some(scratch)) => scratch.bytes_mut(),
                    _ => &mut *out,
                };
                change.decode_in_place(bytes.get_mut(range).unwrap_or_default())?;
            }
            Action::Decode(codec) if last => {
                let written = codec.decode(self.bytes(), out)?;
                check(written, size.as_ref())?;
                self.moved(Buffer::Out, written, None);
            }
            Action::Decode(codec) => {
                let limit = size.map_or(u64::MAX, Size::bytes);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let large = codec.working_bytes(self.bytes()) > LARGE_WORKING_BYTES;
                let (written, scratch) = match out.get_mut(..limit) {
                    Some(out) if large => {
                        let written = codec.decode(self.bytes(), out)?;
                        self.scratch = None;
                        (written, copied(out.get(..written).unwrap_or_default())?)
                    }
                    _ => {
                        let mut scratch = Scratch::new(limit)?;
                        let written = codec.decode(self.bytes(), scratch.bytes_mut())?;
                        (written, scratch)
                    }
                };
                check(written, size.as_ref())?;
                self.moved(Buffer::Scratch, written, Some(scratch));
            }
        }
        Ok(())
    }

    fn moved(&mut self, buffer: Buffer, len: usize, scratch: Option<Scratch>) {
        self.buffer = buffer;
        self.range = 0..len;
        self.scratch = scratch;
    }
}

fn copied(bytes: &[u8]) -> Result<Scratch, DecodeError> {
    let mut copy = Scratch::new(bytes.len())?;
    copy.bytes_mut().copy_from_slice(bytes);
    Ok(copy)
}

pub(super) fn check(found: usize, expected: Option<&Size>) -> Result<(), DecodeError> {
    match expected {
        Some(Size::Exact(n)) if found as u64 != *n => {
            Err(DecodeError::corrupt(format!("{found} bytes, expected {n}")))
        }
        _ => Ok(()),
    }
}
