//! The predictors of TIFF: rows of numbers as differences to their neighbours (TIFF 6.0, section 14, and Adobe's
//! Technical Note 3 for floats).
//!
//! Differences are those of the bits of the numbers, also of floats, and wrap. imagecodecs is the reference.

use std::ops::Range;

use crate::codec::config::Config;
use crate::codec::error::{CodecError, DecodeError, part, part_mut};
use crate::codec::number::{Number, NumberKind};
use crate::codec::scratch::Scratch;
use crate::codec::stage::{Decode, Size};
use crate::zarr::ByteOrder;

/// The rows of an array whose numbers depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec) struct Rows {
    /// The numbers of a row.
    numbers: usize,
    /// The number of numbers from one to the next that depends on it.
    distance: usize,
}

impl Rows {
    /// Returns the rows along an axis of an array; a negative axis counts from the last.
    ///
    /// # Errors
    /// The array has no such axis, or its size overflows.
    pub(in crate::codec) fn along(
        config: Config<'_>,
        shape: &[u64],
        axis: i64,
    ) -> Result<Self, CodecError> {
        let rank = i64::try_from(shape.len()).unwrap_or(i64::MAX);
        let from_start = if axis < 0 { axis + rank } else { axis };
        let start = usize::try_from(from_start).ok();
        let lengths = start.and_then(|start| shape.get(start..)?.split_first());
        let Some((length, inner)) = lengths else {
            return Err(config.invalid(format!("axis is {axis}, the chunk has {rank} axes")));
        };
        let size = |axes: &[u64]| {
            let product = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(*axis))?;
            usize::try_from(product).ok()
        };
        let distance = size(inner);
        let numbers = distance.and_then(|inner| inner.checked_mul(size(&[*length])?));
        match (numbers, distance) {
            (Some(numbers), Some(distance)) => Ok(Self { numbers, distance }),
            _ => Err(config.invalid(format!("the shape {shape:?} overflows"))),
        }
    }

    /// Returns rows whose numbers depend on those `count` times as far away.
    fn farther(self, count: usize) -> Self {
        Self {
            distance: self.distance.saturating_mul(count),
            ..self
        }
    }
}

/// Decodes `imagecodecs_delta`, `imagecodecs_floatpred` and `HorizontalDeltaCodec`.
#[derive(Debug)]
pub(in crate::codec) struct Predictor {
    rows: Rows,
    number: Number,
    /// Whether differences are those of bytes: of the highest bytes of all numbers of a row, then of the next bytes.
    has_planes: bool,
}

impl Predictor {
    /// Returns the decoder of differences of numbers (`Predictor=2`).
    ///
    /// # Errors
    /// The numbers are not integers or floats.
    pub(in crate::codec) fn of_numbers(
        config: Config<'_>,
        rows: Rows,
        number: Number,
    ) -> Result<Self, CodecError> {
        match config.u64("dist")?.unwrap_or(1) {
            1 => Self::new(config, rows, number, false),
            // imagecodecs has no decoder either.
            dist => Err(CodecError::unsupported(format!(
                "{} with dist {dist}",
                config.codec
            ))),
        }
    }

    /// Returns the decoder of differences of the bytes of numbers (`Predictor=3`).
    ///
    /// # Errors
    /// The numbers are not integers or floats, or the distance is none of TIFF.
    pub(in crate::codec) fn of_bytes(
        config: Config<'_>,
        rows: Rows,
        number: Number,
    ) -> Result<Self, CodecError> {
        let dist = config.u64("dist")?.unwrap_or(1);
        match (dist, usize::try_from(dist)) {
            (1, Ok(dist)) => Self::new(config, rows.farther(dist), number, true),
            (2 | 4, Ok(dist)) if rows.distance == 1 => {
                Self::new(config, rows.farther(dist), number, true)
            }
            _ => Err(CodecError::unsupported(format!(
                "{} with dist {dist}",
                config.codec
            ))),
        }
    }

    fn new(
        config: Config<'_>,
        rows: Rows,
        number: Number,
        has_planes: bool,
    ) -> Result<Self, CodecError> {
        use NumberKind::{Float, Int, UInt};
        match number.kind {
            Int | UInt | Float => Ok(Self {
                rows,
                number,
                has_planes,
            }),
            _ => Err(CodecError::unsupported(format!(
                "{} of {}",
                config.codec,
                number.to_fixed().numpy_descr()
            ))),
        }
    }

    fn row_bytes(&self) -> Option<usize> {
        self.rows.numbers.checked_mul(self.number.width)
    }

    /// Adds the numbers of a row.
    fn add(&self, row: &mut [u8]) {
        let distance = self.rows.distance;
        match (self.number.width, self.number.order) {
            (1, _) => accumulate(
                row,
                distance,
                u8::from_le_bytes,
                u8::wrapping_add,
                u8::to_le_bytes,
            ),
            (2, ByteOrder::Little) => accumulate(
                row,
                distance,
                u16::from_le_bytes,
                u16::wrapping_add,
                u16::to_le_bytes,
            ),
            (2, ByteOrder::Big) => accumulate(
                row,
                distance,
                u16::from_be_bytes,
                u16::wrapping_add,
                u16::to_be_bytes,
            ),
            (4, ByteOrder::Little) => accumulate(
                row,
                distance,
                u32::from_le_bytes,
                u32::wrapping_add,
                u32::to_le_bytes,
            ),
            (4, ByteOrder::Big) => accumulate(
                row,
                distance,
                u32::from_be_bytes,
                u32::wrapping_add,
                u32::to_be_bytes,
            ),
            (_, ByteOrder::Little) => accumulate(
                row,
                distance,
                u64::from_le_bytes,
                u64::wrapping_add,
                u64::to_le_bytes,
            ),
            (_, ByteOrder::Big) => accumulate(
                row,
                distance,
                u64::from_be_bytes,
                u64::wrapping_add,
                u64::to_be_bytes,
            ),
        }
    }

    /// Adds the bytes of a row, and joins the bytes of each number.
    fn join(&self, planes: &mut [u8], row: &mut [u8]) -> Result<(), DecodeError> {
        accumulate(
            planes,
            self.rows.distance,
            u8::from_le_bytes,
            u8::wrapping_add,
            u8::to_le_bytes,
        );
        let width = self.number.width;
        for (at, plane) in planes.chunks_exact(self.rows.numbers.max(1)).enumerate() {
            let byte = match self.number.order {
                ByteOrder::Big => at,
                ByteOrder::Little => width - 1 - at,
            };
            let row_bytes = row.len();
            let to = part_mut(row, byte.min(row_bytes)..row_bytes)?;
            let to = to.iter_mut().step_by(width);
            to.zip(plane).for_each(|(to, byte)| *to = *byte);
        }
        Ok(())
    }
}

/// Adds each number of a row to the one that is `distance` numbers after it, from the first to the last.
fn accumulate<T: Copy + Default, const W: usize>(
    row: &mut [u8],
    distance: usize,
    from: impl Fn([u8; W]) -> T,
    add: impl Fn(T, T) -> T,
    to: impl Fn(T) -> [u8; W],
) {
    let (numbers, _) = row.as_chunks_mut::<W>();
    if distance == 1 {
        let mut sum = T::default();
        for number in numbers {
            sum = add(sum, from(*number));
            *number = to(sum);
        }
        return;
    }
    let mut pixels = numbers.chunks_mut(distance.max(1));
    let mut before: &[[u8; W]] = match pixels.next() {
        Some(first) => first,
        None => return,
    };
    for pixel in pixels {
        for (number, left) in pixel.iter_mut().zip(before) {
            *number = to(add(from(*left), from(*number)));
        }
        before = pixel;
    }
}

impl Decode for Predictor {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let row = self.row_bytes()? as u64;
        match decoded {
            Size::Exact(0) => Some(decoded),
            Size::Exact(bytes) => (row > 0 && bytes.is_multiple_of(row)).then_some(decoded),
            Size::AtMost(_) => Some(decoded),
        }
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (length, limit) = (src.len(), dst.len());
        let row_bytes = self.row_bytes().unwrap_or(0).max(1);
        if !length.is_multiple_of(row_bytes) {
            let what = format!("{length} bytes are not a multiple of rows of {row_bytes}");
            return Err(DecodeError::corrupt(what));
        }
        if length > limit {
            return Err(DecodeError::overflow(limit));
        }
        let mut planes = match self.has_planes {
            true => Some(Scratch::new(row_bytes.min(length))?),
            false => None,
        };
        for start in (0..length).step_by(row_bytes) {
            let range: Range<usize> = start..start + row_bytes;
            let (encoded, row) = (part(src, range.clone())?, part_mut(dst, range)?);
            match &mut planes {
                Some(planes) => {
                    let planes = planes.bytes_mut()?;
                    planes.copy_from_slice(encoded);
                    self.join(planes, row)?;
                }
                None => {
                    row.copy_from_slice(encoded);
                    self.add(row);
                }
            }
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(map: &Value) -> Config<'_> {
        Config {
            codec: "imagecodecs_floatpred",
            map: map.as_object().unwrap(),
        }
    }

    fn floats(shape: &[u64], axis: i64, dtype: &str, dist: u64) -> Predictor {
        let map = json!({"dist": dist});
        let config = config(&map);
        let rows = Rows::along(config, shape, axis).unwrap();
        Predictor::of_bytes(config, rows, Number::parse(dtype).unwrap()).unwrap()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().as_chunks::<2>().0.iter();
        pairs
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn decode(codec: &Predictor, src: &[u8]) -> Vec<u8> {
        let mut dst = vec![0; src.len()];
        assert_eq!(codec.decode(src, &mut dst).unwrap(), src.len());
        dst
    }

    // Encoded by imagecodecs 2026.3.6.
    #[test]
    fn planes_of_bytes_become_floats_of_any_width_and_order() {
        let src = bytes("3f818b7550d41c00e11f00c000407050e4a577007090005f");
        let expected = [1.5f32, -2.25, 3e7, 0.0, 7.125, -1e-9];
        let little: Vec<u8> = expected.iter().flat_map(|v| v.to_le_bytes()).collect();
        let big: Vec<u8> = expected.iter().flat_map(|v| v.to_be_bytes()).collect();
        assert_eq!(decode(&floats(&[2, 3], -1, "<f4", 1), &src), little);
        assert_eq!(decode(&floats(&[2, 3], 1, ">f4", 1), &src), big);
        let src = bytes(concat!(
            "003f40010000c0bb0b19100de5123333009acd333333009acd333333009acd333333009acd333333009acd333333009a",
            "404000000000e4e707070604359acdcdcd1a6619cdcdcd9a6699cdcdcd9a6699cdcdcd9a6699cdcdcd9a669acdcccd9a"
        ));
        let expected = (0..12u8).flat_map(|n| (f64::from(n) * 1.7).to_le_bytes());
        let pixels = floats(&[2, 3, 2], -2, "<f8", 1);
        assert_eq!(decode(&pixels, &src), expected.collect::<Vec<u8>>());
        let every_second = floats(&[1, 8], -1, "<f2", 2);
        let src = bytes("003e420704030301b784cd4d00264db3");
        let expected = bytes("0000cd3ecd421a45cd4640481a49f349");
        assert_eq!(decode(&every_second, &src), expected);
    }

    #[test]
    fn differences_of_numbers_wrap_in_each_row_for_each_sample() {
        let map = json!({});
        let of = |shape: &[u64], axis, dtype: &str| {
            let rows = Rows::along(config(&map), shape, axis).unwrap();
            Predictor::of_numbers(config(&map), rows, Number::parse(dtype).unwrap()).unwrap()
        };
        assert_eq!(
            decode(&of(&[2, 3], -1, "|u1"), &[1, 255, 3, 9, 1, 1]),
            [1, 0, 3, 9, 10, 11]
        );
        let pixels = of(&[1, 3, 2], -2, "|i1");
        assert_eq!(
            decode(&pixels, &[1, 10, 1, 10, 1, 10]),
            [1, 10, 2, 20, 3, 30]
        );
        assert_eq!(decode(&of(&[2], 0, ">u2"), &[0, 255, 0, 1]), [0, 255, 1, 0]);
        assert_eq!(decode(&of(&[2], 0, "<u2"), &[255, 0, 1, 0]), [255, 0, 0, 1]);
        // The bits of floats are added, as TIFF files have them.
        let one = 1f32.to_bits();
        let src = [one, 1, u32::MAX].map(u32::to_le_bytes).concat();
        let expected = [one, one + 1, one].map(u32::to_le_bytes).concat();
        assert_eq!(decode(&of(&[3], -1, "<f4"), &src), expected);
    }

    #[test]
    fn rows_that_do_not_fit_and_unknown_distances_are_refused() {
        let map = json!({"dist": 2});
        let two = config(&map);
        assert!(Rows::along(two, &[2, 3], 2).is_err());
        assert!(Rows::along(two, &[2, 3], -3).is_err());
        assert!(Rows::along(two, &[], -1).is_err());
        assert!(Rows::along(two, &[u64::MAX, 2], 0).is_err());
        let number = Number::parse("<f4").unwrap();
        let pixels = Rows::along(two, &[2, 3, 4], -2).unwrap();
        assert!(Predictor::of_bytes(two, pixels, number).is_err());
        assert!(Predictor::of_numbers(two, pixels, number).is_err());
        let codec = floats(&[2, 3], -1, "<f4", 1);
        assert_eq!(codec.encoded_size(Size::Exact(24)), Some(Size::Exact(24)));
        assert_eq!(codec.encoded_size(Size::Exact(20)), None);
        assert!(codec.decode(&[0; 20], &mut [0; 24]).is_err());
        assert!(codec.decode(&[0; 24], &mut [0; 23]).is_err());
        for dtype in ["|b1", "<c8"] {
            let number = Number::parse(dtype).unwrap();
            let map = json!({});
            assert!(Predictor::of_numbers(config(&map), pixels, number).is_err());
        }
    }
}
