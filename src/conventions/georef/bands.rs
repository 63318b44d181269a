//! The names of bands: coordinates of their axes, with times as dates.

use std::fmt::Write as _;

use super::axis::coordinates;
use super::context::{Context, Notes, short};
use super::raster::Raster;
use crate::conventions::cf::time::{TimeUnits, UNIX_EPOCH, gregorian_date};
use crate::conventions::text::{is_plain, shown};
use crate::fallible;
use crate::node::{ContentError, Value, ViewNode};
use crate::zarr::data_type::{TimeBase, TimeUnit};
use crate::zarr::{DataType, Scalar, Variable};

/// The maximum length of a text that is the coordinate of a band, in bytes.
const MAX_WORD_BYTES: usize = 256;

/// The names of bands.
#[derive(Debug)]
pub(crate) struct Bands {
    pub(crate) axes: Vec<BandAxis>,
}

#[derive(Debug)]
pub(crate) struct BandAxis {
    pub(crate) length: u64,
    pub(crate) name: Option<String>,
    pub(crate) units: Option<String>,
    /// The coordinates as text; `None` for unknown coordinates.
    pub(crate) coordinates: Option<Vec<Option<String>>>,
}

impl Bands {
    /// Reads the coordinates of the axes of bands.
    pub(crate) fn of(
        context: &Context<'_>,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let lengths = match raster.is_chunky {
            true => vec![raster.samples],
            false => raster.planes.clone(),
        };
        let mut axes = Vec::new();
        for (length, name) in lengths.into_iter().zip(&raster.band_axes) {
            let mut axis = BandAxis {
                length,
                name: name.clone().filter(|name| is_plain(name)),
                units: None,
                coordinates: None,
            };
            if let Some(name) = &axis.name
                && let Some(node) = context.coordinate(name, length)?
            {
                match places(context, &node, length)? {
                    Ok(places) => {
                        axis.coordinates = Some(places);
                        axis.units = units_of(&node).filter(|units| is_plain(units));
                    }
                    Err(why) => notes.add(format!("coordinates {}: {why}", short(name))),
                }
            }
            axes.push(axis);
        }
        Ok(Self { axes })
    }

    /// Returns the axes with coordinates in a unit, and the unit.
    pub(crate) fn units(&self) -> impl Iterator<Item = (&str, &str)> {
        let axes = self.axes.iter();
        axes.filter_map(|axis| axis.name.as_deref().zip(axis.units.as_deref()))
    }

    /// Returns whether both have the same coordinates.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        self.axes.len() == other.axes.len()
            && self.axes.iter().zip(&other.axes).all(|(one, other)| {
                (one.length, &one.name, &one.units, &one.coordinates)
                    == (other.length, &other.name, &other.units, &other.coordinates)
            })
    }

    /// Returns the name of a band: its coordinate along each named axis.
    pub(crate) fn name(&self, band: u64) -> Option<String> {
        let mut left = band;
        let mut words = Vec::new();
        for axis in self.axes.iter().rev() {
            let at = left % axis.length.max(1);
            left /= axis.length.max(1);
            let Some(name) = &axis.name else {
                continue;
            };
            let place = usize::try_from(at).unwrap_or(usize::MAX);
            let value = axis.coordinates.as_ref();
            words.push(match value.and_then(|values| values.get(place)) {
                Some(Some(value)) => format!("{name}={value}"),
                _ => format!("{name}[{at}]"),
            });
        }
        words.reverse();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// Returns the unit of an axis; `None` for times, which are written as dates.
fn units_of(node: &ViewNode) -> Option<String> {
    let array = node.metadata().as_array()?;
    let scalar = node.array_view().map(|view| &view.data_type().scalar);
    let is_time = matches!(scalar, Some(Scalar::DateTime { .. }));
    let units = array.attribute("units")?.as_str()?;
    (!is_time && time_units(node).is_none()).then(|| units.to_owned())
}

/// Returns the CF time unit of an axis, if the axis has one.
fn time_units(node: &ViewNode) -> Option<TimeUnits> {
    let array = node.metadata().as_array()?;
    let calendar = match array.attribute("calendar") {
        None => None,
        Some(calendar) => Some(calendar.as_str()?),
    };
    TimeUnits::of(array.attribute("units")?.as_str()?, calendar)
}

/// Returns the coordinates of a band axis as text. The inner error is the reason why they cannot be used.
fn places(
    context: &Context<'_>,
    node: &ViewNode,
    length: u64,
) -> Result<Result<Vec<Option<String>>, String>, ContentError> {
    if let Some(why) = node.broken() {
        return Ok(Err(why.to_owned()));
    }
    if node.metadata().as_array().map(|array| &array.shape[..]) != Some(&[length]) {
        return Ok(Err("not one place for each band".into()));
    }
    let scalar = node.array_view().map(|view| &view.data_type().scalar);
    if let Some(Scalar::DateTime { unit, .. } | Scalar::TimeDelta { unit, .. }) = scalar {
        let numbers = match context.nodes.numbers(node, length) {
            Ok(numbers) => numbers,
            Err(ContentError::Absent(why)) => return Ok(Err(why)),
            Err(error) => return Err(error),
        };
        if !matches!(scalar, Some(Scalar::DateTime { .. })) {
            return Ok(Err("durations are not written".into()));
        }
        let dates = numbers.iter().map(|value| date(value.whole()?, unit));
        return Ok(Ok(fallible::collect(dates)?));
    }
    if is_text(node) {
        return Ok(match context.nodes.texts(node) {
            Ok(texts) => Ok(fallible::collect(texts.iter().map(|text| word(text)))?),
            Err(ContentError::Absent(why)) => Err(why),
            Err(error) => return Err(error),
        });
    }
    let found = coordinates(context, node, length)?;
    let times = time_units(node);
    let texts = found.map(|found| {
        let is_packed = found.scale != 1.0 || found.offset != 0.0;
        let text = |value: &Value| match *value {
            Value::Float(value) if value.is_nan() => None,
            value if times.is_some() => times?.date(match is_packed {
                true => Value::Float(value.float() * found.scale + found.offset),
                false => value,
            }),
            value if is_packed => Some(rounded(value.float() * found.scale + found.offset, 12)),
            // Only the digits of its type.
            Value::Float(value) if !found.is_exact => Some(shown_single(value)),
            value => Some(shown(value)),
        };
        fallible::collect(found.numbers.iter().map(text))
    });
    Ok(match texts {
        Ok(texts) => Ok(texts?),
        Err(why) => Err(why),
    })
}

/// Returns whether the elements of an array are text, or may be.
fn is_text(node: &ViewNode) -> bool {
    let data_type = node.metadata().as_array().map(|array| &array.data_type);
    match data_type {
        Some(Ok(DataType::Fixed(fixed))) => matches!(fixed.scalar, Scalar::Text(_)),
        Some(Ok(DataType::Variable(variable))) => {
            matches!(variable, Variable::Text | Variable::Object)
        }
        _ => false,
    }
}

/// Returns a text as a coordinate; `None` if it cannot be a part of the name of a band.
fn word(text: &str) -> Option<String> {
    let is_word = !text.is_empty() && text.len() <= MAX_WORD_BYTES && is_plain(text);
    is_word.then(|| text.to_owned())
}

/// Rounds a number to `digits` digits after the first one.
fn rounded(value: f64, digits: usize) -> String {
    let value = format!("{value:.digits$e}").parse().unwrap_or(value);
    shown(Value::Float(value))
}

/// Returns the shortest text of a number in single precision.
#[expect(clippy::cast_possible_truncation, reason = "it was one")]
fn shown_single(value: f64) -> String {
    let text = (value as f32).to_string();
    shown(Value::Float(text.parse().unwrap_or(value)))
}

/// Formats a numpy time in ISO 8601; `None` for NaT and for unsupported units.
fn date(count: i128, unit: &TimeUnit) -> Option<String> {
    if count == i128::from(i64::MIN) {
        return None;
    }
    let (days, digits) = (86_400_i128, unit_digits(unit.base));
    // The number of fractions in a second.
    let parts = 10_i128.pow(digits);
    let of_one = match unit.base {
        TimeBase::Week => 7 * days,
        TimeBase::Day => days,
        TimeBase::Hour => 3600,
        TimeBase::Minute => 60,
        TimeBase::Second => 1,
        TimeBase::Millisecond | TimeBase::Microsecond | TimeBase::Nanosecond => 0,
        _ => return None,
    };
    let count = count * i128::from(unit.count);
    let (seconds, part) = match of_one {
        0 => (count.div_euclid(parts), count.rem_euclid(parts)),
        of_one => (count * of_one, 0),
    };
    let (day, second) = (seconds.div_euclid(days), seconds.rem_euclid(days));
    let (year, month, day) = gregorian_date(UNIX_EPOCH + day)?;
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if of_one < days {
        let (hour, minute) = (second / 3600, second / 60 % 60);
        // Writing to a String is infallible.
        let _ = write!(text, "T{hour:02}:{minute:02}:{:02}", second % 60);
        if part != 0 {
            let part = format!("{part:0width$}", width = digits as usize);
            let _ = write!(text, ".{}", part.trim_end_matches('0'));
        }
    }
    Some(text)
}

const fn unit_digits(base: TimeBase) -> u32 {
    match base {
        TimeBase::Millisecond => 3,
        TimeBase::Microsecond => 6,
        TimeBase::Nanosecond => 9,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_written_with_their_digits() {
        assert_eq!(rounded(8500.0 * 0.1, 12), "850");
        assert_eq!(rounded(3.0 * 0.1, 12), "0.3");
        assert_eq!(shown_single(f64::from(0.1_f32)), "0.1");
        let unit = |base| TimeUnit { count: 1, base };
        for (count, base, expected) in [
            (0, TimeBase::Day, Some("1970-01-01")),
            (-1, TimeBase::Day, Some("1969-12-31")),
            (11_016, TimeBase::Day, Some("2000-02-29")),
            (951_868_799, TimeBase::Second, Some("2000-02-29T23:59:59")),
            (
                -1,
                TimeBase::Nanosecond,
                Some("1969-12-31T23:59:59.999999999"),
            ),
            (1500, TimeBase::Millisecond, Some("1970-01-01T00:00:01.5")),
            (i128::from(i64::MIN), TimeBase::Second, None),
            (i128::from(i64::MAX), TimeBase::Day, None),
            (1, TimeBase::Generic, None),
        ] {
            assert_eq!(date(count, &unit(base)).as_deref(), expected, "{count}");
        }
    }
}
