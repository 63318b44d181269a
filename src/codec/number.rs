//! Numbers of the filters: numpy types over raw bytes, read and written in blocks.
//!
//! Conversions are those of numpy on x86-64. A float out of the range of an integer type has no defined value
//! in numpy (its own loops disagree). Such floats are converted as in C, through 32 bits (8- and 16-bit
//! types) or 64 bits (`u4`).

use half::f16;

use crate::zarr::narrow_float::to_f16;
use crate::zarr::{ByteOrder, Fixed, Scalar};

/// A numeric element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) kind: NumberKind,
    /// Size of one number in bytes; for a complex number, of both parts.
    pub(super) width: usize,
    pub(super) order: ByteOrder,
}

/// The meaning of the bits of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    Bool,
    Int,
    UInt,
    Float,
    Complex,
}

/// The number of numbers that are converted at a time.
pub(super) const BLOCK: usize = 512;

/// A block of numbers, wide enough for every type of its kind.
#[derive(Debug, Clone)]
pub(super) enum Block {
    Int([i64; BLOCK]),
    UInt([u64; BLOCK]),
    Float([f64; BLOCK]),
}

impl Number {
    /// Parses `<f4`, `|u1`, `i2` and `float32`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (order, short) = match text.split_at_checked(1)? {
            ("<" | "|" | "=", rest) => (ByteOrder::Little, rest),
            (">", rest) => (ByteOrder::Big, rest),
            _ => (ByteOrder::Little, text),
        };
        let (kind, width) = match short {
            "b1" | "bool" | "?" => (NumberKind::Bool, 1),
            "i1" | "int8" => (NumberKind::Int, 1),
            "i2" | "int16" => (NumberKind::Int, 2),
            "i4" | "int32" => (NumberKind::Int, 4),
            "i8" | "int64" => (NumberKind::Int, 8),
            "u1" | "uint8" => (NumberKind::UInt, 1),
            "u2" | "uint16" => (NumberKind::UInt, 2),
            "u4" | "uint32" => (NumberKind::UInt, 4),
            "u8" | "uint64" => (NumberKind::UInt, 8),
            "f2" | "float16" => (NumberKind::Float, 2),
            "f4" | "float32" => (NumberKind::Float, 4),
            "f8" | "float64" => (NumberKind::Float, 8),
            "c8" | "complex64" => (NumberKind::Complex, 8),
            "c16" | "complex128" => (NumberKind::Complex, 16),
            _ => return None,
        };
        let order = if width == 1 { ByteOrder::Little } else { order };
        Some(Self { kind, width, order })
    }

    /// Returns the type of an array's elements, if they are numbers.
    pub(super) fn of(fixed: &Fixed) -> Option<Self> {
        let (kind, order) = match &fixed.scalar {
            Scalar::Bool => (NumberKind::Bool, ByteOrder::Little),
            Scalar::Int(order) => (NumberKind::Int, *order),
            Scalar::UInt(order) => (NumberKind::UInt, *order),
            Scalar::Float(order) => (NumberKind::Float, *order),
            Scalar::Complex(order) => (NumberKind::Complex, *order),
            _ => return None,
        };
        Some(Self {
            kind,
            width: fixed.size_bytes,
            order,
        })
    }

    /// Returns the type of an array's elements, if they are numbers or, as integers, times.
    pub(super) fn counted(fixed: &Fixed) -> Option<Self> {
        match &fixed.scalar {
            Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. } => Some(Self {
                kind: NumberKind::Int,
                width: fixed.size_bytes,
                order: *order,
            }),
            _ => Self::of(fixed),
        }
    }

    pub(super) fn to_fixed(self) -> Fixed {
        let scalar = match self.kind {
            NumberKind::Bool => Scalar::Bool,
            NumberKind::Int => Scalar::Int(self.order),
            NumberKind::UInt => Scalar::UInt(self.order),
            NumberKind::Float => Scalar::Float(self.order),
            NumberKind::Complex => Scalar::Complex(self.order),
        };
        Fixed {
            scalar,
            size_bytes: self.width,
        }
    }

    /// Returns the type of the parts of a complex number; any other type is unchanged.
    pub(super) fn part(self) -> Self {
        match self.kind {
            NumberKind::Complex => Self {
                kind: NumberKind::Float,
                width: self.width / 2,
                order: self.order,
            },
            _ => self,
        }
    }

    pub(super) fn block(self) -> Block {
        match self.kind {
            NumberKind::Int => Block::Int([0; BLOCK]),
            NumberKind::Bool | NumberKind::UInt => Block::UInt([0; BLOCK]),
            NumberKind::Float | NumberKind::Complex => Block::Float([0.0; BLOCK]),
        }
    }

    /// Reads up to [`BLOCK`] numbers of this type (not complex) into a block of [`Number::block`].
    pub(super) fn read(self, src: &[u8], block: &mut Block) {
        let big = self.order == ByteOrder::Big;
        match (block, self.kind, self.width) {
            (Block::Int(to), _, 1) => read(src, big, to, |b| i64::from(i8::from_le_bytes(b))),
            (Block::Int(to), _, 2) => read(src, big, to, |b| i64::from(i16::from_le_bytes(b))),
            (Block::Int(to), _, 4) => read(src, big, to, |b| i64::from(i32::from_le_bytes(b))),
            (Block::Int(to), ..) => read(src, big, to, i64::from_le_bytes),
            (Block::UInt(to), NumberKind::Bool, _) => {
                read(src, big, to, |[b]: [u8; 1]| u64::from(b != 0));
            }
            (Block::UInt(to), _, 1) => read(src, big, to, |[b]: [u8; 1]| u64::from(b)),
            (Block::UInt(to), _, 2) => read(src, big, to, |b| u64::from(u16::from_le_bytes(b))),
            (Block::UInt(to), _, 4) => read(src, big, to, |b| u64::from(u32::from_le_bytes(b))),
            (Block::UInt(to), ..) => read(src, big, to, u64::from_le_bytes),
            (Block::Float(to), _, 2) => read(src, big, to, |b| f16::from_le_bytes(b).to_f64()),
            (Block::Float(to), _, 4) => read(src, big, to, |b| f64::from(f32::from_le_bytes(b))),
            (Block::Float(to), ..) => read(src, big, to, f64::from_le_bytes),
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numpy's conversions wrap and round"
)]
impl Number {
    /// Converts numbers to this type (not complex) and writes them until `dst` is full.
    pub(super) fn write(self, block: &Block, dst: &mut [u8]) {
        match block {
            Block::Int(from) => {
                self.write_integers(from, dst, i64::cast_unsigned, |v| v as f32, |v| v as f64);
            }
            Block::UInt(from) => {
                self.write_integers(from, dst, |v| v, |v| v as f32, |v| v as f64);
            }
            Block::Float(from) => self.write_floats(from, dst),
        }
    }

    /// Writes integers; `bits` is the integer in two's complement.
    fn write_integers<T: Copy>(
        self,
        from: &[T],
        dst: &mut [u8],
        bits: impl Fn(T) -> u64,
        single: impl Fn(T) -> f32,
        double: impl Fn(T) -> f64,
    ) {
        use NumberKind::{Bool, Int, UInt};
        let big = self.order == ByteOrder::Big;
        match (self.kind, self.width) {
            (Bool, _) => write(from, big, dst, |v| [u8::from(bits(v) != 0)]),
            (Int | UInt, 1) => write(from, big, dst, |v| [bits(v) as u8]),
            (Int | UInt, 2) => write(from, big, dst, |v| (bits(v) as u16).to_le_bytes()),
            (Int | UInt, 4) => write(from, big, dst, |v| (bits(v) as u32).to_le_bytes()),
            (Int | UInt, _) => write(from, big, dst, |v| bits(v).to_le_bytes()),
            (_, 2) => write(from, big, dst, |v| f16::from_f32(single(v)).to_le_bytes()),
            (_, 4) => write(from, big, dst, |v| single(v).to_le_bytes()),
            _ => write(from, big, dst, |v| double(v).to_le_bytes()),
        }
    }

    fn write_floats(self, from: &[f64], dst: &mut [u8]) {
        use NumberKind::{Bool, Int, UInt};
        let big = self.order == ByteOrder::Big;
        match (self.kind, self.width) {
            (Bool, _) => write(from, big, dst, |v| [u8::from(v != 0.0)]),
            (Int | UInt, 1) => write(from, big, dst, |v| [to_i32(v) as u8]),
            (Int | UInt, 2) => write(from, big, dst, |v| (to_i32(v) as u16).to_le_bytes()),
            (Int, 4) => write(from, big, dst, |v| to_i32(v).to_le_bytes()),
            (UInt, 4) => write(from, big, dst, |v| (to_i64(v) as u32).to_le_bytes()),
            (Int, _) => write(from, big, dst, |v| to_i64(v).to_le_bytes()),
            (UInt, _) => write(from, big, dst, |v| to_u64(v).to_le_bytes()),
            (_, 2) => write(from, big, dst, |v| to_f16(v).to_le_bytes()),
            (_, 4) => write(from, big, dst, |v| (v as f32).to_le_bytes()),
            _ => write(from, big, dst, f64::to_le_bytes),
        }
    }
}

fn read<T, const W: usize>(src: &[u8], big: bool, to: &mut [T], get: impl Fn([u8; W]) -> T) {
    for (bytes, value) in src.as_chunks::<W>().0.iter().zip(to) {
        let mut bytes = *bytes;
        if big {
            bytes.reverse();
        }
        *value = get(bytes);
    }
}

fn write<T: Copy, const W: usize>(
    from: &[T],
    big: bool,
    dst: &mut [u8],
    put: impl Fn(T) -> [u8; W],
) {
    for (bytes, value) in dst.as_chunks_mut::<W>().0.iter_mut().zip(from) {
        *bytes = put(*value);
        if big {
            bytes.reverse();
        }
    }
}

/// Truncates; a value out of range becomes the minimum, as in the x86 instruction.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_i32(v: f64) -> i32 {
    if v > -2_147_483_649.0 && v < 2_147_483_648.0 {
        v as i32
    } else {
        i32::MIN
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_i64(v: f64) -> i64 {
    if (-TWO_63..TWO_63).contains(&v) {
        v as i64
    } else {
        i64::MIN
    }
}

#[allow(clippy::cast_sign_loss, reason = "negative numbers wrap")]
fn to_u64(v: f64) -> u64 {
    if v >= TWO_63 {
        to_i64(v - TWO_63) as u64 ^ (1 << 63)
    } else {
        to_i64(v) as u64
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(from: &str, to: &str, src: &[u8]) -> Vec<u8> {
        let (from, to) = (Number::parse(from).unwrap(), Number::parse(to).unwrap());
        let mut block = from.block();
        from.read(src, &mut block);
        let mut dst = vec![0; src.len() / from.width * to.width];
        to.write(&block, &mut dst);
        dst
    }

    #[test]
    fn floats_become_integers_as_numpy_on_x86_has_it() {
        let one = |v: f64, to: &str| cast("<f8", to, &v.to_le_bytes());
        assert_eq!(one(300.7, "|u1"), [44]);
        assert_eq!(one(-1.5, "|u1"), [255]);
        assert_eq!(one(70000.5, "<i2"), 4464i16.to_le_bytes());
        assert_eq!(one(f64::NAN, "|i1"), [0]);
        assert_eq!(one(f64::NAN, "<i4"), i32::MIN.to_le_bytes());
        assert_eq!(one(1e10, "<i4"), i32::MIN.to_le_bytes());
        assert_eq!(one(-2_147_483_648.5, "<i4"), i32::MIN.to_le_bytes());
        assert_eq!(one(3e9, "<u4"), 3_000_000_000u32.to_le_bytes());
        assert_eq!(one(-3e9, "<u4"), 1_294_967_296u32.to_le_bytes());
        assert_eq!(one(1e19, "<i8"), i64::MIN.to_le_bytes());
        assert_eq!(
            one(1.8e19, "<u8"),
            18_000_000_000_000_000_000u64.to_le_bytes()
        );
        assert_eq!(one(f64::NAN, "<u8"), (1u64 << 63).to_le_bytes());
        assert_eq!(one(2e19, "<u8"), 0u64.to_le_bytes());
        assert_eq!(one(f64::NAN, "|b1"), [1]);
    }

    #[test]
    fn integers_wrap_and_round_once() {
        assert_eq!(
            cast(">i4", "<i2", &70000i32.to_be_bytes()),
            4464i16.to_le_bytes()
        );
        assert_eq!(
            cast("<i2", ">u8", &(-2i16).to_le_bytes()),
            (u64::MAX - 1).to_be_bytes()
        );
        let odd = (1i64 << 62) + (1 << 37) + 1;
        assert_eq!(
            cast("<i8", "<f4", &odd.to_le_bytes()),
            (odd as f32).to_le_bytes()
        );
        assert_eq!(
            cast("<i8", "<f2", &2049i64.to_le_bytes()),
            f16::from_f32(2048.0).to_le_bytes()
        );
        assert_eq!(cast("|b1", "<f8", &[7]), 1f64.to_le_bytes());
    }

    #[test]
    fn type_names_parse_in_both_forms() {
        assert_eq!(Number::parse("float32"), Number::parse("<f4"));
        assert_eq!(Number::parse(">u1"), Number::parse("|u1"));
        for wrong in ["", "<", "<f3", "|S3", "<M8[s]", "O", "\u{e9}4"] {
            assert_eq!(Number::parse(wrong), None, "{wrong}");
        }
    }
}
