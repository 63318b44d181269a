//! The text of one element in a CSV file.

use std::io::Write as _;

use half::f16;

use crate::conventions::cf::calendar::{Date, UNIX_EPOCH, gregorian_date};
use crate::node::{Number, NumberKind, Value};
use crate::zarr::data_type::{TimeBase, TimeUnit};
use crate::zarr::{ByteOrder, Fixed, Scalar};

/// The conversion of an element to text without commas and quotes. R, pandas and DuckDB read all texts as
/// values of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellFormat {
    /// `TRUE` or `FALSE`.
    Boolean,
    Integer(Number),
    /// The shortest decimal that identifies the number among those of its type.
    Float(Number),
    /// ISO 8601 in the resolution of the unit; empty for "not a time" (NaT).
    Time(ByteOrder, TimeUnit),
    /// The count of units; empty for "not a time" (NaT).
    Count(ByteOrder),
}

const SECONDS_OF_DAY: i128 = 86_400;

impl CellFormat {
    /// Returns the text form of the elements of an array.
    ///
    /// # Errors
    /// The data type has no text form in a single column.
    pub(super) fn of(data_type: &Fixed) -> Result<Self, String> {
        match (&data_type.scalar, Number::of(data_type)) {
            (Scalar::Bool, _) => Ok(Self::Boolean),
            (Scalar::DateTime { order, unit }, _) if decimals(unit.base).is_some() => {
                Ok(Self::Time(*order, *unit))
            }
            (Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. }, _) => {
                Ok(Self::Count(*order))
            }
            (_, Some((number, 1))) if number.kind == NumberKind::Float => Ok(Self::Float(number)),
            (_, Some((number, 1))) => Ok(Self::Integer(number)),
            _ => Err(format!(
                "one column has no values of the data type {data_type}"
            )),
        }
    }

    /// Returns the maximum length of a value, in characters.
    pub(super) fn width(self) -> u64 {
        match self {
            Self::Boolean => 5,
            Self::Integer(number) => match number.size_bytes {
                1 => 4,
                2 => 6,
                4 => 11,
                _ => 20,
            },
            // `-1558865100000.0`, the longest text of any 32-bit number; `-1.2345678901234567e-308`.
            Self::Float(number) if number.size_bytes < 8 => 16,
            Self::Float(_) => 24,
            Self::Time(_, unit) => {
                let years = unit_years(unit);
                // The sign, two hyphens, months and days.
                let date = 1 + years + 6;
                match decimals(unit.base) {
                    None => date,
                    Some(_) if is_date(unit.base) => date,
                    Some(0) => date + 9,
                    Some(decimals) => date + 10 + decimals as u64,
                }
            }
            Self::Count(_) => 20,
        }
    }

    /// Returns whether the text of each value is a number; readers skip blanks before a number.
    pub(super) fn is_always_number(self) -> bool {
        matches!(self, Self::Integer(_))
    }

    /// Appends the text of an element; `None` if its size is wrong.
    pub(super) fn write(self, element: &[u8], text: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Boolean => text.extend_from_slice(match element {
                [0] => b"FALSE",
                [_] => b"TRUE",
                _ => return None,
            }),
            Self::Integer(number) => match number.read(element)? {
                Value::Int(value) => integer(value, text),
                Value::Float(_) => return None,
            },
            Self::Float(number) => float(number, element, text)?,
            Self::Count(order) => match word(order, element)? {
                i64::MIN => {}
                count => integer(count.into(), text),
            },
            Self::Time(order, unit) => match word(order, element)? {
                i64::MIN => {}
                count => time(count, unit, text)?,
            },
        }
        Some(())
    }
}

fn word(order: ByteOrder, element: &[u8]) -> Option<i64> {
    let word = <[u8; 8]>::try_from(element).ok()?;
    Some(match order {
        ByteOrder::Little => i64::from_le_bytes(word),
        ByteOrder::Big => i64::from_be_bytes(word),
    })
}

fn integer(value: i128, text: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => buffer.format(value),
        (_, Ok(value)) => buffer.format(value),
        _ => buffer.format(value),
    };
    text.extend_from_slice(digits.as_bytes());
}

fn float(number: Number, element: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let mut word = [0; 8];
    word.get_mut(..number.size_bytes)?.copy_from_slice(element);
    if number.order == ByteOrder::Big {
        word.get_mut(..number.size_bytes)?.reverse();
    }
    let [a, b, c, d, ..] = word;
    let short = match number.size_bytes {
        2 => Some(f16::from_le_bytes([a, b]).to_f32()),
        4 => Some(f32::from_le_bytes([a, b, c, d])),
        _ => None,
    };
    let value = short.map_or_else(|| f64::from_le_bytes(word), f64::from);
    let mut buffer = zmij::Buffer::new();
    text.extend_from_slice(match (value, short) {
        (value, _) if value.is_nan() => b"NaN",
        (f64::INFINITY, _) => b"inf",
        (f64::NEG_INFINITY, _) => b"-inf",
        (_, Some(short)) => buffer.format_finite(short).as_bytes(),
        (value, None) => buffer.format_finite(value).as_bytes(),
    });
    Some(())
}

/// Returns the decimals of a second of times in a unit; `None` if the unit does not determine a date.
fn decimals(base: TimeBase) -> Option<usize> {
    Some(match base {
        TimeBase::Year | TimeBase::Month | TimeBase::Week | TimeBase::Day => 0,
        TimeBase::Hour | TimeBase::Minute | TimeBase::Second => 0,
        TimeBase::Millisecond => 3,
        TimeBase::Microsecond => 6,
        TimeBase::Nanosecond => 9,
        TimeBase::Picosecond => 12,
        TimeBase::Femtosecond => 15,
        TimeBase::Attosecond => 18,
        TimeBase::Generic => return None,
    })
}

/// Returns whether times in a unit have no time of day.
fn is_date(base: TimeBase) -> bool {
    matches!(
        base,
        TimeBase::Year | TimeBase::Month | TimeBase::Week | TimeBase::Day
    )
}

/// Returns the number of digits of the longest year.
fn unit_years(unit: TimeUnit) -> u64 {
    let year = year_of(i64::MAX, unit).unwrap_or(i128::MAX);
    u64::from(year.max(1000).ilog10()) + 1
}

fn year_of(count: i64, unit: TimeUnit) -> Option<i128> {
    match split(count, unit)? {
        Moment::Month(month) => Some(1970 + month.div_euclid(12)),
        Moment::Time { day, .. } => Some(gregorian_date(UNIX_EPOCH + day).0),
    }
}

enum Moment {
    /// Months since 1970.
    Month(i128),
    /// Days since 1970, seconds of the day, and units of a fraction of a second.
    Time {
        day: i128,
        second: i128,
        fraction: i128,
    },
}

fn split(count: i64, unit: TimeUnit) -> Option<Moment> {
    let count = i128::from(count) * i128::from(unit.count);
    let seconds = match unit.base {
        TimeBase::Year => return Some(Moment::Month(count * 12)),
        TimeBase::Month => return Some(Moment::Month(count)),
        TimeBase::Week => 7 * SECONDS_OF_DAY,
        TimeBase::Day => SECONDS_OF_DAY,
        TimeBase::Hour => 3600,
        TimeBase::Minute => 60,
        _ => 1,
    };
    let parts = 10_i128.pow(u32::try_from(decimals(unit.base)?).ok()?);
    let (whole, fraction) = (count.div_euclid(parts), count.rem_euclid(parts));
    let seconds = whole * seconds;
    Some(Moment::Time {
        day: seconds.div_euclid(SECONDS_OF_DAY),
        second: seconds.rem_euclid(SECONDS_OF_DAY),
        fraction,
    })
}

fn time(count: i64, unit: TimeUnit, text: &mut Vec<u8>) -> Option<()> {
    let (day, second, fraction) = match split(count, unit)? {
        Moment::Month(month) => {
            let (year, month) = (1970 + month.div_euclid(12), month.rem_euclid(12) + 1);
            return write_date((year, month, 1), text);
        }
        Moment::Time {
            day,
            second,
            fraction,
        } => (gregorian_date(UNIX_EPOCH + day), second, fraction),
    };
    write_date(day, text)?;
    if is_date(unit.base) {
        return Some(());
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(text, "T{hour:02}:{minute:02}:{second:02}").ok()?;
    match decimals(unit.base)? {
        0 => Some(()),
        decimals => write!(text, ".{fraction:0decimals$}").ok(),
    }
}

fn write_date((year, month, day): Date, text: &mut Vec<u8>) -> Option<()> {
    let sign = if year < 0 { "-" } else { "" };
    let year = year.unsigned_abs();
    write!(text, "{sign}{year:04}-{month:02}-{day:02}").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: CellFormat, element: &[u8]) -> String {
        let mut text = Vec::new();
        cell.write(element, &mut text).unwrap();
        assert!(text.len() as u64 <= cell.width(), "{cell:?}");
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_read_back_as_they_are() {
        let float =
            |size| CellFormat::Float(Number::new(NumberKind::Float, size, ByteOrder::Little));
        for value in [
            f64::MAX,
            -f64::MIN_POSITIVE,
            5e-324,
            -1.234_567_890_123_456_7e-300,
            0.1,
            -0.0,
        ] {
            assert_eq!(text(float(8), &value.to_le_bytes()).parse(), Ok(value));
        }
        let longest = [-1.558_865_1e12, -1.000_000_1e-6];
        for value in [f32::MAX, -f32::MIN_POSITIVE, -1.234_567_9e-38, 1e-45, 0.1]
            .into_iter()
            .chain(longest)
        {
            assert_eq!(text(float(4), &value.to_le_bytes()).parse(), Ok(value));
        }
        assert_eq!(
            text(float(2), &f16::from_f32(0.1).to_le_bytes()),
            "0.099975586"
        );
        assert_eq!(text(float(8), &f64::NAN.to_le_bytes()), "NaN");
        assert_eq!(text(float(4), &f32::NEG_INFINITY.to_le_bytes()), "-inf");
        let integer = |kind, size| CellFormat::Integer(Number::new(kind, size, ByteOrder::Big));
        assert_eq!(
            text(integer(NumberKind::UInt, 8), &[0xff; 8]),
            u64::MAX.to_string()
        );
        for (size, least) in [
            (1, "-128"),
            (2, "-32768"),
            (4, "-2147483648"),
            (8, "-9223372036854775808"),
        ] {
            let mut element = vec![0; size];
            element[0] = 0x80;
            let cell = integer(NumberKind::Int, size);
            assert_eq!(text(cell, &element), least);
            assert_eq!(cell.width(), least.len() as u64);
        }
        assert_eq!(text(CellFormat::Boolean, &[3]), "TRUE");
    }

    #[test]
    fn times_are_printed_as_dates_in_the_resolution_of_their_unit() {
        let time = |base, count, value: i64| {
            let cell = CellFormat::Time(ByteOrder::Big, TimeUnit { count, base });
            text(cell, &value.to_be_bytes())
        };
        assert_eq!(
            time(TimeBase::Nanosecond, 1, -1),
            "1969-12-31T23:59:59.999999999"
        );
        assert_eq!(
            time(TimeBase::Microsecond, 25, 2),
            "1970-01-01T00:00:00.000050"
        );
        assert_eq!(
            time(TimeBase::Second, 1, 951_782_400),
            "2000-02-29T00:00:00"
        );
        assert_eq!(time(TimeBase::Day, 1, 19_000), "2022-01-08");
        assert_eq!(time(TimeBase::Month, 1, -1), "1969-12-01");
        assert_eq!(time(TimeBase::Second, 1, i64::MIN), "");
        assert_eq!(
            time(TimeBase::Second, 1, i64::MIN + 1),
            "-292277022657-01-27T08:29:53"
        );
        let bases = [
            TimeBase::Year,
            TimeBase::Week,
            TimeBase::Hour,
            TimeBase::Attosecond,
        ];
        for value in [i64::MAX, i64::MIN + 1] {
            for base in bases {
                time(base, u32::MAX, value);
            }
        }
    }
}
