//! `grib` of kerchunk and `gribberish`: a GRIB message is a chunk (WMO, Manual on Codes, volume I.2, FM 92 GRIB).
//!
//! The values are those of the first field of the message, in the order of the message, as ecCodes and gribberish
//! return them. ecCodes has 9999 for missing values, gribberish NaN.
//!
//! The crate `grib` unpacks whole numbers. It computes in `f32`, so this module gives it a scale of 1, and scales the
//! numbers itself, in the operations of ecCodes. Each size in a message is compared with the chunk before it is used:
//! a message cannot make a decoder allocate more than a chunk of its values takes.

mod bits;
mod edition1;
mod edition2;

use super::config::Config;
use super::error::{CodecError, DecodeError, part_mut};
use super::number::{Number, NumberKind};
use super::stage::{Decode, Size};
use crate::zarr::ByteOrder;

/// The value that ecCodes has for a missing one (`missingValue`).
const ECCODES_MISSING: f64 = 9999.0;

/// Which library defines the decoded values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    EcCodes,
    Gribberish,
}

impl Library {
    fn missing(self) -> f64 {
        match self {
            Self::EcCodes => ECCODES_MISSING,
            Self::Gribberish => f64::NAN,
        }
    }

    /// Returns 10 to the power of an exponent. The two libraries round it in different ways.
    fn power_of_ten(self, exponent: i32) -> f64 {
        let steps = 0..exponent.unsigned_abs();
        match (self, exponent < 0) {
            (Self::Gribberish, _) => 10_f64.powi(exponent),
            (Self::EcCodes, false) => steps.fold(1.0, |power, _| power * 10.0),
            (Self::EcCodes, true) => steps.fold(1.0, |power, _| power / 10.0),
        }
    }
}

/// How values are computed from packed whole numbers: `(number * 2^binary + reference) * 10^-decimal`.
#[derive(Debug, Clone, Copy)]
struct Scale {
    reference: f64,
    binary: i32,
    decimal: i32,
}

impl Scale {
    /// Returns the scale of numbers of `width` bits in simple packing. A field without bits is its reference value:
    /// ecCodes, g2c and gribberish do not scale it.
    fn of_width(self, width: u8) -> Self {
        match width {
            0 => Self { decimal: 0, ..self },
            _ => self,
        }
    }
}

/// The decoded values of a message, in order.
struct Values<'a> {
    library: Library,
    width: Width,
    dst: std::slice::ChunksExactMut<'a, u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Four = 4,
    Eight = 8,
}

impl Values<'_> {
    /// The number of values that are still expected.
    fn left(&self) -> usize {
        self.dst.len()
    }

    fn push(&mut self, value: f64) -> Result<(), DecodeError> {
        let Some(element) = self.dst.next() else {
            return Err(DecodeError::internal("more values than elements"));
        };
        match self.width {
            #[expect(clippy::cast_possible_truncation, reason = "as NumPy converts")]
            Width::Four => element.copy_from_slice(&(value as f32).to_le_bytes()),
            Width::Eight => element.copy_from_slice(&value.to_le_bytes()),
        }
        Ok(())
    }

    /// Appends scaled numbers; `None` is a missing value.
    ///
    /// # Errors
    /// The numbers are not as many as the elements.
    fn extend_scaled(
        &mut self,
        scale: Scale,
        mut numbers: impl Iterator<Item = Result<Option<f64>, DecodeError>>,
    ) -> Result<(), DecodeError> {
        let binary = 2_f64.powi(scale.binary);
        let decimal = self.library.power_of_ten(-scale.decimal);
        for _ in 0..self.left() {
            let Some(number) = numbers.next() else {
                return Err(DecodeError::corrupt("the packed values end early"));
            };
            let value = match number? {
                Some(number) => (number * binary + scale.reference) * decimal,
                None => self.library.missing(),
            };
            self.push(value)?;
        }
        Ok(())
    }
}

/// Decodes `grib` and `gribberish`.
#[derive(Debug)]
pub(super) struct Grib {
    library: Library,
    width: Width,
}

impl Grib {
    /// Parses the configuration, for an array of numbers of this type; `None` if it is not known.
    ///
    /// # Errors
    /// The array is not of `float32` or `float64`, the type in the configuration is another one, or the chunk has
    /// coordinates, which are computed from the grid of the message.
    pub(super) fn new(
        config: Config<'_>,
        library: Library,
        array: Option<Number>,
    ) -> Result<Self, CodecError> {
        config.only(&["var", "dtype"])?;
        if let Some(name @ ("latitude" | "longitude")) = config.str("var")? {
            return Err(CodecError::unsupported(format!(
                "{} of the {name} of grid points",
                config.codec
            )));
        }
        let own = config.number("dtype")?;
        let number = own.or(match library {
            // The codec of kerchunk returns float32 without a type.
            Library::EcCodes if array.is_none_or(|number| number.width == 4) => Some(Number {
                kind: NumberKind::Float,
                width: 4,
                order: ByteOrder::Little,
            }),
            Library::EcCodes => None,
            Library::Gribberish => array,
        });
        let number = config.required("dtype", number)?;
        let describe = |number: Number| number.to_fixed().numpy_descr();
        if let Some(array) = array.filter(|array| *array != number) {
            let what = format!(
                "decodes to {} in an array of {}",
                describe(number),
                describe(array)
            );
            return Err(config.invalid(what));
        }
        let width = match (number.kind, number.width, number.order) {
            (NumberKind::Float, 4, ByteOrder::Little) => Width::Four,
            (NumberKind::Float, 8, ByteOrder::Little) => Width::Eight,
            _ => {
                return Err(CodecError::unsupported(format!(
                    "{} to {}",
                    config.codec,
                    describe(number)
                )));
            }
        };
        Ok(Self { library, width })
    }
}

impl Decode for Grib {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        // A message may have 64 bits for a value that is a float32 here, and a bitmap.
        Some(Size::AtMost(
            decoded.bytes().saturating_mul(4).saturating_add(1 << 20),
        ))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let width = self.width as usize;
        let size = dst.len() / width * width;
        let mut values = Values {
            library: self.library,
            width: self.width,
            dst: part_mut(dst, 0..size)?.chunks_exact_mut(width),
        };
        match (src.get(..4), src.get(7)) {
            (Some(b"GRIB"), Some(1)) => edition1::decode(src, &mut values)?,
            (Some(b"GRIB"), Some(2)) => edition2::decode(src, &mut values)?,
            (Some(b"GRIB"), Some(edition)) => {
                let what = format!("GRIB edition {edition} is not supported");
                return Err(DecodeError::corrupt(what));
            }
            _ => return Err(DecodeError::corrupt("not a GRIB message")),
        }
        Ok(size)
    }

    fn working_bytes(&self, src: &[u8]) -> usize {
        edition2::working_bytes(src)
    }
}

#[cfg(test)]
mod tests;
