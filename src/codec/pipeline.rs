//! A codec pipeline: decodes the chunks of an array.

use std::sync::Arc;

use crate::zarr::{CodecChain, DataType, FillValue};

use super::build::{self, Chain, ChainContext, OutputElements};
use super::cursor::{Cursor, check, copy};
use super::element::{Budget, Element};
use super::error::{CodecError, DecodeError, part};
use super::object::ObjectCodec;
use super::shard::Sharding;
use super::stage::{Action, Size, Stage};
use super::transpose::Transpose;
use super::widen::Widen;

/// The codec chain of an array, built once and shared by all readers.
#[derive(Debug)]
pub struct Pipeline {
    chunk_shape: Vec<u64>,
    /// The stages in the order of decoding.
    stages: Vec<Stage>,
    output: Output,
    sharding: Option<Arc<Sharding>>,
    text: String,
}

#[derive(Debug)]
enum Output {
    Fixed {
        /// `sizes[i]` is the size of the input of stage `i`; the last one is that of the decoded chunk.
        sizes: Vec<Size>,
        decoded_bytes: u64,
    },
    Variable {
        name: String,
        object: ObjectCodec,
        transpose: Option<Transpose>,
        elements: u64,
    },
}

impl Pipeline {
    /// Builds the pipeline for chunks of one shape.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for an unknown codec or option; [`CodecError::Invalid`] for a chain
    /// of more than [`MAX_CODECS`](super::MAX_CODECS) codecs, configurations that are wrong or do not
    /// fit the data type or shape, and chunks whose size overflows 64 bits.
    ///
    /// # Examples
    /// ```
    /// use zarrfs::codec::Pipeline;
    /// use zarrfs::zarr::Array;
    ///
    /// let array = Array::from_v3(
    ///     br#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int16", "fill_value": 0,
    ///          "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    ///          "chunk_key_encoding": {"name": "default"},
    ///          "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}"#,
    /// )?;
    /// let parts = array.decodable()?;
    /// let pipeline = Pipeline::new(parts.codecs, parts.data_type, &[2], parts.fill_value)?;
    /// // Elements are decoded to little-endian.
    /// let mut decoded = [0; 4];
    /// pipeline.decode(&[0, 1, 2, 3], &mut decoded)?;
    /// assert_eq!(decoded, [1, 0, 3, 2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        chain: &CodecChain,
        data_type: &DataType,
        chunk_shape: &[u64],
        fill: &FillValue,
    ) -> Result<Self, CodecError> {
        let context = ChainContext::outermost(OutputElements::Stored);
        Self::build(chain, data_type, chunk_shape, fill, context)
    }

    /// As [`Pipeline::new`]; if NumPy lacks the type of the array, elements decode to [the next type that
    /// NumPy has](crate::zarr::Fixed::widened).
    ///
    /// # Errors
    /// As [`Pipeline::new`].
    pub fn widened(
        chain: &CodecChain,
        data_type: &DataType,
        chunk_shape: &[u64],
        fill: &FillValue,
    ) -> Result<Self, CodecError> {
        let context = ChainContext::outermost(OutputElements::Widened);
        Self::build(chain, data_type, chunk_shape, fill, context)
    }

    pub(super) fn build(
        chain: &CodecChain,
        data_type: &DataType,
        chunk_shape: &[u64],
        fill: &FillValue,
        context: ChainContext,
    ) -> Result<Self, CodecError> {
        let too_large =
            || CodecError::invalid("chunk", format!("{chunk_shape:?} overflows 64 bits"));
        let elements = chunk_shape
            .iter()
            .try_fold(1u64, |n, axis| n.checked_mul(*axis))
            .ok_or_else(too_large)?;
        let Chain {
            mut stages,
            object,
            mut sharding,
            elements: decoded,
            text,
        } = build::chain(chain, data_type, chunk_shape, fill, context)?;
        let output = match (object, data_type) {
            (Some((name, object, transpose)), _) => Output::Variable {
                name,
                object,
                transpose,
                elements,
            },
            (None, DataType::Fixed(stored)) => {
                let wide = match context.elements {
                    OutputElements::Stored => None,
                    OutputElements::Widened => stored.widened(),
                };
                if wide.is_some() && decoded == OutputElements::Stored {
                    let widen = Widen::new(stored)
                        .ok_or_else(|| CodecError::unsupported(format!("widening of {stored}")))?;
                    stages.push(Stage::decode("widening", widen));
                    // Inner chunks have the stored type.
                    sharding = None;
                }
                let fixed = wide.as_ref().unwrap_or(stored);
                let decoded_bytes = elements
                    .checked_mul(fixed.size_bytes as u64)
                    .ok_or_else(too_large)?;
                let sizes = sizes(&stages, Size::Exact(decoded_bytes))?;
                Output::Fixed {
                    sizes,
                    decoded_bytes,
                }
            }
            (None, DataType::Variable(_)) => {
                let what = "no codec encodes objects";
                return Err(CodecError::invalid("chain", what));
            }
        };
        Ok(Self {
            chunk_shape: chunk_shape.to_vec(),
            stages,
            output,
            sharding,
            text,
        })
    }

    /// Returns the stages, in the order of decoding.
    pub(super) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Returns the number of elements of a chunk along each axis.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Returns the size of a decoded chunk in bytes; `None` for elements of variable length.
    pub fn decoded_size_bytes(&self) -> Option<u64> {
        match &self.output {
            Output::Fixed { decoded_bytes, .. } => Some(*decoded_bytes),
            Output::Variable { .. } => None,
        }
    }

    /// Returns the size of the buffer that [`Pipeline::decode`] takes, in bytes.
    pub(super) fn decoded_length(&self) -> Result<usize, DecodeError> {
        let bytes = self.decoded_size_bytes();
        let bytes = bytes.ok_or_else(|| DecodeError::internal("elements of variable length"))?;
        usize::try_from(bytes).map_err(|_| DecodeError::Memory {
            needed: usize::MAX,
            limit: 0,
        })
    }

    /// Returns the header of encoded chunks that contain the decoded bytes unchanged, so that byte ranges of
    /// them can be read directly; `None` for any other encoding.
    ///
    /// An empty header means that all chunks have this form. With a longer header, a chunk has to be decoded
    /// unless it begins with this header and has exactly the size of header and decoded chunk.
    pub fn raw_header(&self) -> Option<&[u8]> {
        match (&self.stages[..], &self.output) {
            ([], Output::Fixed { .. }) => Some(&[]),
            ([only], Output::Fixed { .. }) => match &only.action {
                Action::Decode(codec) => codec.raw_header(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the size of every encoded chunk in bytes, if all chunks have the same size: a stored chunk of
    /// another size is corrupt.
    pub fn encoded_size_bytes(&self) -> Option<u64> {
        match &self.output {
            Output::Fixed { sizes, .. } => match sizes.first() {
                Some(Size::Exact(bytes)) => Some(*bytes),
                _ => None,
            },
            Output::Variable { .. } => None,
        }
    }

    /// Returns the decoded size of the last codec of the chain in bytes, if it is the same for all chunks.
    pub fn outermost_decoded_bytes(&self) -> Option<u64> {
        match &self.output {
            Output::Fixed { sizes, .. } => match sizes.get(1) {
                Some(Size::Exact(bytes)) => Some(*bytes),
                _ => None,
            },
            Output::Variable { .. } => None,
        }
    }

    /// Returns the maximum size in bytes of the buffers between the codecs while a chunk is decoded; the encoded
    /// and the decoded bytes are not among them.
    pub fn scratch_bytes(&self) -> u64 {
        let Output::Fixed { sizes, .. } = &self.output else {
            return 0;
        };
        let stages = self.stages.get(..self.tail()).unwrap_or_default();
        let mut changes = stages
            .iter()
            .filter(|stage| stage.needs_buffer())
            .peekable();
        // A change in place needs a buffer only if its input is the encoded bytes.
        let is_copied = changes.peek().is_some_and(is_in_place);
        let decoders = changes.filter(|stage| !is_in_place(stage)).count();
        // The last codec decodes into the buffer of the caller. Another one has an input and an output.
        let buffers = (decoders + usize::from(is_copied)).saturating_sub(1).min(2) as u64;
        let inner = sizes.get(1..self.stages.len()).unwrap_or_default();
        let largest = inner.iter().map(|size| size.bytes()).max();
        largest.unwrap_or(0).saturating_mul(buffers)
    }

    /// Returns the number of stages before those at the end that decode in place.
    fn tail(&self) -> usize {
        let changes = self.stages.iter().rev().take_while(is_in_place).count();
        self.stages.len() - changes
    }

    /// Returns the sharding codec, if it is the only codec of the chain: inner chunks can then be read alone.
    pub fn sharding(&self) -> Option<&Sharding> {
        self.sharding.as_deref()
    }

    /// Returns the codecs in the order of encoding, as text: `transpose(1, 0) | bytes(big) | zstd`.
    pub fn describe(&self) -> &str {
        &self.text
    }

    /// Decodes one chunk into `out`, in C order and the data type's byte order. `out` must have
    /// exactly [`Pipeline::decoded_size_bytes`]; after an error its content is arbitrary.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the output is not exactly this size;
    /// [`CodecError::TooLarge`] if the system is out of memory; [`CodecError::Internal`] for an `out` of the
    /// wrong size or elements of variable length.
    pub fn decode(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let Output::Fixed {
            sizes,
            decoded_bytes,
        } = &self.output
        else {
            let what = "elements of variable length do not decode to bytes";
            return Err(CodecError::internal("chain", what));
        };
        if out.len() as u64 != *decoded_bytes {
            let what = format!("a buffer of {} bytes for {decoded_bytes}", out.len());
            return Err(CodecError::internal("chain", what));
        }
        let decoded = self.run(encoded, out, sizes, self.tail())?;
        if decoded.is_in_out() {
            return Ok(());
        }
        let copied = decoded.bytes().and_then(|bytes| copy(bytes, out));
        copied.map_err(|error| error.in_codec("chain"))
    }

    /// Decodes one chunk of elements of variable length, in C order. `limit_bytes` bounds the memory
    /// of the result.
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

    /// Returns the maximum memory of [`Pipeline::decode_variable`] with a limit, in bytes: elements, and
    /// buffers between codecs.
    pub fn variable_memory_bytes(&self, limit_bytes: u64) -> u64 {
        limit_bytes.saturating_add(self.buffer_bytes(limit_bytes))
    }

    /// Returns the size of the buffers between two codecs: the input and the output of one codec.
    fn buffer_bytes(&self, limit_bytes: u64) -> u64 {
        let Output::Variable {
            object, elements, ..
        } = &self.output
        else {
            return self.decoded_size_bytes().unwrap_or(0).saturating_mul(2);
        };
        // More elements than the limit allows cause an error.
        let elements = (*elements).min(limit_bytes / size_of::<Element>() as u64);
        let bytes = Size::AtMost(object_bytes(elements, limit_bytes));
        let changes = self.stages.iter().filter(|stage| stage.needs_buffer());
        let buffers = sizes(&self.stages, bytes).map_or(u64::MAX, |sizes| {
            let inner = sizes.iter().skip(1).map(|size| size.bytes());
            let largest = inner.max().unwrap_or(0);
            largest.saturating_mul(changes.count().min(2) as u64)
        });
        let inner = match object {
            ObjectCodec::Shard(sharding) => sharding.inner().buffer_bytes(limit_bytes),
            _ => 0,
        };
        buffers.saturating_add(inner)
    }

    pub(super) fn decode_within(
        &self,
        encoded: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<Element>, CodecError> {
        let Output::Variable {
            name,
            object,
            transpose,
            elements,
        } = &self.output
        else {
            let what = "elements of constant size decode to bytes";
            return Err(CodecError::internal("chain", what));
        };
        // Nothing is allocated if the number of elements exceeds the budget.
        budget
            .check(*elements)
            .map_err(|error| error.in_codec(name))?;
        let most = object_bytes(*elements, budget.left() as u64);
        let sizes = sizes(&self.stages, Size::AtMost(most))?;
        let decoded = self.run(encoded, &mut [], &sizes, usize::MAX)?;
        let list = decoded
            .bytes()
            .and_then(|bytes| object.decode(bytes, *elements, budget));
        let list = match transpose {
            Some(transpose) => list.and_then(|list| transpose.elements(list)),
            None => list,
        };
        list.map_err(|error| error.in_codec(name))
    }

    /// Returns the payload of `encoded`, if all codecs are checksums.
    pub(super) fn strip_checksums<'a>(
        &self,
        encoded: &'a [u8],
    ) -> Option<Result<&'a [u8], CodecError>> {
        let Output::Fixed { decoded_bytes, .. } = &self.output else {
            return None;
        };
        let mut bytes = encoded;
        for stage in &self.stages {
            let Action::Verify(verify) = &stage.action else {
                return None;
            };
            let payload = verify.verify(bytes).and_then(|range| part(bytes, range));
            match payload {
                Ok(payload) => bytes = payload,
                Err(error) => return Some(Err(error.in_codec(&stage.name))),
            }
        }
        let checked = check(bytes.len(), Size::Exact(*decoded_bytes));
        Some(
            checked
                .map(|()| bytes)
                .map_err(|error| error.in_codec("bytes")),
        )
    }

    /// Runs all stages; stages from `tail` on decode in place, in `out`.
    fn run<'a>(
        &self,
        encoded: &'a [u8],
        out: &mut [u8],
        sizes: &[Size],
        tail: usize,
    ) -> Result<Cursor<'a>, CodecError> {
        let mut sizes = sizes.iter().copied();
        let mut next_size = || sizes.next().ok_or_else(|| DecodeError::internal("no size"));
        let first = self
            .stages
            .first()
            .map_or("bytes", |stage| stage.name.as_str());
        next_size()
            .and_then(|size| check(encoded.len(), size))
            .map_err(|error| error.in_codec(first))?;
        let mut at = Cursor::new(encoded);
        for (index, stage) in self.stages.iter().enumerate() {
            next_size()
                .and_then(|size| at.apply(stage, size, out, index + 1 == tail, index >= tail))
                .map_err(|error| error.in_codec(&stage.name))?;
        }
        Ok(at)
    }
}

fn is_in_place(stage: &&Stage) -> bool {
    matches!(stage.action, Action::InPlace(_))
}

/// Returns the maximum encoded size of elements within a limit, plus their lengths and counts, which the
/// limit does not include.
fn object_bytes(elements: u64, limit_bytes: u64) -> u64 {
    let lengths = elements.saturating_mul(8).saturating_add(4);
    lengths.saturating_add(limit_bytes)
}

/// Returns the sizes before, between and after the stages.
fn sizes(stages: &[Stage], decoded: Size) -> Result<Vec<Size>, CodecError> {
    let mut sizes = vec![decoded];
    let mut size = decoded;
    for stage in stages.iter().rev() {
        size = stage.encoded_size(size).ok_or_else(|| {
            let what = format!("it cannot encode a chunk of {} bytes", size.bytes());
            CodecError::invalid(&stage.name, what)
        })?;
        sizes.push(size);
    }
    sizes.reverse();
    Ok(sizes)
}
