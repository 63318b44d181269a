//! `lz4` of N5, a name for three formats. n5-java writes a stream of `LZ4BlockOutputStream` (lz4-java),
//! zarr-python the framing of numcodecs, and z5 one LZ4 block without a size. The stream begins with magic
//! bytes, which as a size of numcodecs would exceed a gigabyte. The size of numcodecs equals the size of the
//! elements, and only the configuration of numcodecs has `acceleration`.
//!
//! A stream consists of blocks with a header of 21 bytes: magic, a token with method and block size, and, as
//! little-endian words, compressed size, decoded size and checksum. An empty block ends the stream.

use super::error::{DecodeError, part, part_mut, slice, split_head};
use super::lz4::{Lz4, decode_block};
use super::stage::Decode;

const MAGIC: [u8; 8] = *b"LZ4Block";
/// The method of a block, in the high bits of its token.
const STORED: u8 = 0x10;
const COMPRESSED: u8 = 0x20;
/// The low bits of the token are the binary logarithm of the block size, minus this.
const LEVEL_BASE: u32 = 10;
/// The seed of lz4-java, and the bits of the hash that lz4-java keeps.
const SEED: u32 = 0x9747_b28c;
const CHECKSUM_BITS: u32 = 0x0fff_ffff;

/// Decodes `lz4` of N5 to exactly the size of the output.
#[derive(Debug)]
pub(super) struct N5Lz4 {
    /// Whether the configuration is one of numcodecs.
    pub(super) is_of_numcodecs: bool,
}

impl Decode for N5Lz4 {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        if src.starts_with(&MAGIC) {
            return decode_stream(src, dst);
        }
        let size = src
            .first_chunk()
            .map(|size| u32::from_le_bytes(*size) as usize);
        match self.is_of_numcodecs || size == Some(dst.len()) {
            true => Lz4.decode(src, dst),
            false => decode_block(src, dst).map(|()| dst.len()),
        }
    }
}

fn decode_stream(src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
    let (mut src, mut written) = (src, 0);
    loop {
        let (magic, rest) = split_head(src)?;
        let ([token], rest) = split_head(rest)?;
        let (compressed, rest) = split_head(rest)?;
        let (decoded, rest) = split_head(rest)?;
        let (checksum, rest) = split_head(rest)?;
        let compressed = u32::from_le_bytes(compressed) as usize;
        let decoded = u32::from_le_bytes(decoded) as usize;
        let checksum = u32::from_le_bytes(checksum);
        if magic != MAGIC {
            return Err(DecodeError::corrupt("a block without its magic bytes"));
        }
        if decoded == 0 {
            return match (compressed, checksum, rest) {
                (0, 0, []) => Ok(written),
                (0, 0, _) => Err(DecodeError::corrupt("bytes after the last block")),
                _ => Err(DecodeError::corrupt("a last block that is not empty")),
            };
        }
        let limit = dst.len() - written;
        let block_bytes = 1_usize << (LEVEL_BASE + u32::from(token & 0x0f));
        if decoded > limit.min(block_bytes) {
            return Err(DecodeError::declared_size(
                decoded as u64,
                limit.min(block_bytes),
            ));
        }
        let body = slice(rest, 0..compressed)?;
        let target = part_mut(dst, written..written + decoded)?;
        match token & 0xf0 {
            STORED if compressed == decoded => target.copy_from_slice(body),
            STORED => {
                let what = format!("{compressed} stored bytes of {decoded}");
                return Err(DecodeError::corrupt(what));
            }
            COMPRESSED => decode_block(body, target)?,
            method => {
                let what = format!("compression method {:#x}", method >> 4);
                return Err(DecodeError::corrupt(what));
            }
        }
        let computed = xxh32(target, SEED) & CHECKSUM_BITS;
        if computed != checksum {
            return Err(DecodeError::corrupt(format!(
                "the checksum is {computed:08x}, {checksum:08x} is stored"
            )));
        }
        written += decoded;
        src = part(rest, compressed..rest.len())?;
    }
}

const PRIMES: [u32; 5] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
];

/// Returns the XXH32 hash (xxHash specification 0.2.0, "XXH32 Algorithm Description").
fn xxh32(bytes: &[u8], seed: u32) -> u32 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut hash = match stripes {
        [] => seed.wrapping_add(p5),
        _ => {
            let mut lanes = [
                seed.wrapping_add(p1).wrapping_add(p2),
                seed.wrapping_add(p2),
                seed,
                seed.wrapping_sub(p1),
            ];
            for stripe in stripes {
                let (words, _) = stripe.as_chunks::<4>();
                for (lane, word) in lanes.iter_mut().zip(words) {
                    let word = u32::from_le_bytes(*word).wrapping_mul(p2);
                    *lane = lane.wrapping_add(word).rotate_left(13).wrapping_mul(p1);
                }
            }
            let rotated = lanes.iter().zip([1, 7, 12, 18]);
            rotated.fold(0, |sum: u32, (lane, bits)| {
                sum.wrapping_add(lane.rotate_left(bits))
            })
        }
    };
    // A block is shorter than 2^32 bytes.
    hash = hash.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(p3);
        hash = hash.wrapping_add(word).rotate_left(17).wrapping_mul(p4);
    }
    for byte in rest {
        let byte = u32::from(*byte).wrapping_mul(p5);
        hash = hash.wrapping_add(byte).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(p2);
    hash = (hash ^ hash >> 13).wrapping_mul(p3);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(token: u8, body: &[u8], decoded: &[u8]) -> Vec<u8> {
        let word = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
        let checksum = (xxh32(decoded, SEED) & CHECKSUM_BITS).to_le_bytes();
        let sizes = [word(body.len()), word(decoded.len()), checksum].concat();
        [&MAGIC[..], &[token], &sizes, body].concat()
    }

    /// Returns the block that ends a stream.
    fn end() -> Vec<u8> {
        [&MAGIC[..], &[STORED | 6], &[0; 12]].concat()
    }

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        decode_with(false, src, limit)
    }

    fn decode_with(
        is_of_numcodecs: bool,
        src: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let written = N5Lz4 { is_of_numcodecs }.decode(src, &mut dst)?;
        dst.truncate(written);
        Ok(dst)
    }

    #[test]
    fn the_hash_is_that_of_the_reference_implementation() {
        for (text, seed, expected) in [
            (&b""[..], 0, 0x02cc_5d05),
            (b"abc", 0, 0x32d1_53ff),
            (b"Nobody inspects the spammish repetition", 0, 0xe229_3b2f),
        ] {
            assert_eq!(xxh32(text, seed), expected, "{text:?}");
        }
    }

    #[test]
    fn blocks_of_a_stream_follow_each_other() {
        let packed = lz4_flex::block::compress(&[b'a'; 1000]);
        let stream = [
            block(COMPRESSED | 6, &packed, &[b'a'; 1000]),
            block(STORED, b"hello", b"hello"),
            end(),
        ]
        .concat();
        let expected = [&[b'a'; 1000][..], b"hello"].concat();
        assert_eq!(decode(&stream, 1005).unwrap(), expected);
        assert_eq!(decode(&end(), 0).unwrap(), b"");
        for length in 0..stream.len() {
            assert!(decode(&stream[..length], 1005).is_err(), "{length}");
        }
        assert!(decode(&stream, 1004).is_err());
        assert!(decode(&[&stream[..], b"x"].concat(), 1005).is_err());
    }

    #[test]
    fn chunks_of_numcodecs_and_of_z5_have_the_same_name() {
        let chunk = [
            24, 0, 0, 0, 0x1f, b'a', 1, 0, 0, 0x40, b'a', b'a', b'a', b'a',
        ];
        for is_of_numcodecs in [true, false] {
            assert_eq!(
                decode_with(is_of_numcodecs, &chunk, 24).unwrap(),
                [b'a'; 24]
            );
        }
        assert_eq!(decode(&chunk[4..], 24).unwrap(), [b'a'; 24]);
        assert!(decode_with(true, &chunk[4..], 24).is_err());
        for end in 0..chunk.len() - 4 {
            assert!(decode(&chunk[4..][..end], 24).is_err(), "{end}");
        }
        for limit in [23, 25] {
            assert!(decode(&chunk[4..], limit).is_err());
            assert!(decode_with(true, &chunk, limit.min(23)).is_err());
        }
    }

    #[test]
    fn wrong_sizes_methods_and_checksums_are_errors() {
        let message = |src: &[u8], limit| format!("{:?}", decode(src, limit).unwrap_err());
        let good = [block(STORED, b"hello", b"hello"), end()].concat();
        for (at, value, expected) in [
            (8, 0x30, "compression method 0x3"),
            (9, 4, "4 stored bytes of 5"),
            (16, 0x7f, "claims 2130706437 bytes, at most 5 expected"),
            (17, 0xff, "the checksum is"),
            (21, b'j', "the checksum is"),
            (26, b'X', "a block without its magic bytes"),
            (35, 1, "a last block that is not empty"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            let found = message(&bad, 5);
            assert!(found.contains(expected), "{at}: {found}");
        }
        // A block must not be longer than its token declares.
        let long = [block(STORED, &[0; 1025], &[0; 1025]), end()].concat();
        assert!(message(&long, 2000).contains("at most 1024 expected"));
    }
}
