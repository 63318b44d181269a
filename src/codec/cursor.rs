//! The buffers that a chunk passes through from stage to stage.

use std::ops::Range;

use super::error::{DecodeError, part, part_mut};
use super::scratch::Scratch;
use super::stage::{Action, Size, Stage};

/// A codec that takes at least this much memory decodes into the caller's buffer first, so that at most two
/// chunk-sized buffers exist at a time.
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

    /// Returns whether the bytes are in `out`.
    pub(super) fn is_in_out(&self) -> bool {
        self.buffer == Buffer::Out
    }

    /// Returns the number of bytes.
    pub(super) fn size(&self) -> usize {
        self.range.len()
    }

    /// Returns the bytes, which must not be in `out`.
    pub(super) fn bytes(&self) -> Result<&[u8], DecodeError> {
        let all = match (self.buffer, &self.scratch) {
            (Buffer::Input, _) => self.encoded,
            (Buffer::Scratch, Some(scratch)) => scratch.bytes()?,
            _ => return Err(DecodeError::internal("no input outside of the output")),
        };
        part(all, self.range.clone())
    }

    /// Applies a stage. `last` means that its output goes to `out`. `in_tail` means that all following stages
    /// decode in place, so `out` has their size.
    pub(super) fn apply(
        &mut self,
        stage: &Stage,
        size: Size,
        out: &mut [u8],
        last: bool,
        in_tail: bool,
    ) -> Result<(), DecodeError> {
        match &stage.action {
            Action::Verify(verify) => {
                let payload = verify.verify(self.bytes()?)?;
                let start = self.range.start;
                self.range = start + payload.start..start + payload.end;
            }
            Action::InPlace(change) => {
                if self.buffer == Buffer::Input && in_tail {
                    copy(self.bytes()?, out)?;
                    self.moved(Buffer::Out, out.len(), None);
                } else if self.buffer == Buffer::Input {
                    let copy = copied(self.bytes()?)?;
                    self.moved(Buffer::Scratch, self.range.len(), Some(copy));
                }
                let bytes = match (self.buffer, &mut self.scratch) {
                    (Buffer::Scratch, Some(scratch)) => scratch.bytes_mut()?,
                    _ => &mut *out,
                };
                change.decode_in_place(part_mut(bytes, self.range.clone())?)?;
            }
            Action::Decode(codec) if last => {
                let written = codec.decode(self.bytes()?, out)?;
                check(written, size)?;
                self.moved(Buffer::Out, written, None);
            }
            Action::Decode(codec) => {
                let limit = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
                let large = codec.working_bytes(self.bytes()?) > LARGE_WORKING_BYTES;
                let (written, scratch) = match out.get_mut(..limit) {
                    Some(out) if large => {
                        let written = codec.decode(self.bytes()?, out)?;
                        self.scratch = None;
                        (written, copied(part(out, 0..written)?)?)
                    }
                    _ => {
                        let mut scratch = Scratch::new(limit)?;
                        let written = codec.decode(self.bytes()?, scratch.bytes_mut()?)?;
                        (written, scratch)
                    }
                };
                check(written, size)?;
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
    copy.bytes_mut()?.copy_from_slice(bytes);
    Ok(copy)
}

/// Copies bytes to a buffer of the same size.
pub(super) fn copy(from: &[u8], to: &mut [u8]) -> Result<(), DecodeError> {
    if from.len() != to.len() {
        let what = format!("{} bytes for a buffer of {}", from.len(), to.len());
        return Err(DecodeError::internal(what));
    }
    to.copy_from_slice(from);
    Ok(())
}

pub(super) fn check(found: usize, expected: Size) -> Result<(), DecodeError> {
    match expected {
        Size::Exact(n) if found as u64 != n => {
            Err(DecodeError::corrupt(format!("{found} bytes, expected {n}")))
        }
        _ => Ok(()),
    }
}
