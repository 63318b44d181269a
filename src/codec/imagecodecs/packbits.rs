//! `imagecodecs_packbits`: runs of bytes, as in TIFF 6.0, section 9. It is not the `packbits` of numcodecs.

use super::loose;
use crate::codec::error::{DecodeError, part_mut, slice};
use crate::codec::stage::{Decode, Size};

/// Decodes `imagecodecs_packbits`.
#[derive(Debug)]
pub(in crate::codec) struct PackBits;

impl Decode for PackBits {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(loose(decoded))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (mut rest, mut written) = (src, 0);
        while let Some((header, after)) = rest.split_first() {
            let (count, encoded) = match header.cast_signed() {
                // No run; some encoders write it.
                -128 => (0, 0),
                repeats @ ..0 => (usize::from(repeats.unsigned_abs()) + 1, 1),
                _ => (usize::from(*header) + 1, usize::from(*header) + 1),
            };
            let bytes = slice(after, 0..encoded)?;
            if count > dst.len() - written {
                return Err(DecodeError::overflow(dst.len()));
            }
            let to = part_mut(dst, written..written + count)?;
            match bytes {
                [byte] => to.fill(*byte),
                bytes => to.copy_from_slice(bytes),
            }
            written += count;
            rest = slice(after, encoded..after.len())?;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_and_repeated_runs_fill_the_output_and_no_more() {
        // The example of the TIFF specification.
        let encoded = [
            0xfe, 0xaa, 2, 0x80, 0, 0x2a, 0xfd, 0xaa, 3, 0x80, 0, 0x2a, 0x22, 0xf7, 0xaa,
        ];
        let mut expected = vec![0xaa, 0xaa, 0xaa, 0x80, 0, 0x2a];
        expected.extend([0xaa; 4]);
        expected.extend([0x80, 0, 0x2a, 0x22]);
        expected.extend([0xaa; 10]);
        let mut dst = [0; 24];
        assert_eq!(PackBits.decode(&encoded, &mut dst).unwrap(), 24);
        assert_eq!(dst[..], expected);
        assert!(PackBits.decode(&encoded, &mut dst[..23]).is_err());
        let with_nothing = [&[0x80][..], &encoded, &[0x80, 0x80]].concat();
        assert_eq!(PackBits.decode(&with_nothing, &mut dst).unwrap(), 24);
        assert_eq!(PackBits.decode(&[], &mut dst).unwrap(), 0);
        for cut in [&[2, 1, 2][..], &[0xfe], &[0]] {
            assert!(PackBits.decode(cut, &mut dst).is_err(), "{cut:?}");
        }
    }
}
