//! Numbers of arrays and files, and conversions between them.

use half::f16;

use crate::zarr::narrow_float::to_f16;
use crate::zarr::{ByteOrder, Fixed, Scalar};

/// The kind of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    /// A signed integer in two's complement.
    Int,
    /// An unsigned integer.
    UInt,
    /// A float of IEEE 754.
    Float,
}

/// The type of a number: of an element, or of one part of a complex element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The meaning of the bits.
    pub kind: NumberKind,
    /// Size in bytes: 1, 2, 4 or 8.
    pub size_bytes: usize,
    /// Byte order; little-endian for numbers of one byte.
    pub order: ByteOrder,
}

impl Number {
    /// Returns the type of a number of this kind.
    pub const fn new(kind: NumberKind, size_bytes: usize, order: ByteOrder) -> Self {
        let order = match size_bytes {
            1 => ByteOrder::Little,
            _ => order,
        };
        Self {
            kind,
            size_bytes,
            order,
        }
    }

    /// Returns the type of the numbers in an element, and their count, which is 2 for complex numbers. A
    /// boolean is 0 or 1, a time is its count of units. `None` for text and other types.
    pub fn of(data_type: &Fixed) -> Option<(Self, usize)> {
        let size = data_type.size_bytes;
        let one = |kind, order| Some((Self::new(kind, size, order), 1));
        match data_type.scalar {
            Scalar::Bool => one(NumberKind::UInt, ByteOrder::Little),
            Scalar::Int(order) => one(NumberKind::Int, order),
            Scalar::UInt(order) => one(NumberKind::UInt, order),
            Scalar::Float(order) => one(NumberKind::Float, order),
            Scalar::Complex(order) => Some((Self::new(NumberKind::Float, size / 2, order), 2)),
            Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. } => {
                one(NumberKind::Int, order)
            }
            _ => None,
        }
    }

    /// Returns numpy's letter of the kind: `i`, `u` or `f`.
    pub const fn letter(self) -> char {
        match self.kind {
            NumberKind::Int => 'i',
            NumberKind::UInt => 'u',
            NumberKind::Float => 'f',
        }
    }

    /// Reads one number; `None` if `bytes` are too short.
    pub fn read(self, bytes: &[u8]) -> Option<Value> {
        let mut word = [0; 8];
        let target = word.get_mut(..self.size_bytes)?;
        target.copy_from_slice(bytes.get(..self.size_bytes)?);
        if self.order == ByteOrder::Big {
            target.reverse();
        }
        let bits = u64::from_le_bytes(word);
        let [a, b, c, d, ..] = word;
        Some(match (self.kind, self.size_bytes) {
            (NumberKind::UInt, _) => Value::Int(bits.into()),
            (NumberKind::Int, size) => {
                let unused = u32::try_from(64 - 8 * size).unwrap_or(0);
                Value::Int((bits.cast_signed() << unused >> unused).into())
            }
            (NumberKind::Float, 2) => Value::Float(f16::from_le_bytes([a, b]).into()),
            (NumberKind::Float, 4) => Value::Float(f32::from_le_bytes([a, b, c, d]).into()),
            (NumberKind::Float, 8) => Value::Float(f64::from_bits(bits)),
            (NumberKind::Float, _) => return None,
        })
    }

    /// Returns the bytes of a value; `None` if this type cannot hold it exactly.
    pub fn write(self, value: Value) -> Option<Vec<u8>> {
        let word = self.word(value)?;
        Some(word.get(..self.size_bytes)?.to_vec())
    }

    /// Returns the bytes of a value, at the beginning of a word.
    fn word(self, value: Value) -> Option<[u8; 8]> {
        let mut word = match (self.kind, value) {
            (NumberKind::Float, value) => self.float_word(value)?,
            (kind, value) => {
                let value = value.whole()?;
                let bits = u32::try_from(8 * self.size_bytes).ok()?;
                let (least, most) = match kind {
                    NumberKind::UInt => (0, (1_i128 << bits) - 1),
                    _ => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                };
                if !(least..=most).contains(&value) {
                    return None;
                }
                let [a, b, c, d, e, f, g, h, ..] = value.to_le_bytes();
                [a, b, c, d, e, f, g, h]
            }
        };
        if self.order == ByteOrder::Big {
            word.get_mut(..self.size_bytes)?.reverse();
        }
        Some(word)
    }

    #[expect(clippy::cast_possible_truncation, reason = "compared afterwards")]
    #[expect(clippy::cast_precision_loss, reason = "compared afterwards")]
    fn float_word(self, value: Value) -> Option<[u8; 8]> {
        let wide = match value {
            Value::Float(value) => value,
            Value::Int(value) => {
                let wide = value as f64;
                // 2^127 is a float but no i128: the comparison would saturate.
                (wide.abs() < 1e30 && wide as i128 == value).then_some(wide)?
            }
        };
        let is_same = |back: f64| back == wide || (back.is_nan() && wide.is_nan());
        let bits = match self.size_bytes {
            8 => wide.to_bits(),
            4 => {
                let narrow = wide as f32;
                is_same(narrow.into()).then_some(narrow.to_bits().into())?
            }
            2 => {
                let narrow = to_f16(wide);
                is_same(narrow.into()).then_some(narrow.to_bits().into())?
            }
            _ => return None,
        };
        Some(bits.to_le_bytes())
    }
}

/// The value of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// An integer of any kind.
    Int(i128),
    /// A float of any size.
    Float(f64),
}

impl std::fmt::Display for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => value.fmt(formatter),
            Self::Float(value) => value.fmt(formatter),
        }
    }
}

impl Value {
    /// Returns the value as an integer, if it is an integer.
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    pub fn whole(self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(value),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => Some(value as i128),
            Self::Float(_) => None,
        }
    }

    /// Returns the value as a float, rounded to the nearest.
    #[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
    pub fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// A conversion of the elements of an array to those of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The type in the array. For a text, the size and the byte order of a code point.
    pub from: Number,
    /// The type in the file. A value that it cannot hold exactly is a read error.
    pub to: Number,
    /// The change besides the type.
    pub rule: ConversionRule,
}

/// The change that a conversion makes besides the type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversionRule {
    /// Nothing: the values are the same.
    Values,
    /// The highest bit of integers is inverted: n-bit numbers become smaller by 2^(n-1), as FITS stores
    /// unsigned integers and signed bytes.
    Offset,
    /// Code points of 4 bytes become UTF-8, which is not longer. Both texts are padded with NUL.
    Utf8,
}

impl Conversion {
    /// Returns whether the conversion changes nothing.
    pub fn is_identity(&self) -> bool {
        self.from == self.to && self.rule == ConversionRule::Values
    }

    /// Returns a conversion that keeps the values.
    pub fn new(from: Number, to: Number) -> Self {
        Self {
            from,
            to,
            rule: ConversionRule::Values,
        }
    }

    /// Returns the conversion of texts of `size_bytes` bytes in 4-byte code points to UTF-8 of equal size.
    pub fn utf8(size_bytes: usize, order: ByteOrder) -> Self {
        Self {
            from: Number::new(NumberKind::UInt, size_bytes, order),
            to: Number::new(NumberKind::UInt, size_bytes, ByteOrder::Little),
            rule: ConversionRule::Utf8,
        }
    }

    /// Returns the size in the file of `bytes` bytes of the array; `None` on overflow.
    pub fn target_bytes(&self, bytes: u64) -> Option<u64> {
        let numbers = bytes / self.from.size_bytes as u64;
        numbers.checked_mul(self.to.size_bytes as u64)
    }

    /// Converts numbers; both slices hold the same count.
    ///
    /// # Errors
    /// Returns a value that the file's numbers cannot hold exactly.
    pub fn convert(&self, from: &[u8], to: &mut [u8]) -> Result<(), Value> {
        let size = self.from.size_bytes;
        if self.rule == ConversionRule::Utf8 {
            let texts = from.chunks_exact(size).zip(to.chunks_exact_mut(size));
            return texts
                .into_iter()
                .try_for_each(|(from, to)| encode_utf8(from, self.from.order, to));
        }
        if self.keeps_size() {
            match self.from.order == self.to.order {
                true => to.copy_from_slice(from),
                false => copy_swapped(from, to, size),
            }
            self.invert(to);
            return Ok(());
        }
        if self.widen(from, to) {
            return Ok(());
        }
        let numbers = from.chunks_exact(size);
        for (number, target) in numbers.zip(to.chunks_exact_mut(self.to.size_bytes)) {
            let value = self.from.read(number).ok_or(Value::Int(0))?;
            let word = self.to.word(value).ok_or(value)?;
            target.copy_from_slice(word.get(..self.to.size_bytes).ok_or(value)?);
        }
        Ok(())
    }
}

impl Conversion {
    /// Returns whether the conversion is one of texts, not of numbers.
    pub fn is_text(&self) -> bool {
        self.rule == ConversionRule::Utf8
    }

    /// Returns whether all numbers keep their size and cannot fail: only bytes are swapped or bits inverted.
    pub fn keeps_size(&self) -> bool {
        let is_same = match self.rule {
            ConversionRule::Values => self.from.kind == self.to.kind,
            ConversionRule::Offset => true,
            ConversionRule::Utf8 => false,
        };
        is_same && self.from.size_bytes == self.to.size_bytes
    }

    /// Converts numbers whose conversion keeps their size.
    pub fn convert_in_place(&self, numbers: &mut [u8]) {
        if self.from.order != self.to.order {
            swap(numbers, self.to.size_bytes);
        }
        self.invert(numbers);
    }

    /// Inverts the highest bits of numbers in the byte order of the file, if the rule requires it.
    fn invert(&self, numbers: &mut [u8]) {
        if self.rule != ConversionRule::Offset {
            return;
        }
        let size = self.to.size_bytes;
        let highest = match self.to.order {
            ByteOrder::Big => 0,
            ByteOrder::Little => size - 1,
        };
        let bytes = numbers.iter_mut().skip(highest).step_by(size.max(1));
        bytes.for_each(|byte| *byte ^= 0x80);
    }
}

/// Writes a text as UTF-8, padded with NUL. Fails with the first value that is not a code point.
fn encode_utf8(points: &[u8], order: ByteOrder, to: &mut [u8]) -> Result<(), Value> {
    to.fill(0);
    let mut rest = to;
    for point in code_points(points, order) {
        let invalid = || Value::Int(point.into());
        let mut encoded = [0; 4];
        let encoded = char::from_u32(point)
            .ok_or_else(invalid)?
            .encode_utf8(&mut encoded);
        let (target, left) = rest
            .split_at_mut_checked(encoded.len())
            .ok_or_else(invalid)?;
        target.copy_from_slice(encoded.as_bytes());
        rest = left;
    }
    Ok(())
}

/// Returns the code points of a text of 4-byte words, without the NULs at its end.
pub(crate) fn code_points(bytes: &[u8], order: ByteOrder) -> impl Iterator<Item = u32> {
    let (points, _) = bytes.as_chunks::<4>();
    let end = points.iter().rposition(|point| *point != [0; 4]);
    points
        .iter()
        .take(end.map_or(0, |end| end + 1))
        .map(move |point| match order {
            ByteOrder::Little => u32::from_le_bytes(*point),
            ByteOrder::Big => u32::from_be_bytes(*point),
        })
}

impl Conversion {
    /// Widens integers to a longer type that holds all of their values; returns false for other conversions.
    fn widen(&self, from: &[u8], to: &mut [u8]) -> bool {
        use NumberKind::{Int, UInt};
        let holds_all = matches!(
            (self.from.kind, self.to.kind),
            (UInt, UInt | Int) | (Int, Int)
        );
        match (self.from.size_bytes, self.to.size_bytes) {
            _ if !holds_all || self.rule != ConversionRule::Values => return false,
            (1, 2) => self.widen_each::<1, 2>(from, to),
            (1, 4) => self.widen_each::<1, 4>(from, to),
            (2, 4) => self.widen_each::<2, 4>(from, to),
            _ => return false,
        }
        true
    }

    fn widen_each<const N: usize, const M: usize>(&self, from: &[u8], to: &mut [u8]) {
        let numbers = from.as_chunks::<N>().0.iter();
        for (number, target) in numbers.zip(to.as_chunks_mut::<M>().0) {
            let mut number = *number;
            if self.from.order == ByteOrder::Big {
                number.reverse();
            }
            let is_negative =
                self.from.kind == NumberKind::Int && number.last().is_some_and(|byte| *byte > 0x7f);
            let mut wide = [if is_negative { 0xff } else { 0 }; M];
            wide.iter_mut()
                .zip(number)
                .for_each(|(wide, byte)| *wide = byte);
            if self.to.order == ByteOrder::Big {
                wide.reverse();
            }
            *target = wide;
        }
    }
}

/// Copies words with their bytes reversed.
fn copy_swapped(from: &[u8], to: &mut [u8], size: usize) {
    fn each<const N: usize>(from: &[u8], to: &mut [u8]) {
        let words = from.as_chunks::<N>().0.iter();
        for (word, target) in words.zip(to.as_chunks_mut::<N>().0) {
            *target = *word;
            target.reverse();
        }
    }
    match size {
        2 => each::<2>(from, to),
        4 => each::<4>(from, to),
        8 => each::<8>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Reverses the bytes of each word.
fn swap(bytes: &mut [u8], size: usize) {
    fn each<const N: usize>(bytes: &mut [u8]) {
        let (words, _) = bytes.as_chunks_mut::<N>();
        words.iter_mut().for_each(|word| word.reverse());
    }
    match size {
        2 => each::<2>(bytes),
        4 => each::<4>(bytes),
        8 => each::<8>(bytes),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn number(kind: NumberKind, size: usize, order: ByteOrder) -> Number {
        Number::new(kind, size, order)
    }

    #[test]
    fn numbers_round_trip_exactly_or_fail() {
        use ByteOrder::{Big, Little};
        for size in [1, 2, 4, 8] {
            for order in [Little, Big] {
                for kind in [NumberKind::Int, NumberKind::UInt] {
                    let number = number(kind, size, order);
                    let bytes = [0xF1, 0xF2, 0xF3, 0xF4, 5, 6, 7, 0xF8][8 - size..].to_vec();
                    let value = number.read(&bytes).unwrap();
                    assert_eq!(number.write(value), Some(bytes), "{number:?} {value:?}");
                }
            }
        }
        let i2 = number(NumberKind::Int, 2, Big);
        assert_eq!(i2.read(&[0xFF, 0xFE]), Some(Value::Int(-2)));
        assert_eq!(i2.write(Value::Int(32768)), None);
        assert_eq!(i2.write(Value::Float(1.5)), None);
        assert_eq!(i2.write(Value::Float(-2.0)), Some(vec![0xFF, 0xFE]));
        let f8 = number(NumberKind::Float, 8, Little);
        assert_eq!(f8.write(Value::Int((1 << 53) + 1)), None);
        assert!(f8.write(Value::Int(1 << 60)).is_some());
        let f4 = number(NumberKind::Float, 4, Little);
        assert_eq!(f4.write(Value::Float(0.1)), None);
        assert!(f4.write(Value::Float(f64::NAN)).is_some());
        assert!(f4.write(Value::Float(f64::INFINITY)).is_some());
    }

    #[test]
    fn texts_become_utf8_of_the_same_size() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let conversion = Conversion::utf8(12, order);
            assert!(!conversion.is_identity());
            assert_eq!(conversion.target_bytes(36), Some(36));
            let texts = ["a\u{e9}\u{1F600}", "", "x\0y"];
            let points = texts.iter().flat_map(|text| {
                let points = text.chars().map(u32::from).chain([0; 3]).take(3);
                points.flat_map(|point| match order {
                    ByteOrder::Little => point.to_le_bytes(),
                    ByteOrder::Big => point.to_be_bytes(),
                })
            });
            let mut found = [9; 36];
            conversion
                .convert(&points.collect::<Vec<u8>>(), &mut found)
                .unwrap();
            for (text, found) in texts.iter().zip(found.chunks(12)) {
                assert_eq!(&found[..text.len()], text.as_bytes());
                assert!(found[text.len()..].iter().all(|byte| *byte == 0));
            }
            let surrogate = [0xD8; 12];
            assert!(conversion.convert(&surrogate, &mut [0; 12]).is_err());
        }
    }

    #[test]
    fn conversions_in_place_are_those_of_copies() {
        use ByteOrder::{Big, Little};
        let bytes: Vec<u8> = (0..48).collect();
        for size in [1, 2, 4, 8] {
            for rule in [ConversionRule::Values, ConversionRule::Offset] {
                let to = match rule {
                    ConversionRule::Offset => NumberKind::Int,
                    _ => NumberKind::UInt,
                };
                let conversion = Conversion {
                    from: number(NumberKind::UInt, size, Little),
                    to: number(to, size, Big),
                    rule,
                };
                assert!(conversion.keeps_size());
                let (mut copy, mut in_place) = (vec![0; 48], bytes.clone());
                conversion.convert(&bytes, &mut copy).unwrap();
                conversion.convert_in_place(&mut in_place);
                assert_eq!(copy, in_place);
                let read = |number: Number, bytes: &[u8]| number.read(bytes).unwrap().whole();
                let offset = match rule {
                    ConversionRule::Offset => 1 << (8 * size - 1),
                    _ => 0,
                };
                for (from, to) in bytes.chunks(size).zip(copy.chunks(size)) {
                    let (from, to) = (read(conversion.from, from), read(conversion.to, to));
                    assert_eq!(to, from.map(|from| from - offset));
                }
            }
        }
        let widens = Conversion::new(
            number(NumberKind::Int, 2, Big),
            number(NumberKind::Int, 4, Big),
        );
        assert!(!widens.keeps_size());
        assert!(!Conversion::utf8(4, Big).keeps_size());
    }

    #[test]
    fn conversions_keep_values() {
        use ByteOrder::{Big, Little};
        let swap = Conversion::new(
            number(NumberKind::Float, 4, Little),
            number(NumberKind::Float, 4, Big),
        );
        let mut target = [0; 8];
        swap.convert(&[1, 2, 3, 4, 5, 6, 7, 8], &mut target)
            .unwrap();
        assert_eq!(target, [4, 3, 2, 1, 8, 7, 6, 5]);
        let widen = Conversion::new(
            number(NumberKind::Int, 8, Little),
            number(NumberKind::Float, 8, Big),
        );
        let offset = Conversion {
            rule: ConversionRule::Offset,
            ..Conversion::new(
                number(NumberKind::UInt, 2, Little),
                number(NumberKind::Int, 2, Big),
            )
        };
        let mut shifted = [0; 4];
        offset.convert(&[0, 0x80, 1, 0], &mut shifted).unwrap();
        assert_eq!(shifted, [0, 0, 0x80, 1]);
        widen.convert(&7_i64.to_le_bytes(), &mut target).unwrap();
        assert_eq!(target, 7_f64.to_be_bytes());
        for (from, to, stored, expected) in [
            (
                number(NumberKind::Int, 2, Big),
                number(NumberKind::Int, 4, Little),
                [0xff, 0xfe],
                -2,
            ),
            (
                number(NumberKind::UInt, 2, Little),
                number(NumberKind::UInt, 4, Little),
                [0xfe, 0xff],
                0xfffe,
            ),
        ] {
            let mut wide = [0; 4];
            Conversion::new(from, to)
                .convert(&stored, &mut wide)
                .unwrap();
            assert_eq!(i32::from_le_bytes(wide), expected);
        }
        let too_much = i64::MAX.to_le_bytes();
        let error = widen.convert(&too_much, &mut target);
        assert_eq!(error, Err(Value::Int(i64::MAX.into())));
        assert_eq!(widen.target_bytes(16), Some(16));
    }
}
