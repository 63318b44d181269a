//! `bz2`: one or more bzip2 streams; the library verifies their checksums.

use bzip2::{Decompress, Status};

use super::error::DecodeError;
use super::stage::Decode;
use super::streams::{Step, Stream, decode_all};

/// The memory of a decoder in bytes, at most (bzip2(1), "MEMORY MANAGEMENT").
const MEMORY_BYTES: usize = 3_700_000;

/// Decodes `bz2`.
#[derive(Debug)]
pub(super) struct Bz2;

impl Decode for Bz2 {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        decode_all(src, dst, || Ok(Decompress::new(false)))
    }
}

impl Stream for Decompress {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the totals grow by no more than the lengths of the slices"
    )]
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, DecodeError> {
        let before = (self.total_in(), self.total_out());
        let status = self
            .decompress(src, dst)
            .map_err(|error| DecodeError::corrupt(format!("bzip2: {error}")))?;
        if status == Status::MemNeeded {
            return Err(DecodeError::Memory {
                needed: MEMORY_BYTES,
                limit: 0,
            });
        }
        Ok(Step {
            consumed: (self.total_in() - before.0) as usize,
            produced: (self.total_out() - before.1) as usize,
            ended: status == Status::StreamEnd,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python: `bz2.compress(b"hello")`.
    const HELLO: &[u8] = &[
        0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x19, 0x31, 0x65, 0x3d, 0x00,
        0x00, 0x00, 0x81, 0x00, 0x02, 0x44, 0xa0, 0x00, 0x21, 0x9a, 0x68, 0x33, 0x4d, 0x07, 0x33,
        0x8b, 0xb9, 0x22, 0x9c, 0x28, 0x48, 0x0c, 0x98, 0xb2, 0x9e, 0x80,
    ];

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = Bz2.decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    #[test]
    fn streams_follow_each_other_and_junk_after_them_is_ignored_as_python_does() {
        assert_eq!(decode(HELLO, 5).unwrap(), b"hello");
        assert_eq!(decode(&[HELLO, HELLO].concat(), 10).unwrap(), b"hellohello");
        assert_eq!(decode(&[HELLO, b"junk"].concat(), 5).unwrap(), b"hello");
        assert!(decode(&[HELLO, &HELLO[..20]].concat(), 99).is_err());
        assert!(decode(b"junk", 5).is_err());
    }

    #[test]
    fn truncation_surplus_and_flipped_bits_are_errors() {
        for n in 0..HELLO.len() {
            assert!(decode(&HELLO[..n], 5).is_err(), "{n}");
        }
        assert!(decode(HELLO, 4).is_err());
        let mut bad = HELLO.to_vec();
        bad[12] ^= 1;
        assert!(decode(&bad, 5).is_err());
    }
}
