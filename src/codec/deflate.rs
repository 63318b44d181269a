//! `zlib`, `gzip` and raw deflate (RFC 1950, 1952, 1951), decoded by libdeflate; gzip members after the first by zlib-rs.
//!
//! Bytes after the end of a zlib stream and zeros after a gzip member are ignored, as in Python's `zlib` and
//! `gzip`. Anything else after a gzip member is an error.

use std::cell::RefCell;
use std::io::Read as _;

use flate2::bufread::GzDecoder;
use libdeflater::{DecompressionError, Decompressor};

use super::byte_codec::ByteCodec;
use super::error::{DecodeError, part, part_mut};
use super::stage::Decode;

thread_local! {
    static INFLATE: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// Decodes `zlib`.
#[derive(Debug)]
pub(super) struct Zlib;

impl Decode for Zlib {
    fn byte_codec(&self) -> Option<ByteCodec> {
        Some(ByteCodec::Zlib)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        INFLATE
            .with_borrow_mut(|inflate| inflate.zlib_decompress(src, dst))
            .map_err(|error| inflated(error, "not a whole zlib stream", limit))
    }
}

/// Decodes deflate without a header (RFC 1951).
#[derive(Debug)]
pub(super) struct Deflate;

impl Decode for Deflate {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        INFLATE
            .with_borrow_mut(|inflate| inflate.deflate_decompress(src, dst))
            .map_err(|error| inflated(error, "not a whole deflate stream", limit))
    }
}

fn inflated(error: DecompressionError, what: &str, limit: usize) -> DecodeError {
    match error {
        DecompressionError::BadData => DecodeError::corrupt(what),
        DecompressionError::InsufficientSpace => DecodeError::overflow(limit),
    }
}

/// Decodes `gzip` with one or more members.
#[derive(Debug)]
pub(super) struct Gzip;

impl Decode for Gzip {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        match single_member(src, dst) {
            Some(written) => Ok(written),
            None => members(src, dst),
        }
    }
}

/// Decodes `src` if it provably consists of exactly one member.
///
/// libdeflate does not return the end of the member. The end is the end of `src` if the last eight bytes are
/// the checksum and size, and no byte sequence can begin a second member.
fn single_member(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    if has_second_header(src) {
        return None;
    }
    let (_, trailer) = src
        .split_last_chunk::<8>()
        .map(|(rest, last)| (rest, *last))?;
    let written = INFLATE
        .with_borrow_mut(|inflate| inflate.gzip_decompress(src, dst))
        .ok()?;
    let size = u32::try_from(written).ok()?.to_le_bytes();
    let checksum = libdeflater::crc32(dst.get(..written)?).to_le_bytes();
    (trailer == *[checksum, size].as_flattened()).then_some(written)
}

/// Returns whether the fixed bytes of a member's header occur after those of the first member.
fn has_second_header(src: &[u8]) -> bool {
    let mut headers = src.windows(4).skip(1);
    headers.any(|header| matches!(header, [0x1f, 0x8b, 8, flags] if flags & 0xe0 == 0))
}

fn members(src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
    let limit = dst.len();
    let mut written = 0;
    let mut rest = src;
    loop {
        let mut member = GzDecoder::new(rest);
        loop {
            let space = part_mut(dst, written..limit)?;
            let mut probe = [0];
            let full = space.is_empty();
            let into = if full { &mut probe[..] } else { space };
            match member.read(into) {
                Ok(0) => break,
                Ok(_) if full => return Err(DecodeError::overflow(limit)),
                Ok(n) => written += n,
                Err(error) => return Err(DecodeError::corrupt(format!("gzip member: {error}"))),
            }
        }
        rest = member.into_inner();
        let Some(next) = rest.iter().position(|byte| *byte != 0) else {
            return Ok(written);
        };
        rest = part(rest, next..rest.len())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO_ZLIB: &[u8] = &[
        0x78, 0x9c, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x06, 0x2c, 0x02, 0x15,
    ];
    const HELLO_GZIP: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10,
        0x36, 5, 0, 0, 0,
    ];

    fn decode(codec: &dyn Decode, src: &[u8], limit: usize) -> Result<Vec<u8>, String> {
        let mut dst = vec![0; limit];
        match codec.decode(src, &mut dst) {
            Ok(n) => Ok(dst[..n].to_vec()),
            Err(fault) => Err(format!("{fault:?}")),
        }
    }

    #[test]
    fn whole_streams_decode_and_every_truncation_is_an_error() {
        assert_eq!(decode(&Zlib, HELLO_ZLIB, 5).unwrap(), b"hello");
        assert_eq!(decode(&Gzip, HELLO_GZIP, 9).unwrap(), b"hello");
        let raw = &HELLO_ZLIB[2..HELLO_ZLIB.len() - 4];
        assert_eq!(decode(&Deflate, raw, 5).unwrap(), b"hello");
        assert!(decode(&Deflate, &raw[1..], 5).is_err());
        assert!(
            decode(&Deflate, raw, 4)
                .unwrap_err()
                .contains("more than 4")
        );
        for n in 0..HELLO_ZLIB.len() {
            assert!(decode(&Zlib, &HELLO_ZLIB[..n], 5).is_err(), "{n}");
        }
        for n in 0..HELLO_GZIP.len() {
            assert!(decode(&Gzip, &HELLO_GZIP[..n], 5).is_err(), "{n}");
        }
    }

    #[test]
    fn more_than_the_limit_is_an_error() {
        assert!(
            decode(&Zlib, HELLO_ZLIB, 4)
                .unwrap_err()
                .contains("more than 4")
        );
        assert!(
            decode(&Gzip, HELLO_GZIP, 4)
                .unwrap_err()
                .contains("more than 4")
        );
        let two = [HELLO_GZIP, HELLO_GZIP].concat();
        assert!(decode(&Gzip, &two, 5).unwrap_err().contains("more than 5"));
    }

    #[test]
    fn gzip_members_follow_each_other_and_zeros_may_follow_them() {
        let two = [HELLO_GZIP, HELLO_GZIP].concat();
        assert_eq!(decode(&Gzip, &two, 10).unwrap(), b"hellohello");
        assert_eq!(
            decode(&Gzip, &[HELLO_GZIP, &[0; 3]].concat(), 5).unwrap(),
            b"hello"
        );
        assert!(decode(&Gzip, &[HELLO_GZIP, b"junk"].concat(), 5).is_err());
        assert!(decode(&Gzip, &[HELLO_GZIP, &HELLO_GZIP[..11]].concat(), 50).is_err());
    }

    #[test]
    fn bytes_after_a_zlib_stream_are_ignored_as_python_does() {
        assert_eq!(
            decode(&Zlib, &[HELLO_ZLIB, b"junk"].concat(), 5).unwrap(),
            b"hello"
        );
    }

    #[test]
    fn checksums_are_verified() {
        for (codec, src) in [(&Zlib as &dyn Decode, HELLO_ZLIB), (&Gzip, HELLO_GZIP)] {
            for at in src.len() - 4..src.len() {
                let mut bad = src.to_vec();
                bad[at] ^= 1;
                assert!(decode(codec, &bad, 5).is_err());
            }
        }
    }
}
