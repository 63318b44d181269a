//! The last step for data types that NumPy lacks: converts each number to the next type that NumPy has.

use super::error::DecodeError;
use super::reals::{Words, resized};
use super::stage::{Decode, Size};
use crate::zarr::Fixed;
use crate::zarr::real::{Real, Rounding};

/// Converts numbers to a type that holds all of their values.
#[derive(Debug)]
pub(super) struct Widen {
    from: Real,
    to: Real,
    /// The result for each word of a one-byte type; empty for larger types.
    table: Vec<u64>,
}

impl Widen {
    /// Creates the step from a type to its [wider type](Fixed::widened); `None` if the type has none.
    pub(super) fn new(stored: &Fixed) -> Option<Self> {
        let wide = stored.widened()?;
        let (from, to) = (Real::part_of(stored)?, Real::part_of(&wide)?);
        let table = match from.bits() {
            ..=8 => (0..=u8::MAX)
                .map(|word| convert(from, to, word.into()))
                .collect(),
            _ => Ok(Vec::new()),
        };
        let table = table.ok()?;
        Some(Self { from, to, table })
    }
}

fn convert(from: Real, to: Real, word: u64) -> Result<u64, DecodeError> {
    let wide = to.round(from.read(word), Rounding::default());
    wide.map_err(|_| DecodeError::internal("a type that is not wide enough"))
}

impl Decode for Widen {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        resized(decoded, self.from, self.to)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let words = Words::new(src, self.from, dst, self.to)?;
        words.convert(|word| {
            let place = usize::try_from(word).unwrap_or(usize::MAX);
            match self.table.get(place) {
                Some(wide) if !self.table.is_empty() => Ok(*wide),
                _ => convert(self.from, self.to, word),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{DataType, data_type::v3};

    fn widened(name: &str, src: &[u8]) -> (String, Vec<u8>) {
        let Ok(DataType::Fixed(fixed)) = v3::parse(&name.into()) else {
            panic!("{name}");
        };
        let wide = fixed.widened().unwrap();
        let codec = Widen::new(&fixed).unwrap();
        let mut dst = vec![0xa5; src.len() / fixed.size_bytes * wide.size_bytes];
        assert_eq!(codec.decode(src, &mut dst).unwrap(), dst.len());
        (wide.numpy_descr(), dst)
    }

    #[test]
    fn numbers_become_those_of_the_next_type_of_numpy() {
        let half = |value: f32| half::f16::from_f32(value).to_le_bytes();
        for (name, src, descr, expected) in [
            ("int4", vec![0x07, 0x38, 0xff], "|i1", vec![7, 0xf8, 0xff]),
            ("uint2", vec![0x07], "|u1", vec![3]),
            (
                "bfloat16",
                vec![0xc0, 0xbf],
                "<f4",
                (-1.5_f32).to_le_bytes().to_vec(),
            ),
            ("float8_e4m3", vec![0x38], "<f2", half(1.0).to_vec()),
            (
                "float8_e5m2fnuz",
                vec![0x01],
                "<f2",
                half(2_f32.powi(-17)).to_vec(),
            ),
            ("float4_e2m1fn", vec![0xf7], "<f2", half(6.0).to_vec()),
            (
                "float8_e8m0fnu",
                vec![0x00],
                "<f4",
                2_f32.powi(-127).to_le_bytes().to_vec(),
            ),
            (
                "complex_float8_e5m2",
                vec![0x3c, 0xbc],
                "<c8",
                [1_f32, -1.0].map(f32::to_le_bytes).concat(),
            ),
            (
                "complex_bfloat16",
                vec![0x80, 0x3f, 0, 0],
                "<c8",
                [1_f32, 0.0].map(f32::to_le_bytes).concat(),
            ),
        ] {
            assert_eq!(widened(name, &src), (descr.to_owned(), expected), "{name}");
        }
    }

    #[test]
    fn every_word_of_every_such_type_has_a_wider_one() {
        for name in [
            "int2",
            "int4",
            "uint2",
            "uint4",
            "float4_e2m1fn",
            "float6_e2m3fn",
            "float6_e3m2fn",
            "float8_e3m4",
            "float8_e4m3",
            "float8_e4m3fn",
            "float8_e4m3b11fnuz",
            "float8_e4m3fnuz",
            "float8_e5m2",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "bfloat16",
            "complex_float16",
            "complex_float8_e8m0fnu",
            "complex_float4_e2m1fn",
        ] {
            let words: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let (_, bytes) = widened(name, &words);
            assert!(bytes.len() >= words.len(), "{name}");
        }
    }
}
