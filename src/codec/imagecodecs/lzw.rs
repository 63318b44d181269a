//! `imagecodecs_lzw`: LZW as in TIFF 6.0, section 13, the highest bits of each byte first.
//!
//! Bytes after the end code are ignored, and the end code may be missing, as in imagecodecs and libtiff.

use weezl::decode::{Configuration, Decoder};
use weezl::{BitOrder, LzwStatus};

use super::loose;
use crate::codec::error::DecodeError;
use crate::codec::stage::{Decode, Size};
use crate::codec::streams::{Step, Stream, decode_first};

/// Decodes `imagecodecs_lzw`.
#[derive(Debug)]
pub(in crate::codec) struct Lzw;

struct Codes(Decoder);

impl Stream for Codes {
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, DecodeError> {
        let result = self.0.decode_bytes(src, dst);
        let ended = match result.status {
            Ok(LzwStatus::Done) => true,
            Ok(LzwStatus::NoProgress) => src.is_empty(),
            Ok(LzwStatus::Ok) => false,
            Err(_) => return Err(DecodeError::corrupt("a code without a meaning")),
        };
        Ok(Step {
            consumed: result.consumed_in,
            produced: result.consumed_out,
            ended,
        })
    }
}

impl Decode for Lzw {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(loose(decoded))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        // The first code clears the table: 100000000, of which TIFF before 5.0 has the lowest bit first.
        if let [0, second, ..] = src
            && second & 1 == 1
        {
            let what = "codes in the order of bits of TIFF before 5.0, which is not supported";
            return Err(DecodeError::corrupt(what));
        }
        let configuration = Configuration::with_tiff_size_switch(BitOrder::Msb, 8);
        decode_first(src, dst, &mut Codes(configuration.build()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What imagecodecs 2026.3.6 makes of `LZW LZW LZW!`.
    const ENCODED: [u8; 12] = [128, 19, 11, 69, 113, 4, 10, 9, 6, 16, 192, 64];

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, String> {
        let mut dst = vec![0; limit];
        match Lzw.decode(src, &mut dst) {
            Ok(written) => Ok(dst[..written].to_vec()),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    #[test]
    fn the_end_code_may_be_missing_and_bytes_may_follow_it() {
        assert_eq!(decode(&ENCODED, 12).unwrap(), b"LZW LZW LZW!");
        let followed = [&ENCODED[..], b"junk"].concat();
        assert_eq!(decode(&followed, 12).unwrap(), b"LZW LZW LZW!");
        let cut = ENCODED.len() - 1;
        assert_eq!(decode(&ENCODED[..cut], 12).unwrap(), b"LZW LZW LZW!");
        assert_eq!(decode(&[], 12).unwrap(), b"");
    }

    #[test]
    fn too_much_output_wrong_codes_and_the_old_order_are_errors() {
        assert!(decode(&ENCODED, 11).unwrap_err().contains("more than 11"));
        // The table has no code 511 after the first.
        assert!(decode(&[0x80, 0x7f, 0xff], 12).is_err());
        assert!(decode(&[0, 1, 2, 3], 12).unwrap_err().contains("5.0"));
    }
}
