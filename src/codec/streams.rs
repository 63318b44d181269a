//! Concatenated streams in one chunk, for `bz2` and `lzma`, and single ones.

use super::error::{DecodeError, part, part_mut};

/// One step of a decoder.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    pub(super) ended: bool,
}

/// A stream that is being decoded.
pub(super) trait Stream {
    /// Reads a part of `src` and writes a part of `dst`.
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, DecodeError>;
}

/// Decodes all streams. Bytes after the first stream that do not form a stream are ignored, as in Python's
/// `bz2.decompress` and `lzma.decompress`.
pub(super) fn decode_all<S: Stream>(
    src: &[u8],
    dst: &mut [u8],
    start: impl Fn() -> Result<S, DecodeError>,
) -> Result<usize, DecodeError> {
    let (mut rest, mut written, limit) = (src, 0, dst.len());
    loop {
        let space = part_mut(dst, written..limit)?;
        match decode_one(rest, space, &mut start()?) {
            Ok((consumed, produced)) => {
                written += produced;
                rest = part(rest, consumed..rest.len())?;
            }
            Err(Failure::NotAStream(_)) if rest.len() < src.len() => return Ok(written),
            Err(Failure::NotAStream(error) | Failure::Other(error)) => return Err(error),
        }
        if rest.is_empty() {
            return Ok(written);
        }
    }
}

/// Decodes one stream; bytes after it are ignored.
pub(super) fn decode_first(
    src: &[u8],
    dst: &mut [u8],
    stream: &mut impl Stream,
) -> Result<usize, DecodeError> {
    match decode_one(src, dst, stream) {
        Ok((_, produced)) => Ok(produced),
        Err(Failure::NotAStream(error) | Failure::Other(error)) => Err(error),
    }
}

enum Failure {
    NotAStream(DecodeError),
    Other(DecodeError),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Other(error)
    }
}

fn decode_one(
    src: &[u8],
    dst: &mut [u8],
    stream: &mut impl Stream,
) -> Result<(usize, usize), Failure> {
    let (mut consumed, mut produced, limit) = (0, 0, dst.len());
    loop {
        let mut probe = [0];
        let full = produced == limit;
        let space = match full {
            true => &mut probe[..],
            false => part_mut(dst, produced..limit)?,
        };
        let input = part(src, consumed..src.len())?;
        let step = stream.step(input, space).map_err(Failure::NotAStream)?;
        if full && step.produced > 0 {
            return Err(DecodeError::overflow(limit).into());
        }
        consumed += step.consumed;
        produced += step.produced;
        if step.ended {
            return Ok((consumed, produced));
        }
        if step.consumed == 0 && step.produced == 0 {
            return Err(DecodeError::corrupt("the stream is truncated").into());
        }
    }
}
