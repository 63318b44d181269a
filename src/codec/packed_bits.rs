//! `packbits` of zarr-extensions: the lowest bits of each number, consecutively. (`packbits` of numcodecs
//! supports only booleans, and stores the highest bit first.)

use super::config::Config;
use super::error::{CodecError, DecodeError, part, part_mut};
use super::reals::word;
use super::stage::{Decode, Size};
use crate::zarr::real::Real;
use crate::zarr::{Fixed, Scalar};

/// The location of the number of padding bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    None,
    FirstByte,
    LastByte,
}

/// Decodes numbers that are stored with some of their bits.
#[derive(Debug)]
pub(super) struct PackedBits {
    padding: Padding,
    /// The first stored bit of a component.
    first: u32,
    /// The number of stored bits of a component, 1 to 64.
    bits: u32,
    is_signed: bool,
    /// Size of a decoded component in bytes.
    component_bytes: usize,
    components: u64,
}

impl PackedBits {
    /// Parses the configuration for an array of elements of `fixed`.
    ///
    /// # Errors
    /// The type is not a number, or does not have the configured bits.
    pub(super) fn new(config: Config<'_>, fixed: &Fixed) -> Result<Self, CodecError> {
        // The JSON schema of the specification has other names than its text: `start_byte`, `end_bit`, ...
        let [start, end] = ["start_bit", "end_bit"];
        config.only(&["padding_encoding", "first_bit", "last_bit", start, end])?;
        let padding = match config.str("padding_encoding")? {
            None | Some("none") => Padding::None,
            Some("first_byte" | "start_byte") => Padding::FirstByte,
            Some("last_byte" | "end_byte") => Padding::LastByte,
            Some(other) => return Err(config.invalid(format!("padding_encoding is {other}"))),
        };
        let (total, is_signed, components) = component(fixed)
            .ok_or_else(|| CodecError::unsupported(format!("{} of {fixed}", config.codec)))?;
        let bit = |name: &str, default: u32| match config.u64(name)? {
            None => Ok(default),
            Some(bit) => u32::try_from(bit)
                .ok()
                .filter(|bit| *bit < total)
                .ok_or_else(|| {
                    config.invalid(format!("{name} is {bit}, elements have {total} bits"))
                }),
        };
        let first = bit("first_bit", bit(start, 0)?)?;
        let last = bit("last_bit", bit(end, total - 1)?)?;
        let bits = (last + 1).checked_sub(first).filter(|bits| *bits > 0);
        Ok(Self {
            padding,
            first,
            bits: bits.ok_or_else(|| config.invalid("last_bit is before first_bit"))?,
            is_signed,
            component_bytes: fixed.size_bytes / components,
            components: components as u64,
        })
    }

    /// Returns the size of the packed elements in bits and in bytes, for a decoded size.
    fn packed(&self, decoded_bytes: u64) -> Option<(u64, u64)> {
        let element_bytes = self.components.checked_mul(self.component_bytes as u64)?;
        let elements = decoded_bytes.checked_div(element_bytes)?;
        if !decoded_bytes.is_multiple_of(element_bytes) {
            return None;
        }
        let bits = elements.checked_mul(self.components)?;
        let bits = bits.checked_mul(u64::from(self.bits))?;
        Some((bits, bits.div_ceil(8)))
    }

    /// Returns the decoded word of the stored bits.
    fn word(&self, bits: u64) -> u64 {
        let unused = 64 - self.first - self.bits;
        let top = bits << (64 - self.bits);
        match self.is_signed {
            true => (top.cast_signed() >> unused).cast_unsigned(),
            false => top >> unused,
        }
    }
}

/// Returns the bits of a component, whether it has a sign in two's complement, and the number of components.
fn component(fixed: &Fixed) -> Option<(u32, bool, usize)> {
    let half = u32::try_from(fixed.size_bytes.checked_mul(4)?).ok()?;
    match &fixed.scalar {
        Scalar::Bool => Some((1, false, 1)),
        Scalar::Complex(_) => Some((half, false, 2)),
        Scalar::DateTime { .. } | Scalar::TimeDelta { .. } => Some((64, true, 1)),
        Scalar::Other { name, .. } if name.starts_with("complex_") => {
            let part = Real::named(name.strip_prefix("complex_")?)?;
            Some((part.bits(), false, 2))
        }
        _ => {
            let real = Real::of(fixed)?;
            let is_signed = matches!(
                real,
                Real::Int {
                    is_signed: true,
                    ..
                }
            );
            Some((real.bits(), is_signed, 1))
        }
    }
}

impl Decode for PackedBits {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let count = u64::from(self.padding != Padding::None);
        decoded.try_map(|n| self.packed(n)?.1.checked_add(count))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        let (bits, bytes) = self
            .packed(limit as u64)
            .ok_or_else(|| DecodeError::internal(format!("{limit} bytes of packed elements")))?;
        let (count, packed) = match self.padding {
            Padding::None => (None, src),
            Padding::FirstByte => (src.first(), src.get(1..).unwrap_or_default()),
            Padding::LastByte => (
                src.last(),
                src.split_last().map_or(&[][..], |(_, rest)| rest),
            ),
        };
        if packed.len() as u64 != bytes {
            let what = format!(
                "{} bytes of packed elements, expected {bytes}",
                packed.len()
            );
            return Err(DecodeError::corrupt(what));
        }
        let expected = bytes * 8 - bits;
        if let Some(found) = count
            && u64::from(*found) != expected
        {
            let what = format!("{found} bits of padding, expected {expected}");
            return Err(DecodeError::corrupt(what));
        }
        let mask = u128::MAX >> (128 - self.bits);
        let (mut held, mut held_bits, mut from) = (0_u128, 0, packed);
        for component in dst.chunks_exact_mut(self.component_bytes) {
            while held_bits < self.bits {
                let take = from.len().min(8);
                let next = word(part(from, 0..take)?);
                held |= u128::from(next) << held_bits;
                // At most 63 bits are held; the last bytes add the rest.
                held_bits += 64;
                from = part(from, take..from.len())?;
            }
            let stored = u64::try_from(held & mask).unwrap_or(0);
            held >>= self.bits;
            held_bits -= self.bits;
            let bytes = self.word(stored).to_le_bytes();
            let target = part_mut(component, 0..self.component_bytes)?;
            target
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, byte)| *to = byte);
        }
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{DataType, data_type::v3};
    use serde_json::{Value, json};

    fn codec(data_type: &str, configuration: &Value) -> Result<PackedBits, CodecError> {
        let config = Config {
            codec: "packbits",
            map: configuration.as_object().unwrap(),
        };
        match v3::parse(&data_type.into()) {
            Ok(DataType::Fixed(fixed)) => PackedBits::new(config, &fixed),
            other => panic!("{other:?}"),
        }
    }

    fn check(data_type: &str, configuration: Value, encoded: &[u8], decoded: &[u8]) {
        let codec = codec(data_type, &configuration).unwrap();
        let mut dst = vec![0xa5; decoded.len()];
        assert_eq!(codec.decode(encoded, &mut dst).unwrap(), decoded.len());
        assert_eq!(dst, decoded, "{data_type} {configuration}");
        let size = codec.encoded_size(Size::Exact(decoded.len() as u64));
        assert_eq!(size, Some(Size::Exact(encoded.len() as u64)));
        assert!(codec.decode(&encoded[1..], &mut dst).is_err());
        assert!(codec.decode(&[encoded, &[0]].concat(), &mut dst).is_err());
    }

    #[test]
    fn numbers_of_some_bits_are_packed_from_the_lowest_bit() {
        let bools = [1, 0, 0, 1, 0, 0, 0, 0, 1];
        check("bool", json!({}), &[0b1001, 1], &bools);
        check(
            "bool",
            json!({"padding_encoding": "first_byte"}),
            &[7, 0b1001, 1],
            &bools,
        );
        check(
            "bool",
            json!({"padding_encoding": "last_byte"}),
            &[0b1001, 1, 7],
            &bools,
        );
        check(
            "bool",
            json!({"padding_encoding": "end_byte"}),
            &[0b1001, 1, 7],
            &bools,
        );
        check("int2", json!({}), &[0b1110_0100], &[0, 1, 0xfe, 0xff]);
        check("uint4", json!({}), &[0x21, 0x0f], &[1, 2, 15, 0]);
        check("int4", json!({}), &[0x81], &[1, 0xf8]);
        check(
            "float6_e2m3fn",
            json!({}),
            &[0b0100_0001, 0b0010_0000, 0b1111_1100],
            &[1, 1, 2, 63],
        );
        let complex = [1, 2, 3, 4];
        check("complex_float4_e2m1fn", json!({}), &[0x21, 0x43], &complex);
    }

    #[test]
    fn ranges_of_bits_are_shifted_back_and_sign_extended() {
        let some = json!({"first_bit": 1, "last_bit": 3});
        // 3 bits of each number: 5, 2 and 7.
        check("uint8", some.clone(), &[0b1101_0101, 1], &[10, 4, 14]);
        check("int8", some, &[0b1101_0101, 1], &[0xfa, 4, 0xfe]);
        let of_schema = json!({"start_bit": 1, "end_bit": 3, "padding_encoding": "start_byte"});
        check("uint8", of_schema, &[7, 0b1101_0101, 1], &[10, 4, 14]);
        let high = json!({"first_bit": 8, "last_bit": null});
        check("int16", high, &[0x80, 0x7f], &[0, 0x80, 0, 0x7f]);
        let number = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
        check("uint64", json!({}), &number, &number);
        let half: Vec<u8> = number[..7].to_vec();
        let most = json!({"last_bit": 55});
        let expected = [&number[..7], &[0]].concat();
        check("uint64", most.clone(), &half, &expected);
        check(
            "uint64",
            most,
            &[half.clone(), half].concat(),
            &expected.repeat(2),
        );
    }

    #[test]
    fn padding_and_bits_that_do_not_fit_are_errors() {
        let codec_with = |padding: &str| codec("bool", &json!({"padding_encoding": padding}));
        let first = codec_with("first_byte").unwrap();
        assert!(first.decode(&[6, 1], &mut [0; 1]).is_err());
        assert!(first.decode(&[], &mut [0; 1]).is_err());
        for (data_type, configuration, expected) in [
            (
                "bool",
                json!({"padding_encoding": "x"}),
                "padding_encoding is x",
            ),
            ("int4", json!({"last_bit": 4}), "last_bit is 4"),
            ("int4", json!({"first_bit": 3, "last_bit": 2}), "before"),
            ("int4", json!({"bits": 2}), "member bits"),
            ("r16", json!({}), "V2"),
        ] {
            let error = codec(data_type, &configuration).unwrap_err().to_string();
            assert!(error.contains(expected), "{configuration}: {error}");
        }
    }
}
