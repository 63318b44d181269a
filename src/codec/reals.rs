//! Common parts of the codecs `cast_value` and `scale_offset` of zarr-extensions: words of real numbers.

use serde_json::Value;

use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::stage::{Decode, Size};
use crate::zarr::data_type::v3;
use crate::zarr::real::Real;
use crate::zarr::{DataType, FillValue, Fixed, ZarrFormat};

/// A codec from real numbers to real numbers, which also encodes fill values.
pub(super) trait RealCodec: Decode {
    /// Returns the encoded word of a decoded word.
    ///
    /// # Errors
    /// The word cannot be encoded.
    fn encode_word(&self, word: u64) -> Result<u64, DecodeError>;
}

/// A codec for one type of decoded elements.
#[derive(Debug)]
pub(super) struct RealFilter {
    /// The codec; `None` if decoding changes no byte.
    pub(super) codec: Option<Box<dyn RealCodec>>,
    /// The type of the encoded elements.
    pub(super) encoded: Fixed,
}

impl Config<'_> {
    /// Returns the type of elements that are real numbers.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for any other type.
    pub(super) fn real(self, fixed: &Fixed) -> Result<Real, CodecError> {
        let unsupported = || CodecError::unsupported(format!("{} of {fixed}", self.codec));
        Real::of(fixed).ok_or_else(unsupported)
    }
}

/// Parses a data type in a configuration.
pub(super) fn type_of(config: Config<'_>, value: &Value) -> Result<Fixed, CodecError> {
    match v3::parse(value) {
        Ok(DataType::Fixed(fixed)) => Ok(fixed),
        Ok(other) => Err(CodecError::unsupported(format!(
            "{} of {other}",
            config.codec
        ))),
        Err(error) => Err(config.invalid(error.to_string())),
    }
}

/// Parses a value in the encoding of fill values and returns its word.
pub(super) fn scalar(config: Config<'_>, fixed: &Fixed, value: &Value) -> Result<u64, CodecError> {
    // The example in the specification of `cast_value` has this name.
    let infinity = Value::from("Infinity");
    let value = match value.as_str() {
        Some("+Infinity") => &infinity,
        _ => value,
    };
    let data_type = DataType::Fixed(fixed.clone());
    match FillValue::parse(ZarrFormat::V3, &data_type, value) {
        Ok(FillValue::Fixed(bytes)) => Ok(word(&bytes)),
        Ok(_) => Err(config.invalid("null is no value")),
        Err(error) => Err(config.invalid(error.to_string())),
    }
}

/// Returns a word of at most 8 bytes, the lowest byte first.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

/// Returns the size of a word in bytes.
pub(super) fn width(real: Real) -> usize {
    real.bits().div_ceil(8) as usize
}

/// Returns the encoded size of the numbers whose decoded size is `decoded_size`.
pub(super) fn resized(decoded_size: Size, encoded: Real, decoded: Real) -> Option<Size> {
    let (from, to) = (width(decoded) as u64, width(encoded) as u64);
    decoded_size.try_map(|n| match n.is_multiple_of(from) {
        true => (n / from).checked_mul(to),
        false => None,
    })
}

/// Words that are converted one by one to another type.
pub(super) struct Words<'a> {
    src: &'a [u8],
    from: usize,
    dst: &'a mut [u8],
    to: usize,
}

impl<'a> Words<'a> {
    /// Returns the words of `src`, and the beginning of `dst` for the results.
    ///
    /// # Errors
    /// `src` is not whole words, or the results do not fit.
    pub(super) fn new(
        src: &'a [u8],
        from: Real,
        dst: &'a mut [u8],
        to: Real,
    ) -> Result<Self, DecodeError> {
        let (length, limit) = (src.len(), dst.len());
        let (from, to) = (width(from), width(to));
        if !length.is_multiple_of(from) {
            let what = format!("{length} bytes are not a multiple of {from}");
            return Err(DecodeError::corrupt(what));
        }
        let written = (length / from).checked_mul(to);
        let dst = written
            .and_then(|written| dst.get_mut(..written))
            .ok_or_else(|| DecodeError::overflow(limit))?;
        Ok(Self { src, from, dst, to })
    }

    /// Converts all words and returns the number of bytes that were written.
    ///
    /// # Errors
    /// The first error of `convert`.
    pub(super) fn convert(
        self,
        convert: impl Fn(u64) -> Result<u64, DecodeError>,
    ) -> Result<usize, DecodeError> {
        let written = self.dst.len();
        match self.from {
            1 => self.read::<1>(convert)?,
            2 => self.read::<2>(convert)?,
            4 => self.read::<4>(convert)?,
            _ => self.read::<8>(convert)?,
        }
        Ok(written)
    }

    fn read<const FROM: usize>(
        self,
        convert: impl Fn(u64) -> Result<u64, DecodeError>,
    ) -> Result<(), DecodeError> {
        match self.to {
            1 => self.write::<FROM, 1>(convert),
            2 => self.write::<FROM, 2>(convert),
            4 => self.write::<FROM, 4>(convert),
            _ => self.write::<FROM, 8>(convert),
        }
    }

    fn write<const FROM: usize, const TO: usize>(
        self,
        convert: impl Fn(u64) -> Result<u64, DecodeError>,
    ) -> Result<(), DecodeError> {
        let (from, _) = self.src.as_chunks::<FROM>();
        let (to, _) = self.dst.as_chunks_mut::<TO>();
        for (from, to) in from.iter().zip(to) {
            let converted = convert(word(from))?.to_le_bytes();
            to.iter_mut()
                .zip(converted)
                .for_each(|(to, byte)| *to = byte);
        }
        Ok(())
    }
}
