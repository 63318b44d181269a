//! `astype` and the decoding side of `quantize`: numbers of another type.

use super::error::DecodeError;
use super::number::{BLOCK, Block, Number, NumberKind};
use super::stage::{Decode, Size};

/// Converts numbers, as numpy's `astype` does.
#[derive(Debug)]
pub(super) struct AsType {
    encoded: Number,
    decoded: Number,
}

impl AsType {
    /// Creates the codec; `None` for a conversion between complex and real numbers.
    pub(super) fn new(encoded: Number, decoded: Number) -> Option<Self> {
        let complex = |number: Number| number.kind == NumberKind::Complex;
        (complex(encoded) == complex(decoded)).then_some(Self {
            encoded: encoded.part(),
            decoded: decoded.part(),
        })
    }
}

/// Returns the encoded size of the numbers whose decoded size is `decoded_size`.
pub(super) fn resized(decoded_size: Size, encoded: Number, decoded: Number) -> Option<Size> {
    let (from, to) = (decoded.width as u64, encoded.width as u64);
    decoded_size.try_map(|n| match n.is_multiple_of(from) {
        true => (n / from).checked_mul(to),
        false => None,
    })
}

/// Reads the numbers of `src` block by block, and calls `write` with each block and its destination in `dst`.
/// Returns how many bytes were written.
pub(super) fn for_each_block(
    (src, encoded): (&[u8], Number),
    (dst, decoded): (&mut [u8], Number),
    mut write: impl FnMut(&mut Block, &mut [u8]),
) -> Result<usize, DecodeError> {
    let (length, width, limit) = (src.len(), encoded.width, dst.len());
    if !length.is_multiple_of(width) {
        return Err(DecodeError::corrupt(format!(
            "{length} bytes are not a multiple of {width}"
        )));
    }
    let written = (length / width).checked_mul(decoded.width);
    let dst = written
        .and_then(|written| dst.get_mut(..written))
        .ok_or_else(|| DecodeError::overflow(limit))?;
    let mut block = encoded.block();
    for (src, dst) in src
        .chunks(BLOCK * width)
        .zip(dst.chunks_mut(BLOCK * decoded.width))
    {
        encoded.read(src, &mut block);
        write(&mut block, dst);
    }
    Ok(dst.len())
}

impl Decode for AsType {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.encoded, self.decoded)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let to = self.decoded;
        for_each_block((src, self.encoded), (dst, to), |block, dst| {
            to.write(block, dst)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn astype(encoded: &str, decoded: &str) -> Option<AsType> {
        AsType::new(
            Number::parse(encoded).unwrap(),
            Number::parse(decoded).unwrap(),
        )
    }

    #[test]
    fn more_than_a_block_is_converted_and_odd_lengths_are_errors() {
        let codec = astype("<i2", ">f8").unwrap();
        let src: Vec<u8> = (0..1500i16).flat_map(|i| (i - 700).to_le_bytes()).collect();
        let expected: Vec<u8> = (0..1500)
            .flat_map(|i| f64::from(i - 700).to_be_bytes())
            .collect();
        let mut dst = vec![0; 12000];
        assert_eq!(codec.decode(&src, &mut dst).unwrap(), 12000);
        assert_eq!(dst, expected);
        assert!(codec.decode(&src[1..], &mut dst).is_err());
        assert!(codec.decode(&src, &mut dst[1..]).is_err());
        assert_eq!(codec.encoded_size(Size::Exact(16)), Some(Size::Exact(4)));
        assert_eq!(codec.encoded_size(Size::Exact(15)), None);
    }

    #[test]
    fn complex_numbers_become_complex_numbers_only() {
        let mut dst = [0; 16];
        let src = [1f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        assert_eq!(
            astype("<c8", "<c16")
                .unwrap()
                .decode(&src, &mut dst)
                .unwrap(),
            16
        );
        assert_eq!(
            dst.to_vec(),
            [1f64.to_le_bytes(), (-2f64).to_le_bytes()].concat()
        );
        assert!(astype("<c8", "<f8").is_none());
    }
}
