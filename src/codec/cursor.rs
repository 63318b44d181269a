//! The way of one chunk through the stages: which buffer its bytes are in.

use std::ops::Range;

use super::error::Fault;
use super::scratch::Scratch;
use super::stage::{Action, Size, Stage};

/// A codec that takes this much memory by itself decodes into the caller's buffer first, so that no
/// third chunk-sized buffer is alive meanwhile.
const LARGE_WORKING_BYTES: usize = 4 << 20;

/// Where the bytes are that come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Input,
    Scratch,
    Out,
}

/// The bytes between two stages.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    place: Place,
    range: Range<usize>,
    encoded: &'a [u8],
    scratch: Option<Scratch>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(encoded: &'a [u8]) -> Self {
        Self {
            place: Place::Input,
            range: 0..encoded.len(),
            encoded,
            scratch: None,
        }
    }

    /// The bytes, or none if they are in `out`.
    pub(super) fn outside(&self) -> Option<&[u8]> {
        (self.place != Place::Out).then(|| self.bytes())
    }

    /// The bytes, unless they are in `out`.
    fn bytes(&self) -> &[u8] {
        let all = match self.place {
            Place::Input => self.encoded,
            Place::Scratch => self
                .scratch
                .as_ref()
                .map(Scratch::bytes)
                .unwrap_or_default(),
            Place::Out => &[],
        };
        all.get(self.range.clone()).unwrap_or_default()
    }

    /// `last`: the result of a conversion goes to `out`. `in_tail`: all that follows only changes
    /// bytes, so that `out` has their number.
    pub(super) fn apply(
        &mut self,
        stage: &Stage,
        size: Option<Size>,
        out: &mut [u8],
        last: bool,
        in_tail: bool,
    ) -> Result<(), Fault> {
        match &stage.action {
            Action::Verify(verify) => {
                let payload = verify.verify(self.bytes())?;
                let start = self.range.start;
                self.range = start + payload.start..start + payload.end;
            }
            Action::Change(change) => {
                if self.place == Place::Input && in_tail {
                    out.copy_from_slice(self.bytes());
                    self.moved(Place::Out, out.len(), None);
                } else if self.place == Place::Input {
                    let copy = copied(self.bytes())?;
                    self.moved(Place::Scratch, copy.bytes().len(), Some(copy));
                }
                let range = self.range.clone();
                let bytes = match (self.place, &mut self.scratch) {
                    (Place::Scratch, Some(scratch)) => scratch.bytes_mut(),
                    _ => &mut *out,
                };
                change.change(bytes.get_mut(range).unwrap_or_default())?;
            }
            Action::Convert(convert) if last => {
                let written = convert.convert(self.bytes(), out)?;
                check(written, size.as_ref())?;
                self.moved(Place::Out, written, None);
            }
            Action::Convert(convert) => {
                let limit = size.map_or(u64::MAX, Size::bytes);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let large = convert.working_bytes(self.bytes()) > LARGE_WORKING_BYTES;
                let (written, scratch) = match out.get_mut(..limit) {
                    Some(out) if large => {
                        let written = convert.convert(self.bytes(), out)?;
                        self.scratch = None;
                        (written, copied(out.get(..written).unwrap_or_default())?)
                    }
                    _ => {
                        let mut scratch = Scratch::new(limit)?;
                        let written = convert.convert(self.bytes(), scratch.bytes_mut())?;
                        (written, scratch)
                    }
                };
                check(written, size.as_ref())?;
                self.moved(Place::Scratch, written, Some(scratch));
            }
        }
        Ok(())
    }

    fn moved(&mut self, place: Place, len: usize, scratch: Option<Scratch>) {
        self.place = place;
        self.range = 0..len;
        self.scratch = scratch;
    }
}

fn copied(bytes: &[u8]) -> Result<Scratch, Fault> {
    let mut copy = Scratch::new(bytes.len())?;
    copy.bytes_mut().copy_from_slice(bytes);
    Ok(copy)
}

pub(super) fn check(found: usize, expected: Option<&Size>) -> Result<(), Fault> {
    match expected {
        Some(Size::Exact(n)) if found as u64 != *n => {
            Err(Fault::corrupt(format!("{found} bytes, expected {n}")))
        }
        _ => Ok(()),
    }
}
