//! Concatenated streams in one chunk, for `bz2` and `lzma`.

use super::error::DecodeError;

/// One step of a decoder.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    pub(super) ended: bool,
}

/// A stream that is being decoded.
pub(super) trait Stream {
    /// Reads some of `src` and writes some of `dst`.
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, DecodeError>;
}

/// Decodes all streams. Bytes after the first stream that are not a stream are ignored, as in
/// Python's `bz2.decompress` and `lzma.decompress`.
pub(super) fn decode_all<S: Stream>(
    src: &[u8],
    dst: &mut [u8],
    start: impl Fn() -> Result<S, DecodeError>,
) -> Result<usize, DecodeError> {
    let mut rest = src;
    let mut written = 0;
    loop {
        let space = dst.get_mut(written..).unwrap_or_default();
        match decode_one(rest, space, &mut start()?) {
            Ok((consumed, produced)) => {
                written += produced;
                rest = rest.get(consumed..).unwrap_or_default();
            }
            Err(Failure::NotAStream(_)) if rest.len() < src.len() => return Ok(written),
            Err(Failure::NotAStream(fault) | Failure::TruncatedOrTooLong(fault)) => {
                return Err(fault);
            }
        }
        if rest.is_empty() {
            return Ok(written);
        }
    }
}

enum Failure {
    NotAStream(DecodeError),
    TruncatedOrTooLong(DecodeError),
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
        let space = if full {
            &mut probe[..]
        } else {
            dst.get_mut(produced..).unwrap_or_default()
        };
        let input = src.get(consumed..).unwrap_or_default();
        let step = stream.step(input, space).map_err(Failure::NotAStream)?;
        if full && step.produced > 0 {
            return Err(Failure::TruncatedOrTooLong(DecodeError::overflow(limit)));
        }
        consumed += step.consumed;
        produced += step.produced;
        if step.ended {
            return Ok((consumed, produced));
        }
        if step.consumed == 0 && step.produced == 0 {
            let fault = DecodeError::corrupt("the stream is truncated");
            return Err(Failure::TruncatedOrTooLong(fault));
        }
    }
}
