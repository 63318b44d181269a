//! `conditional` (zarr-extensions): a header declares which of several codecs encoded a chunk.

use super::cursor::{Cursor, copy};
use super::error::{DecodeError, part, part_mut, truncated};
use super::stage::{Decode, Size, Stage};

/// Decodes a header of bits, and then the codecs whose bits are set.
#[derive(Debug)]
pub(super) struct Conditional {
    header_bytes: usize,
    /// The stages in the order of encoding; `None` for a codec that changes no byte.
    stages: Vec<Option<Stage>>,
}

impl Conditional {
    /// Creates the codec. The `header_bytes` bytes of the header have a bit for each codec.
    pub(super) fn new(header_bytes: usize, stages: Vec<Option<Stage>>) -> Self {
        Self {
            header_bytes,
            stages,
        }
    }

    /// Returns the stages that encoded the chunk, in the order of decoding, and the bytes after the header.
    fn parse<'a>(&self, src: &'a [u8]) -> Result<(Vec<&Stage>, &'a [u8]), DecodeError> {
        let (header, payload) = src
            .split_at_checked(self.header_bytes)
            .ok_or_else(|| truncated(src.len(), self.header_bytes))?;
        let is_set = |bit: usize| {
            header
                .get(bit / 8)
                .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        if let Some(bit) = (self.stages.len()..8 * self.header_bytes).find(|bit| is_set(*bit)) {
            let what = format!(
                "bit {bit} of the header is set, there are {} codecs",
                self.stages.len()
            );
            return Err(DecodeError::corrupt(what));
        }
        let applied = self.stages.iter().enumerate().rev();
        let applied = applied.filter(|(bit, _)| is_set(*bit));
        Ok((
            applied.filter_map(|(_, stage)| stage.as_ref()).collect(),
            payload,
        ))
    }
}

impl Decode for Conditional {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let mut bytes = decoded.bytes();
        for stage in self.stages.iter().flatten() {
            let encoded = stage.encoded_size(Size::AtMost(bytes))?;
            bytes = bytes.max(encoded.bytes());
        }
        Some(Size::AtMost(bytes.saturating_add(self.header_bytes as u64)))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (stages, payload) = self.parse(src)?;
        let limit = dst.len();
        // The sizes after each stage, the last stage first.
        let mut sizes = vec![Size::AtMost(limit as u64)];
        for stage in stages.iter().skip(1).rev() {
            let last = sizes.last().copied().unwrap_or(Size::AtMost(0));
            let size = stage.encoded_size(last);
            sizes
                .push(size.ok_or_else(|| DecodeError::internal("a size without an encoded size"))?);
        }
        let mut at = Cursor::new(payload);
        let count = stages.len();
        for (number, (stage, size)) in stages.iter().zip(sizes.iter().rev()).enumerate() {
            at.apply(stage, *size, dst, number + 1 == count, false)
                .map_err(|error| DecodeError::Nested(error.in_codec(&stage.name)))?;
        }
        if at.is_in_out() {
            return Ok(at.size());
        }
        let bytes = at.bytes()?;
        if bytes.len() > limit {
            return Err(DecodeError::overflow(limit));
        }
        copy(part(bytes, 0..bytes.len())?, part_mut(dst, 0..bytes.len())?)?;
        Ok(bytes.len())
    }
}
