//! `blosc` (version 1 of its format), decoded by C-Blosc after a check of the header.
//!
//! The header of the chunk gives the compressor, the shuffle and the type size; those of the metadata are
//! ignored. The chunk must be exactly as long as its header declares.
#![allow(unsafe_code, reason = "the library is C")]

use super::error::{DecodeError, head};
use super::stage::Decode;

const HEADER_BYTES: u32 = 16;
const FORMAT_VERSION: u8 = 2;
/// Flag bits: stored without compression, and reserved.
const FLAG_COPIED: u8 = 0x02;
const FLAG_RESERVED: u8 = 0x08;
/// `BLOSC_MAX_BUFFERSIZE` and `BLOSC_MAX_BLOCKSIZE` of C-Blosc 1.21.
const MAX_BUFFER_BYTES: u32 = 0x7fff_ffff - 16;
const MAX_BLOCK_BYTES: u32 = (0x7fff_ffff - 255 * 4) / 3;

/// Decodes `blosc`.
#[derive(Debug)]
pub(super) struct Blosc;

#[derive(Debug)]
struct Header {
    flags: u8,
    type_bytes: u8,
    decoded_bytes: usize,
    block_bytes: u32,
}

impl Header {
    /// Validates all header fields that C-Blosc trusts.
    fn parse(src: &[u8], limit: usize) -> Result<Self, DecodeError> {
        let header: [u8; HEADER_BYTES as usize] = head(src)?;
        let [version, _, flags, type_bytes, rest @ ..] = header;
        let word = |at: usize| {
            rest.iter()
                .skip(at)
                .take(4)
                .rev()
                .fold(0, |n, b| n << 8 | u32::from(*b))
        };
        let (decoded, block_bytes, encoded) = (word(0), word(4), word(8));
        if version != FORMAT_VERSION {
            return Err(DecodeError::corrupt(format!(
                "blosc format {version}, expected 2"
            )));
        }
        if flags & FLAG_RESERVED != 0 {
            return Err(DecodeError::corrupt(format!(
                "reserved blosc flags {flags:#x}"
            )));
        }
        if u64::from(encoded) != src.len() as u64 {
            let found = src.len();
            return Err(DecodeError::corrupt(format!(
                "the header says {encoded} encoded bytes, there are {found}"
            )));
        }
        if u64::from(decoded) > limit as u64 || decoded > MAX_BUFFER_BYTES {
            return Err(DecodeError::declared_size(u64::from(decoded), limit));
        }
        let header = Self {
            flags,
            type_bytes,
            decoded_bytes: decoded as usize,
            block_bytes,
        };
        if decoded > 0 {
            header.check_blocks(decoded, encoded)?;
        }
        Ok(header)
    }

    fn check_blocks(&self, decoded: u32, encoded: u32) -> Result<(), DecodeError> {
        let block = self.block_bytes;
        if block == 0 || block > decoded || block > MAX_BLOCK_BYTES {
            return Err(DecodeError::corrupt(format!(
                "blosc blocks of {block} bytes in {decoded}"
            )));
        }
        if self.type_bytes == 0 {
            return Err(DecodeError::corrupt("blosc elements of 0 bytes"));
        }
        let room = encoded
            .checked_sub(HEADER_BYTES)
            .ok_or_else(|| DecodeError::internal(format!("a header in {encoded} bytes")))?;
        if self.flags & FLAG_COPIED != 0 {
            if room != decoded {
                return Err(DecodeError::corrupt(format!(
                    "{room} bytes stored for {decoded}"
                )));
            }
        } else if decoded.div_ceil(block) > room / 4 {
            return Err(DecodeError::corrupt("the table of blosc blocks is cut off"));
        }
        Ok(())
    }
}

impl Decode for Blosc {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let header = Header::parse(src, dst.len())?;
        let expected = header.decoded_bytes;
        if expected == 0 {
            return Ok(0);
        }
        let Some(dst) = dst.get_mut(..expected) else {
            return Err(DecodeError::declared_size(expected as u64, dst.len()));
        };
        // SAFETY: `src` is readable for the encoded length in its header, which `Header::parse` compared with
        // `src.len()`. `dst` is writable for the decoded length in the header, which is passed as the limit.
        // A shared and an exclusive borrow do not overlap. The function is documented to be memory safe for
        // any content under these conditions and to need no initialisation. With one thread, it starts no
        // thread.
        let decoded = unsafe {
            blosc_src::blosc_decompress_ctx(
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                expected,
                1,
            )
        };
        match usize::try_from(decoded) {
            Ok(decoded) if decoded == expected => Ok(expected),
            _ => Err(DecodeError::corrupt(format!(
                "C-Blosc says {decoded}, expected {expected}"
            ))),
        }
    }

    fn working_bytes(&self, src: &[u8]) -> usize {
        // Two blocks, whose size the writer chose.
        Header::parse(src, usize::MAX).map_or(0, |header| header.block_bytes as usize * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-Blosc 1.21: snappy, shuffle, 4-byte elements, the integers 0 to 255.
    const SNAPPY: &[u8] = include_bytes!("blosc/snappy.bin");

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, String> {
        let mut dst = vec![0; limit];
        match Blosc.decode(src, &mut dst) {
            Ok(n) => Ok(dst[..n].to_vec()),
            Err(fault) => Err(format!("{fault:?}")),
        }
    }

    fn integers() -> Vec<u8> {
        (0..256u32).flat_map(u32::to_le_bytes).collect()
    }

    /// Returns a chunk that is stored without compression.
    fn copied(payload: &[u8]) -> Vec<u8> {
        let n = u32::try_from(payload.len()).unwrap();
        let mut chunk = vec![2, 1, 0x02, 4];
        for word in [n, n, n + 16] {
            chunk.extend(word.to_le_bytes());
        }
        chunk.extend(payload);
        chunk
    }

    #[test]
    fn snappy_and_stored_chunks_decode() {
        assert_eq!(decode(SNAPPY, 1024).unwrap(), integers());
        assert_eq!(decode(&copied(b"abcdefgh"), 8).unwrap(), b"abcdefgh");
    }

    #[test]
    fn every_truncation_and_every_surplus_is_an_error() {
        for n in 0..SNAPPY.len() {
            assert!(decode(&SNAPPY[..n], 1024).is_err(), "{n}");
        }
        assert!(decode(&[SNAPPY, b"x"].concat(), 1024).is_err());
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused_before_the_call() {
        let claim = |at: usize, word: u32| {
            let mut chunk = SNAPPY.to_vec();
            chunk[at..at + 4].copy_from_slice(&word.to_le_bytes());
            decode(&chunk, 1024).unwrap_err()
        };
        assert!(claim(4, 0x7fff_ffef).contains("claims 2147483631 bytes"));
        assert!(claim(8, 0).contains("blocks of 0"));
        assert!(claim(8, 1025).contains("blocks of 1025"));
        assert!(claim(8, 1).contains("table"));
        assert!(claim(12, 15).contains("encoded bytes"));
        let with = |at: usize, byte: u8| {
            let mut chunk = SNAPPY.to_vec();
            chunk[at] = byte;
            decode(&chunk, 1024).unwrap_err()
        };
        assert!(with(0, 3).contains("format 3"));
        assert!(with(2, 0x09).contains("reserved"));
        assert!(with(3, 0).contains("0 bytes"));
        assert!(decode(&copied(b"abc")[..18], 3).is_err());
    }

    #[test]
    fn flipped_bits_never_write_past_the_limit() {
        for at in 0..SNAPPY.len() * 8 {
            let mut bad = SNAPPY.to_vec();
            bad[at / 8] ^= 1 << (at % 8);
            if let Ok(bytes) = decode(&bad, 1024) {
                assert!(bytes.len() <= 1024);
            }
        }
    }
}
