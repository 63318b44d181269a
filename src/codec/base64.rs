//! `base64` (RFC 4648), read as Python's `standard_b64decode` does: bytes outside the alphabet are
//! skipped, and the padding ends the text.

use super::error::Fault;
use super::stage::{Convert, Size};

/// Undoes `base64`.
#[derive(Debug)]
pub(super) struct Base64;

impl Convert for Base64 {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let text = decoded.try_map(|n| n.div_ceil(3).checked_mul(4))?;
        // Room for line ends.
        Some(Size::AtMost(
            text.compressed().bytes().saturating_add(text.bytes() / 32),
        ))
    }

    fn convert(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, Fault> {
        let limit = dst.len();
        let mut written = 0;
        // Groups of four digits first, up to the first byte that is something else.
        let mut groups = src.as_chunks::<4>().0.iter();
        let whole = dst.as_chunks_mut::<3>().0.iter_mut().zip(&mut groups);
        let mut decoded = 0;
        for (to, group) in whole {
            let digits = group.map(|byte| DIGITS[usize::from(byte)]);
            if digits.contains(&NO_DIGIT) {
                break;
            }
            let bits = digits
                .iter()
                .fold(0, |bits, digit| bits << 6 | u32::from(*digit));
            let [_, a, b, c] = bits.to_be_bytes();
            *to = [a, b, c];
            decoded += 1;
        }
        let src = src.get(decoded * 4..).unwrap_or_default();
        written += decoded * 3;
        let mut put = |byte: u8| match dst.get_mut(written) {
            Some(to) => {
                *to = byte;
                written += 1;
                Ok(())
            }
            None => Err(Fault::overflow(limit)),
        };
        let (mut bits, mut digits, mut pads) = (0u32, 0, 0);
        for byte in src {
            if *byte == b'=' {
                pads += 1;
                if digits >= 2 && digits + pads >= 4 {
                    digits = 0;
                    break;
                }
                continue;
            }
            let Some(digit) = digit(*byte) else {
                continue;
            };
            pads = 0;
            bits = bits << 6 | u32::from(digit);
            digits = (digits + 1) % 4;
            match digits {
                2 => put(low_byte(bits >> 4))?,
                3 => put(low_byte(bits >> 2))?,
                0 => put(low_byte(bits))?,
                _ => {}
            }
        }
        if digits != 0 {
            return Err(Fault::corrupt("base64 text is cut off"));
        }
        Ok(written)
    }
}

fn low_byte(bits: u32) -> u8 {
    bits.to_le_bytes()[0]
}

const NO_DIGIT: u8 = 0xff;

static DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut byte = 0u8;
    loop {
        if let Some(digit) = digit(byte) {
            digits[byte as usize] = digit;
        }
        if byte == 0xff {
            break digits;
        }
        byte += 1;
    }
};

const fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
        let mut dst = vec![0; limit];
        let n = Base64.convert(src, &mut dst)?;
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
        assert!(decode(b"aGVsbG8", 5).is_err());
        assert!(decode(b"aGVsbG8=", 4).is_err());
    }
}
