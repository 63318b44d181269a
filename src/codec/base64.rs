//! `base64` (RFC 4648), decoded as by Python's `standard_b64decode`: bytes outside the alphabet are skipped,
//! and the padding ends the text.

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeSliceError, Engine as _, alphabet};

use super::error::DecodeError;
use super::stage::{Decode, Size};

/// Decodes `base64`.
#[derive(Debug)]
pub(super) struct Base64;

const STRICT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

impl Decode for Base64 {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let text = decoded.try_map(|n| n.div_ceil(3).checked_mul(4))?;
        // Adds space for line ends.
        Some(Size::AtMost(
            text.compressed().bytes().saturating_add(text.bytes() / 32),
        ))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        if let Ok(written) = STRICT.decode_slice(src, dst) {
            return Ok(written);
        }
        match STRICT.decode_slice(canonical(src), dst) {
            Ok(written) => Ok(written),
            Err(DecodeSliceError::OutputSliceTooSmall) => Err(DecodeError::overflow(dst.len())),
            Err(error) => Err(DecodeError::corrupt(format!("base64: {error}"))),
        }
    }
}

/// Returns the digits up to the padding that completes a group of four, with that padding.
fn canonical(src: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(src.len());
    let mut pads = 0;
    for byte in src {
        match byte {
            b'=' => {
                pads += 1;
                let digits = text.len() % 4;
                if digits >= 2 && digits + pads >= 4 {
                    text.resize(text.len().next_multiple_of(4), b'=');
                    break;
                }
            }
            b'+' | b'/' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                pads = 0;
                text.push(*byte);
            }
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = Base64.decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    #[test]
    fn text_decodes_as_python_does() {
        assert_eq!(decode(b"aGVsbG8=", 5).unwrap(), b"hello");
        assert_eq!(decode(b"aGVs\nbG8=", 5).unwrap(), b"hello");
        assert_eq!(decode(b"aGVsbG8=tail", 5).unwrap(), b"hello");
        assert_eq!(decode(b"+/8A", 3).unwrap(), [0xfb, 0xff, 0]);
        assert_eq!(decode(b"/w==", 1).unwrap(), [0xff]);
        assert_eq!(decode(b"/x==", 1).unwrap(), [0xff]);
        assert_eq!(decode(b"aG=Vs", 3).unwrap(), b"hel");
        assert!(decode(b"aGVsbG8", 5).is_err());
        assert!(decode(b"aGVsbG8=", 4).is_err());
    }
}
