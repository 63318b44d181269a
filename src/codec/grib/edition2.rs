//! GRIB edition 2 (FM 92 GRIB, edition 2): sections 3, 5, 6 and 7 of a message.

use grib::Grib2SubmessageDecoder;

use super::bits::{Bitmap, Bits, array, signed16};
use super::{Scale, Values};
use crate::codec::error::{DecodeError, part, part_mut};

/// Packed numbers from here on are not exact in the `f32` of the crate.
const LIMIT: f32 = 16_777_216.0;
/// The value of section 6 if no point is missing, and if the bitmap follows (code table 6.0).
const NO_BITMAP: u8 = 255;
const OWN_BITMAP: u8 = 0;

/// The memory that the crate takes for a point: an image of up to 8 bytes, and the samples and
/// coefficients of JPEG 2000.
const POINT_BYTES: usize = 24;

/// The sections of the first field of a message.
struct Field<'a> {
    points: usize,
    /// Section 5.
    representation: &'a [u8],
    /// Section 6.
    bitmap: &'a [u8],
    /// Section 7.
    data: &'a [u8],
}

/// Returns the memory that the decoder takes, in bytes.
pub(super) fn working_bytes(src: &[u8]) -> usize {
    let points = Field::find(src).map_or(0, |field| field.points);
    points.saturating_mul(POINT_BYTES).saturating_add(src.len())
}

/// Decodes a message.
///
/// # Errors
/// The message is damaged, has another number of values, or another packing.
pub(super) fn decode(src: &[u8], values: &mut Values<'_>) -> Result<(), DecodeError> {
    let field = Field::find(src)?;
    if field.points != values.left() {
        let what = format!("{} values, {} expected", field.points, values.left());
        return Err(DecodeError::corrupt(what));
    }
    let bitmap = field.bitmap()?;
    let count = u32::from_be_bytes(array(field.representation, 5)?) as usize;
    let present = bitmap.count(field.points)?;
    if present != count {
        let what = format!("{count} packed values, {present} in the bitmap");
        return Err(DecodeError::corrupt(what));
    }
    let template = u16::from_be_bytes(array(field.representation, 9)?);
    match template {
        0 => field.simple(bitmap, values),
        4 => field.ieee(bitmap, values),
        40..=42 if field.width()? == 0 => field.simple(bitmap, values),
        2 | 3 | 40..=42 => field.packed(template, count, values),
        _ => {
            let what = format!("data representation template 5.{template} is not supported");
            Err(DecodeError::corrupt(what))
        }
    }
}

impl<'a> Field<'a> {
    fn find(src: &'a [u8]) -> Result<Self, DecodeError> {
        let length = u64::from_be_bytes(array(src, 8)?);
        let length = usize::try_from(length).ok();
        let Some(message) = length.and_then(|length| src.get(..length)) else {
            let what = format!("{} bytes of a longer message", src.len());
            return Err(DecodeError::corrupt(what));
        };
        let mut rest = part(message, 16..message.len())?;
        let mut found = [None; 8];
        loop {
            let length = u32::from_be_bytes(array(rest, 0)?) as usize;
            let [number] = array(rest, 4)?;
            let Some((section, after)) = rest.split_at_checked(length).filter(|_| length >= 5)
            else {
                let what = format!("a section of {length} bytes, {} are left", rest.len());
                return Err(DecodeError::corrupt(what));
            };
            rest = after;
            if let Some(place) = found.get_mut(usize::from(number)) {
                *place = Some(section);
            }
            if number == 7 {
                break;
            }
        }
        let [
            ..,
            Some(grid),
            _,
            Some(representation),
            Some(bitmap),
            Some(data),
        ] = found
        else {
            return Err(DecodeError::corrupt("a section is missing"));
        };
        Ok(Self {
            points: u32::from_be_bytes(array(grid, 6)?) as usize,
            representation,
            bitmap,
            data,
        })
    }

    fn bitmap(&self) -> Result<Bitmap<'a>, DecodeError> {
        let [indicator] = array(self.bitmap, 5)?;
        match indicator {
            NO_BITMAP => Ok(Bitmap::new(None)),
            OWN_BITMAP => Ok(Bitmap::new(self.bitmap.get(6..))),
            _ => Err(DecodeError::corrupt(format!(
                "bitmap indicator {indicator} is not supported"
            ))),
        }
    }

    fn scale(&self) -> Result<Scale, DecodeError> {
        let template = self.representation;
        Ok(Scale {
            reference: f32::from_be_bytes(array(template, 11)?).into(),
            binary: signed16(template, 15)?,
            decimal: signed16(template, 17)?,
        })
    }

    /// Returns the number of bits of a packed value.
    fn width(&self) -> Result<u8, DecodeError> {
        let [width] = array(self.representation, 19)?;
        Ok(width)
    }

    /// Template 5.0, and the constant fields of other templates, which have no bits for a value.
    fn simple(&self, mut bitmap: Bitmap<'_>, values: &mut Values<'_>) -> Result<(), DecodeError> {
        let width = self.width()?;
        if width > 64 {
            return Err(DecodeError::corrupt(format!("values of {width} bits")));
        }
        let mut numbers = Bits::new(part(self.data, 5..self.data.len())?, width);
        values.extend_scaled(
            self.scale()?.of_width(width),
            std::iter::repeat_with(|| match bitmap.next()? {
                #[expect(clippy::cast_precision_loss, reason = "as ecCodes converts")]
                true => Ok(Some(numbers.next()? as f64)),
                false => Ok(None),
            }),
        )
    }

    /// Template 5.4: IEEE floating point.
    fn ieee(&self, mut bitmap: Bitmap<'_>, values: &mut Values<'_>) -> Result<(), DecodeError> {
        let [precision] = array(self.representation, 11)?;
        let mut at = 5;
        for _ in 0..values.left() {
            let (value, size) = match (bitmap.next()?, precision) {
                (false, _) => (values.library.missing(), 0),
                (true, 1) => (f32::from_be_bytes(array(self.data, at)?).into(), 4),
                (true, 2) => (f64::from_be_bytes(array(self.data, at)?), 8),
                _ => {
                    let what = format!("precision {precision} of template 5.4 is not supported");
                    return Err(DecodeError::corrupt(what));
                }
            };
            at += size;
            values.push(value)?;
        }
        Ok(())
    }

    /// The templates that the crate unpacks.
    fn packed(
        &self,
        template: u16,
        count: usize,
        values: &mut Values<'_>,
    ) -> Result<(), DecodeError> {
        match template {
            2 => self.check_groups(0, count)?,
            3 => {
                let [order, bytes] = array(self.representation, 47)?;
                self.check_groups((usize::from(order) + 1) * usize::from(bytes), count)?;
            }
            40 => {
                self.check_image(&[0xff, 0x4f, 0xff, 0x51], 8, count)?;
                // The origin of the image, and one component (ISO/IEC 15444-1, A.5.1).
                if array(self.data, 5 + 16)? != [0; 8] || array(self.data, 5 + 40)? != [0, 1] {
                    return Err(DecodeError::corrupt(
                        "an image with an offset or with colours",
                    ));
                }
            }
            41 => self.check_image(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16, count)?,
            _ => {}
        }
        let mut representation = self.representation.to_vec();
        // A scale of 1, and original values that are floating point: their type changes no value.
        part_mut(&mut representation, 11..19)?.fill(0);
        part_mut(&mut representation, 20..21)?.fill(0);
        let sections = (representation, self.bitmap.to_vec(), self.data.to_vec());
        let decoder = Grib2SubmessageDecoder::new(self.points, sections.0, sections.1, sections.2)
            .map_err(corrupt)?;
        let numbers = decoder.dispatch().map_err(corrupt)?;
        values.extend_scaled(
            self.scale()?,
            numbers.map(|number| match number {
                _ if number.is_nan() => Ok(None),
                _ if number.abs() < LIMIT => Ok(Some(f64::from(number))),
                _ => Err(DecodeError::corrupt(format!(
                    "values of more than 24 bits in template 5.{template} are not supported"
                ))),
            }),
        )
    }

    /// Checks that the groups of complex packing have as many values as the field. `extra` is the number of bytes
    /// before their descriptions.
    fn check_groups(&self, extra: usize, count: usize) -> Result<(), DecodeError> {
        let template = self.representation;
        let word = |at| array(template, at).map(u32::from_be_bytes);
        let [width_bits] = array(template, 36)?;
        let [increment] = array(template, 41)?;
        let [length_bits] = array(template, 46)?;
        let (groups, least, last) = (word(31)? as usize, word(37)?, word(42)?);
        let data = part(self.data, 5..self.data.len())?;
        let skipped = [self.width()?, width_bits].map(|bits| {
            let bits = groups.saturating_mul(usize::from(bits));
            bits.div_ceil(8)
        });
        let start = skipped
            .iter()
            .fold(extra, |at, size| at.saturating_add(*size));
        let too_many = || DecodeError::corrupt(format!("groups of more than {count} values"));
        // Each group but the last one has a value.
        if groups > count.saturating_add(1) || length_bits > 32 {
            return Err(too_many());
        }
        let mut lengths = Bits::new(data.get(start..).unwrap_or_default(), length_bits);
        let mut total = u64::from(last);
        for _ in 1..groups {
            let length = lengths.next()?.saturating_mul(increment.into());
            total = total.saturating_add(length).saturating_add(least.into());
            if total > count as u64 {
                return Err(too_many());
            }
        }
        match total == count as u64 {
            true => Ok(()),
            false => Err(DecodeError::corrupt(format!(
                "groups of {total} values, {count} expected"
            ))),
        }
    }

    /// Checks that an image has as many pixels as the field. Its size is at `at`, after a header of this beginning.
    fn check_image(&self, beginning: &[u8], at: usize, count: usize) -> Result<(), DecodeError> {
        let image = part(self.data, 5..self.data.len())?;
        if !image.starts_with(beginning) {
            return Err(DecodeError::corrupt("not an image of the template"));
        }
        let size = |at| array(image, at).map(u32::from_be_bytes);
        let pixels = u64::from(size(at)?).saturating_mul(size(at + 4)?.into());
        match pixels == count as u64 {
            true => Ok(()),
            false => Err(DecodeError::corrupt(format!(
                "an image of {pixels} pixels, {count} expected"
            ))),
        }
    }
}

fn corrupt(error: grib::GribError) -> DecodeError {
    DecodeError::corrupt(error.to_string())
}
