//! `optional` (of the library zarrs, codec.zarrs.dev/array_to_bytes/optional): marks for the elements that
//! have a value, and the values of these elements.
//!
//! An element decodes to a structure of two fields: a byte that is 1 if the element has a value, and the
//! value. A missing value is zero.

use super::build::ChainContext;
use super::error::{CodecError, DecodeError, split_head, truncated};
use super::pipeline::Pipeline;
use super::scratch::Scratch;
use super::stage::{Decode, Size};
use crate::zarr::{CodecChain, DataType, FillValue};

/// The size in bytes of the two size fields before the encoded marks and the encoded values.
const HEADER_BYTES: usize = 16;

/// Decodes marks and values to structures.
#[derive(Debug)]
pub(super) struct Optional {
    /// Decodes the marks of a chunk, one byte per element.
    marks: Pipeline,
    values: Values,
}

/// The encoding of the values of a chunk: an array with one axis, as long as the number of values.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) chain: CodecChain,
    pub(super) data_type: DataType,
    pub(super) item_bytes: usize,
    pub(super) context: ChainContext,
}

impl Values {
    /// Returns the pipeline for `count` values.
    pub(super) fn pipeline(&self, count: usize) -> Result<Pipeline, CodecError> {
        let shape = [count as u64];
        let fill = FillValue::Undefined;
        Pipeline::build(&self.chain, &self.data_type, &shape, &fill, self.context)
    }
}

impl Optional {
    pub(super) fn new(marks: Pipeline, values: Values) -> Self {
        Self { marks, values }
    }

    /// Returns the encoded marks and the encoded values.
    fn split(src: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
        let (marks_bytes, rest) = split_head::<8>(src)?;
        let (values_bytes, rest) = split_head::<8>(rest)?;
        let sizes = [marks_bytes, values_bytes].map(u64::from_le_bytes);
        let [marks, values] = sizes;
        if marks.checked_add(values) != Some(rest.len() as u64) {
            let bytes = rest.len();
            let what = format!("{marks} and {values} bytes are declared, there are {bytes}");
            return Err(DecodeError::corrupt(what));
        }
        let at = usize::try_from(marks).unwrap_or(usize::MAX);
        (rest.split_at_checked(at)).ok_or_else(|| truncated(rest.len(), at))
    }

    /// Writes the mark and the value of each element. `values` has one value for each mark that is set.
    fn place(&self, marks: &[u8], values: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let item_bytes = self.values.item_bytes;
        let mut values = values.chunks_exact(item_bytes);
        for (mark, element) in marks.iter().zip(dst.chunks_exact_mut(1 + item_bytes)) {
            let Some((first, value)) = element.split_first_mut() else {
                return Err(DecodeError::internal("an element of no bytes"));
            };
            *first = u8::from(*mark != 0);
            match *mark {
                0 => value.fill(0),
                _ => {
                    let stored = values.next();
                    let missing = || DecodeError::internal("fewer values than marks");
                    value.copy_from_slice(stored.ok_or_else(missing)?);
                }
            }
        }
        Ok(())
    }

    fn elements(&self) -> usize {
        let bytes = self.marks.decoded_size_bytes().unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Decode for Optional {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let packed = Size::AtMost(decoded.bytes().checked_add(HEADER_BYTES as u64)?);
        // Both parts may be compressed, and the values may be optional themselves.
        Some(packed.compressed().compressed())
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (marks_encoded, values_encoded) = Self::split(src)?;
        let elements = self.elements();
        if elements.checked_mul(1 + self.values.item_bytes) != Some(dst.len()) {
            let what = format!("a buffer of {} bytes for {elements} elements", dst.len());
            return Err(DecodeError::internal(what));
        }
        let mut marks = Scratch::new(elements)?;
        let within = |name: &'static str| move |e: CodecError| DecodeError::Nested(e.within(name));
        (self.marks.decode(marks_encoded, marks.bytes_mut()?)).map_err(within("the marks"))?;
        let marks = marks.bytes()?;
        let count = marks.iter().filter(|mark| **mark != 0).count();
        let mut values = Scratch::new(count * self.values.item_bytes)?;
        // A chunk without values has no encoded values, not even a checksum of them.
        if count > 0 {
            let pipeline = self.values.pipeline(count).map_err(DecodeError::Nested)?;
            (pipeline.decode(values_encoded, values.bytes_mut()?)).map_err(within("the values"))?;
        }
        self.place(marks, values.bytes()?, dst)?;
        Ok(dst.len())
    }

    /// Returns the memory of the marks and the values.
    fn working_bytes(&self, _: &[u8]) -> usize {
        let element_bytes = 1 + self.values.item_bytes;
        self.elements()
            .saturating_mul(element_bytes)
            .saturating_mul(2)
    }
}
