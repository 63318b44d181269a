//! A chain of codecs, ready to decode the chunks of an array.

use std::ops::Range;
use std::sync::Arc;

use crate::zarr::{CodecChain, DataType, FillValue};

use super::build::{self, Chain};
use super::element::{Budget, Element};
use super::error::{CodecError, Fault};
use super::object::Object;
use super::scratch::Scratch;
use super::shard::Sharding;
use super::stage::{Action, Size, Stage};
use super::transpose::Transpose;

/// A codec that takes this much memory by itself decodes into the caller's buffer first, so that no
/// third chunk-sized buffer is alive meanwhile.
const LARGE_WORKING_BYTES: usize = 4 << 20;

/// The codecs of an array, built once and shared by all readers.
#[derive(Debug)]
pub struct Pipeline {
    chunk_shape: Vec<u64>,
    /// In the order of decoding.
    stages: Vec<Stage>,
    kind: Kind,
    sharding: Option<Arc<Sharding>>,
    text: String,
}

#[derive(Debug)]
enum Kind {
    Fixed {
        /// `sizes[i]` goes into stage `i`; the last is the decoded chunk.
        sizes: Vec<Size>,
        decoded_bytes: u64,
    },
    Variable {
        name: String,
        object: Object,
        transpose: Option<Transpose>,
        elements: u64,
    },
}

/// Where the bytes are that come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Input,
    Scratch,
    Out,
}

impl Pipeline {
    /// Builds the pipeline for chunks of one shape.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] with the name of what is not known; [`CodecError::Invalid`] for a
    /// chain of more than [`MAX_CODECS`](super::MAX_CODECS) codecs, configurations that are wrong or do not fit
    /// the type or shape, and chunks whose size overflows 64 bits.
    pub fn new(
        chain: &CodecChain,
        data_type: &DataType,
        chunk_shape: &[u64],
        fill: &FillValue,
    ) -> Result<Self, CodecError> {
        Self::nested(chain, data_type, chunk_shape, fill, 0)
    }

    pub(super) fn nested(
        chain: &CodecChain,
        data_type: &DataType,
        chunk_shape: &[u64],
        fill: &FillValue,
        depth: usize,
    ) -> Result<Self, CodecError> {
        let too_large =
            || CodecError::invalid("chunk", format!("{chunk_shape:?} overflows 64 bits"));
        let elements = chunk_shape
            .iter()
            .try_fold(1u64, |n, axis| n.checked_mul(*axis))
            .ok_or_else(too_large)?;
        let Chain {
            stages,
            object,
            sharding,
            text,
        } = build::chain(chain, data_type, chunk_shape, fill, depth)?;
        let kind = match (object, data_type) {
            (Some((name, object, transpose)), _) => Kind::Variable {
                name,
                object,
                transpose,
                elements,
            },
            (None, DataType::Fixed(fixed)) => {
                let decoded_bytes = elements
                    .checked_mul(fixed.size_bytes as u64)
                    .ok_or_else(too_large)?;
                let sizes = sizes(&stages, Size::Exact(decoded_bytes))?;
                Kind::Fixed {
                    sizes,
                    decoded_bytes,
                }
            }
            (None, DataType::Variable(_)) => {
                let what = "no codec turns objects into bytes";
                return Err(CodecError::invalid("chain", what));
            }
        };
        Ok(Self {
            chunk_shape: chunk_shape.to_vec(),
            stages,
            kind,
            sharding,
            text,
        })
    }

    /// Elements of a chunk along each axis.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Bytes of a decoded chunk; none for elements of variable length.
    pub fn decoded_size_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Fixed { decoded_bytes, .. } => Some(*decoded_bytes),
            Kind::Variable { .. } => None,
        }
    }

    /// Whether the encoded bytes are the decoded ones: ranges of them may be read directly.
    pub fn is_identity(&self) -> bool {
        self.stages.is_empty() && matches!(self.kind, Kind::Fixed { .. })
    }

    /// Bytes of every encoded chunk, if all have the same number: a stored chunk of another size is
    /// corrupt.
    pub fn encoded_size_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Fixed { sizes, .. } => match sizes.first() {
                Some(Size::Exact(bytes)) => Some(*bytes),
                _ => None,
            },
            Kind::Variable { .. } => None,
        }
    }

    /// The inner chunks, where they can be read alone: the chain is `sharding_indexed` and nothing
    /// else.
    pub fn sharding(&self) -> Option<&Sharding> {
        self.sharding.as_deref()
    }

    /// The codecs in the order of encoding, for people: `transpose(1, 0) | bytes(big) | zstd`.
    pub fn describe(&self) -> &str {
        &self.text
    }

    /// Decodes one chunk into `out`, in C order and the data type's byte order. `out` must have
    /// exactly [`Pipeline::decoded_size_bytes`]; after an error its content is arbitrary.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if anything but exactly these bytes comes out;
    /// [`CodecError::TooLarge`] if there is no memory; [`CodecError::Invalid`] for an `out` of the
    /// wrong size or elements of variable length.
    pub fn decode(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let Kind::Fixed {
            sizes,
            decoded_bytes,
        } = &self.kind
        else {
            let what = "elements of variable length do not decode to bytes";
            return Err(CodecError::invalid("chain", what));
        };
        if out.len() as u64 != *decoded_bytes {
            let what = format!("a buffer of {} bytes for {decoded_bytes}", out.len());
            return Err(CodecError::invalid("chain", what));
        }
        let changes = self
            .stages
            .iter()
            .rev()
            .take_while(|stage| matches!(stage.action, Action::Change(_)))
            .count();
        let tail = self.stages.len() - changes;
        self.run(encoded, out, sizes, tail, |bytes, out| {
            if let Some(bytes) = bytes {
                out.copy_from_slice(bytes);
            }
            Ok(())
        })
    }

    /// Decodes one chunk of elements of variable length, in C order. `limit_bytes` bounds the memory
    /// of what is returned.
    ///
    /// # Errors
    /// As [`Pipeline::decode`]; [`CodecError::TooLarge`] beyond the limit.
    pub fn decode_variable(
        &self,
        encoded: &[u8],
        limit_bytes: usize,
    ) -> Result<Vec<Element>, CodecError> {
        self.decode_within(encoded, &mut Budget::new(limit_bytes))
    }

    pub(super) fn decode_within(
        &self,
        encoded: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<Element>, CodecError> {
        let Kind::Variable {
            name,
            object,
            transpose,
            elements,
        } = &self.kind
        else {
            let what = "elements of constant size decode to bytes";
            return Err(CodecError::invalid("chain", what));
        };
        // The lengths of the elements are not in the budget, but stand in the bytes.
        let bound = elements.saturating_mul(8).saturating_add(4);
        let sizes = if self.stages.is_empty() {
            Vec::new()
        } else {
            let most = bound.saturating_add(budget.left() as u64);
            sizes(&self.stages, Size::AtMost(most))?
        };
        let list = self.run(encoded, &mut [], &sizes, usize::MAX, |bytes, _| {
            object
                .decode(bytes.unwrap_or_default(), *elements, budget)
                .map_err(|fault| fault.of(name))
        })?;
        Ok(match transpose {
            Some(transpose) => transpose.elements(list),
            None => list,
        })
    }

    /// The payload of `encoded` if there are only checksums around it.
    pub(super) fn peel<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8], CodecError>> {
        if !matches!(self.kind, Kind::Fixed { .. }) {
            return None;
        }
        let mut bytes = encoded;
        for stage in &self.stages {
            let Action::Verify(verify) = &stage.action else {
                return None;
            };
            match verify.verify(bytes) {
                Ok(range) => bytes = bytes.get(range).unwrap_or_default(),
                Err(fault) => return Some(Err(fault.of(&stage.name))),
            }
        }
        let expected = self.decoded_size_bytes();
        if expected == Some(bytes.len() as u64) {
            Some(Ok(bytes))
        } else {
            let what = format!("{} bytes, expected {}", bytes.len(), expected.unwrap_or(0));
            Some(Err(Fault::corrupt(what).of("bytes")))
        }
    }

    /// Runs all stages; from `tail` on they only change bytes, in `out`. `finish` gets the bytes, or
    /// none if they are in `out`.
    fn run<R>(
        &self,
        encoded: &[u8],
        out: &mut [u8],
        sizes: &[Size],
        tail: usize,
        finish: impl FnOnce(Option<&[u8]>, &mut [u8]) -> Result<R, CodecError>,
    ) -> Result<R, CodecError> {
        let first = self
            .stages
            .first()
            .map_or("bytes", |stage| stage.name.as_str());
        check(encoded.len(), sizes.first()).map_err(|fault| fault.of(first))?;
        let mut at = Cursor {
            place: Place::Input,
            range: 0..encoded.len(),
            encoded,
            scratch: None,
        };
        for (index, stage) in self.stages.iter().enumerate() {
            let size = sizes.get(index + 1).copied();
            at.apply(stage, size, out, index + 1 == tail, index >= tail)
                .map_err(|fault| fault.of(&stage.name))?;
        }
        match at.place {
            Place::Out => finish(None, out),
            _ => finish(Some(at.bytes()), out),
        }
    }
}

/// The bytes between two stages.
struct Cursor<'a> {
    place: Place,
    range: Range<usize>,
    encoded: &'a [u8],
    scratch: Option<Scratch>,
}

impl Cursor<'_> {
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
    fn apply(
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

fn check(found: usize, expected: Option<&Size>) -> Result<(), Fault> {
    match expected {
        Some(Size::Exact(n)) if found as u64 != *n => {
            Err(Fault::corrupt(format!("{found} bytes, expected {n}")))
        }
        _ => Ok(()),
    }
}

/// The sizes before, between and after the stages.
fn sizes(stages: &[Stage], decoded: Size) -> Result<Vec<Size>, CodecError> {
    let mut sizes = vec![decoded];
    let mut size = decoded;
    for stage in stages.iter().rev() {
        size = stage.encoded_size(size).ok_or_else(|| {
            let what = format!("a chunk of {} bytes cannot be made of it", size.bytes());
            CodecError::invalid(&stage.name, what)
        })?;
        sizes.push(size);
    }
    sizes.reverse();
    Ok(sizes)
}
