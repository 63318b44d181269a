//! GRIB edition 1, in simple packing (WMO, Manual on Codes, FM 92-XI Ext. GRIB).

use super::bits::{Bitmap, Bits, array, signed16};
use super::{Scale, Values};
use crate::codec::error::{DecodeError, part};

/// The product definition has a grid description.
const HAS_GRID: u8 = 0x80;
/// The product definition has a bitmap.
const HAS_BITMAP: u8 = 0x40;
/// Spherical harmonics, complex packing, or flags that follow (code table 11, bits 1, 2 and 4).
const NOT_SIMPLE: u8 = 0xd0;

/// Decodes a message.
///
/// # Errors
/// The message is damaged, has another number of values, or another packing.
pub(super) fn decode(src: &[u8], values: &mut Values<'_>) -> Result<(), DecodeError> {
    let mut rest = part(src, 8..src.len())?;
    let product = section(&mut rest)?;
    let [flags] = array(product, 7)?;
    let decimal = signed16(product, 26)?;
    let points = values.left();
    if flags & HAS_GRID != 0 {
        check_grid(section(&mut rest)?, points)?;
    }
    let bitmap = match flags & HAS_BITMAP != 0 {
        false => None,
        true => Some(bitmap(section(&mut rest)?, points)?),
    };
    let data = section(&mut rest)?;
    let [flags] = array(data, 3)?;
    if flags & NOT_SIMPLE != 0 {
        let what = format!(
            "packing {:#04x} of GRIB edition 1 is not supported",
            flags >> 4
        );
        return Err(DecodeError::corrupt(what));
    }
    let [width] = array(data, 10)?;
    if width > 64 {
        return Err(DecodeError::corrupt(format!("values of {width} bits")));
    }
    let scale = Scale {
        reference: ibm_float(array(data, 6)?),
        binary: signed16(data, 4)?,
        decimal,
    };
    let mut bitmap = Bitmap::new(bitmap);
    let packed = part(data, 11..data.len())?;
    let bits = packed.len() * 8;
    let unused = usize::from(flags & 0x0f);
    let count = bitmap.count(points)?;
    let expected = count.saturating_mul(usize::from(width));
    // Some writers pad to an even length without counting the bits.
    if bits.saturating_sub(unused) < expected || bits > expected.saturating_add(unused + 16) {
        let what = format!("{bits} bits of packed values, {expected} expected");
        return Err(DecodeError::corrupt(what));
    }
    let mut numbers = Bits::new(packed, width);
    values.extend_scaled(
        scale.of_width(width),
        std::iter::repeat_with(|| match bitmap.next()? {
            #[expect(clippy::cast_precision_loss, reason = "as ecCodes converts")]
            true => Ok(Some(numbers.next()? as f64)),
            false => Ok(None),
        }),
    )
}

/// Checks that a grid of rows and columns has as many points as the chunk has values.
fn check_grid(section: &[u8], points: usize) -> Result<(), DecodeError> {
    let [columns, rows] = [6, 8].map(|at| array(section, at).map(u16::from_be_bytes));
    let (columns, rows) = (columns?, rows?);
    // Rows of different lengths are listed after the grid.
    let is_regular = columns != u16::MAX && rows != u16::MAX;
    let found = usize::from(columns) * usize::from(rows);
    match !is_regular || found == points {
        true => Ok(()),
        false => Err(DecodeError::corrupt(format!(
            "{found} values, {points} expected"
        ))),
    }
}

/// Takes the next section, which begins with its length in three bytes.
fn section<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let [a, b, c] = array(rest, 0)?;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    // ecCodes counts lengths above 8 MiB in units of 120 bytes.
    let found = match rest.split_at_checked(length) {
        Some((section, after)) if (4..1 << 23).contains(&length) => {
            *rest = after;
            section
        }
        _ => {
            let what = format!("a section of {length} bytes, {} are left", rest.len());
            return Err(DecodeError::corrupt(what));
        }
    };
    Ok(found)
}

/// Returns the bits of a bitmap section.
fn bitmap(section: &[u8], points: usize) -> Result<&[u8], DecodeError> {
    let [unused] = array(section, 3)?;
    if array(section, 4)? != [0, 0] {
        return Err(DecodeError::corrupt("predefined bitmaps are not supported"));
    }
    let bytes = part(section, 6..section.len())?;
    let found = (bytes.len() * 8).checked_sub(usize::from(unused));
    match found == Some(points) {
        true => Ok(bytes),
        false => Err(DecodeError::corrupt(format!(
            "a bitmap of {} bytes for {points} values",
            bytes.len()
        ))),
    }
}

/// Returns a number in the format of IBM System/360: a sign, an exponent of 16, and a fraction of 24 bits.
fn ibm_float(bytes: [u8; 4]) -> f64 {
    let [head, a, b, c] = bytes;
    let fraction = f64::from(u32::from_be_bytes([0, a, b, c])) / f64::from(1 << 24);
    let value = fraction * 16_f64.powi(i32::from(head & 0x7f) - 64);
    if head & 0x80 == 0 { value } else { -value }
}
