//! `packbits` of numcodecs: the number of padding bits, then bits, the highest bit first.

use super::error::DecodeError;
use super::stage::{Decode, Size};

/// Decodes `packbits` to one byte, 0 or 1, per bit.
#[derive(Debug)]
pub(super) struct PackBits;

impl Decode for PackBits {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        decoded.try_map(|n| n.div_ceil(8).checked_add(1))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        let Some((padding, packed)) = src.split_first() else {
            return Err(DecodeError::corrupt("the padding byte is missing"));
        };
        let count = packed
            .len()
            .checked_mul(8)
            .and_then(|bits| bits.checked_sub(usize::from(*padding)))
            .ok_or_else(|| DecodeError::corrupt(format!("{padding} bits of padding")))?;
        let dst = dst
            .get_mut(..count)
            .ok_or_else(|| DecodeError::overflow(limit))?;
        let (whole, rest) = dst.as_chunks_mut::<8>();
        for (bits, byte) in whole.iter_mut().zip(packed) {
            *bits = unpack(*byte);
        }
        if let Some(last) = packed.get(whole.len()) {
            rest.iter_mut()
                .zip(unpack(*last))
                .for_each(|(to, bit)| *to = bit);
        }
        Ok(count)
    }
}

/// Returns one byte per bit, the highest bit first.
fn unpack(byte: u8) -> [u8; 8] {
    // Each byte of the product has all bits. The mask keeps a different bit in each byte, and adding 0x7f
    // carries it to the top.
    let spread = u64::from(byte).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let carried = (spread & 0x7f7f_7f7f_7f7f_7f7f).wrapping_add(0x7f7f_7f7f_7f7f_7f7f) | spread;
    (carried >> 7 & 0x0101_0101_0101_0101).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_bytes_and_padding_must_fit() {
        let mut dst = [9; 12];
        assert_eq!(PackBits.decode(&[4, 0b1001_0000], &mut dst).unwrap(), 4);
        assert_eq!(dst[..5], [1, 0, 0, 1, 9]);
        assert_eq!(PackBits.decode(&[0, 0x81], &mut dst).unwrap(), 8);
        assert_eq!(dst[..8], [1, 0, 0, 0, 0, 0, 0, 1]);
        assert!(PackBits.decode(&[], &mut dst).is_err());
        assert!(PackBits.decode(&[9, 0], &mut dst).is_err());
        assert!(PackBits.decode(&[0, 0, 0], &mut dst).is_err());
    }
}
