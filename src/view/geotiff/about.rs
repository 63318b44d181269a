//! What GDAL reads beside the pixels: the value of pixels without data, scale and offset, units,
//! and what the bands are called.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::ifd::{Values, tag};
use super::raster::{Raster, one_of_list};
use super::scene::{Notes, Scene, number, short};
use super::side::{again, coordinates};
use crate::view::cf;
use crate::view::content::NoContent;
use crate::view::node::ViewNode;
use crate::view::number::{Number, Value};
use crate::zarr::Scalar;
use crate::zarr::data_type::{TimeBase, TimeUnit};

/// The longest text of an attribute, and of all together, that is written.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_METADATA_BYTES: usize = 2 << 20;
/// The most for scales and offsets: those of all bands that a TIFF can have.
const MAX_PACKING_BYTES: usize = 13 << 20;

/// What an array says of its numbers and of its bands.
#[derive(Debug)]
pub(super) struct About {
    no_data: Option<String>,
    offset: Option<String>,
    scale: Option<String>,
    units: Option<String>,
    long_name: Option<String>,
    standard_name: Option<String>,
    bands: Bands,
}

impl About {
    /// Reads it.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn of(
        scene: &Scene<'_>,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Self, NoContent> {
        let no_data = no_data(scene, raster, notes);
        // The bits that the array stores, as the numbers that the file has.
        let own = scene.view.number().map_or(raster.number, |(own, _)| own);
        let meant = Number {
            kind: raster.number.kind,
            ..own
        };
        let (offset, scale) = packing(scene, notes);
        let is_known = |value: &Json| matches!(value.as_str(), Some("true" | "false"));
        if scene.own("_Unsigned").is_some_and(|value| !is_known(value)) {
            notes.add("_Unsigned is neither \"true\" nor \"false\": left out");
        }
        Ok(Self {
            no_data: no_data.map(|value| shown(again(own, meant, value))),
            offset,
            scale,
            units: attribute_text(scene, "units", notes),
            long_name: attribute_text(scene, "long_name", notes),
            standard_name: attribute_text(scene, "standard_name", notes),
            bands: Bands::of(scene, raster, notes)?,
        })
    }

    /// What differs between the numbers and bands of two levels of a pyramid.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.no_data != other.no_data, "value without data"),
            (self.scale != other.scale, "scale_factor"),
            (self.offset != other.offset, "add_offset"),
            (self.units != other.units, "units"),
            (!self.bands.are_same(&other.bands), "order of bands"),
        ]
        .into_iter()
        .find_map(|(is_other, name)| is_other.then_some(name))
    }

    /// The tags of GDAL ("GTiff - GeoTIFF File Format", metadata and nodata).
    ///
    /// # Errors
    /// That scales and offsets are too much text: without them the numbers are read wrong.
    pub(super) fn fields(
        &self,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Vec<(u16, Values)>, String> {
        let mut fields = Vec::new();
        if let Some(value) = &self.no_data {
            fields.push((tag::GDAL_NODATA, Values::Text(value.clone())));
        }
        let metadata = self.metadata(raster.samples, notes)?;
        if !metadata.is_empty() {
            let text = format!("<GDALMetadata>\n{metadata}</GDALMetadata>\n");
            fields.push((tag::GDAL_METADATA, Values::Text(text)));
        }
        Ok(fields)
    }

    /// Items in the form of GDAL; nothing if there is nothing to say. Where it is too much, names
    /// of bands are left out first, then units.
    fn metadata(&self, samples: u64, notes: &mut Notes) -> Result<String, String> {
        let mut text = String::new();
        for (name, value) in [
            ("long_name", &self.long_name),
            ("standard_name", &self.standard_name),
        ] {
            if let Some(value) = value {
                item(&mut text, name, None, value);
            }
        }
        for (name, units) in self.bands.units() {
            item(&mut text, &format!("{name}#units"), None, units);
        }
        let of_each = |name, role, value: &Option<String>| {
            let mut text = String::new();
            let value = value.as_ref()?;
            for band in 0..samples {
                item(&mut text, name, Some((band, role)), value);
                if text.len() > MAX_PACKING_BYTES {
                    break;
                }
            }
            Some(text)
        };
        let offsets = of_each("OFFSET", "offset", &self.offset).unwrap_or_default();
        let scales = of_each("SCALE", "scale", &self.scale).unwrap_or_default();
        if offsets.len().saturating_add(scales.len()) > MAX_PACKING_BYTES {
            return Err(format!(
                "scales and offsets of {samples} bands are too much text"
            ));
        }
        text.push_str(&offsets);
        text.push_str(&scales);
        if let Some(units) = of_each("UNITTYPE", "unittype", &self.units) {
            if units.len() <= MAX_METADATA_BYTES {
                text.push_str(&units);
            } else {
                notes.add(format!(
                    "units of {samples} bands are left out: too much text"
                ));
            }
        }
        let before = text.len();
        for band in 0..samples {
            let description = match (samples, self.bands.name(band)) {
                (1, None) => self
                    .long_name
                    .as_ref()
                    .or(self.standard_name.as_ref())
                    .cloned(),
                (_, name) => name,
            };
            let Some(description) = description else {
                continue;
            };
            let at = Some((band, "description"));
            item(&mut text, "DESCRIPTION", at, &description);
            if text.len() > MAX_METADATA_BYTES.max(before) {
                text.truncate(before);
                notes.add(format!(
                    "names of {samples} bands are left out: too much text"
                ));
                break;
            }
        }
        Ok(text)
    }
}

/// Offset and scale: both as they are meant, or neither.
fn packing(scene: &Scene<'_>, notes: &mut Notes) -> (Option<String>, Option<String>) {
    let said = |name| match scene.own(name).map(one_of_list) {
        None => Ok(None),
        Some(value) => number(value).map(Some).ok_or(name),
    };
    match (said("add_offset"), said("scale_factor")) {
        (Ok(offset), Ok(scale)) => {
            let text = |value: Option<f64>| value.map(|value| shown(Value::Float(value)));
            (text(offset), text(scale))
        }
        (Err(name), _) | (_, Err(name)) => {
            notes.add(format!(
                "scale_factor and add_offset are left out: {name} is no number, and one without \
                 the other would be a wrong scale"
            ));
            (None, None)
        }
    }
}

/// The value that says that there is none: the attribute of CF, or with xarray's names of axes the
/// fill value of v2 itself.
fn no_data(scene: &Scene<'_>, raster: &Raster, notes: &mut Notes) -> Option<Value> {
    let data_type = scene.view.data_type();
    if raster.numbers > 1 || data_type.scalar == Scalar::Bool {
        return None;
    }
    // Before it was widened: a value that the array can not hold is in no pixel.
    let own = scene.view.number()?.0;
    let array = scene.view.array;
    let fill = cf::fill_value(array, own, &mut |why| notes.add(why));
    let missing = match &array.attributes {
        Ok(members) => cf::stated(members, "missing_value", own),
        Err(_) => Ok(None),
    };
    let missing = missing.unwrap_or_else(|why| {
        notes.add(why);
        None
    });
    match (fill, missing) {
        (Some(fill), Some(missing)) if shown(fill) != shown(missing) => {
            notes.add(format!(
                "missing_value {} is left out: there is one value without data, {}",
                shown(missing),
                shown(fill)
            ));
            Some(fill)
        }
        (fill, missing) => fill.or(missing),
    }
}

/// A number as C reads it, with all digits.
fn shown(value: Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) if value.is_nan() => "nan".into(),
        Value::Float(value) if value.is_infinite() => {
            if value > 0.0 { "inf" } else { "-inf" }.into()
        }
        Value::Float(value) if value != 0.0 && !(1e-5..1e16).contains(&value.abs()) => {
            format!("{value:e}")
        }
        Value::Float(value) => value.to_string(),
    }
}

/// A text of one line that XML can hold.
fn attribute_text(scene: &Scene<'_>, name: &str, notes: &mut Notes) -> Option<String> {
    let value = scene.own(name)?;
    let text = value.as_str().filter(|text| is_plain(text));
    if text.is_none() {
        notes.add(format!("{name} is no text of one line: left out"));
    }
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

fn is_plain(text: &str) -> bool {
    let is_character = |c: char| !c.is_control() && !matches!(c, '\u{FFFE}' | '\u{FFFF}');
    text.len() <= MAX_TEXT_BYTES && text.chars().all(is_character)
}

fn item(target: &mut String, name: &str, band: Option<(u64, &str)>, value: &str) {
    // GDAL escapes values before it makes them XML, and undoes both.
    let value = escape(&escape(value));
    // Writing to a String does not fail.
    let _ = match band {
        None => writeln!(target, "  <Item name=\"{}\">{value}</Item>", escape(name)),
        Some((band, role)) => writeln!(
            target,
            "  <Item name=\"{name}\" sample=\"{band}\" role=\"{role}\">{value}</Item>"
        ),
    };
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// What the bands are called.
#[derive(Debug)]
struct Bands {
    axes: Vec<BandAxis>,
}

#[derive(Debug)]
struct BandAxis {
    length: u64,
    name: Option<String>,
    units: Option<String>,
    /// None where a place is not known.
    coordinates: Option<Vec<Option<String>>>,
}

impl Bands {
    /// Reads the coordinates of the axes of bands.
    fn of(scene: &Scene<'_>, raster: &Raster, notes: &mut Notes) -> Result<Self, NoContent> {
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
                && let Some(node) = scene.coordinate(name)?
            {
                match places(scene, &node, length)? {
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

    /// Axes with coordinates in a unit, and the unit.
    fn units(&self) -> impl Iterator<Item = (&str, &str)> {
        let axes = self.axes.iter();
        axes.filter_map(|axis| axis.name.as_deref().zip(axis.units.as_deref()))
    }

    /// Whether the bands are at the same places.
    fn are_same(&self, other: &Self) -> bool {
        self.axes.len() == other.axes.len()
            && self.axes.iter().zip(&other.axes).all(|(one, other)| {
                (one.length, &one.name, &one.units, &one.coordinates)
                    == (other.length, &other.name, &other.units, &other.coordinates)
            })
    }

    /// The name of a band: the place along each named axis.
    fn name(&self, band: u64) -> Option<String> {
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

/// What the numbers of an axis count; times are written as dates.
fn units_of(node: &ViewNode) -> Option<String> {
    let array = node.metadata().as_array()?;
    let scalar = node.array_view().map(|view| &view.data_type().scalar);
    let is_time = matches!(scalar, Some(Scalar::DateTime { .. }));
    let units = array.attribute("units")?.as_str()?;
    (!is_time).then(|| units.to_owned())
}

/// The coordinates of an axis of bands as text; within, why they are none.
fn places(
    scene: &Scene<'_>,
    node: &ViewNode,
    length: u64,
) -> Result<Result<Vec<Option<String>>, String>, NoContent> {
    if let Some(why) = node.broken() {
        return Ok(Err(why.to_owned()));
    }
    let scalar = node.array_view().map(|view| &view.data_type().scalar);
    if let Some(Scalar::DateTime { unit, .. } | Scalar::TimeDelta { unit, .. }) = scalar {
        let numbers = match scene.around.numbers(node, length) {
            Ok(numbers) => numbers,
            Err(NoContent::Absent(why)) => return Ok(Err(why)),
            Err(error) => return Err(error),
        };
        if !matches!(scalar, Some(Scalar::DateTime { .. })) {
            return Ok(Err("durations are not written".into()));
        }
        return Ok(Ok(numbers
            .iter()
            .map(|value| date(value.whole()?, unit))
            .collect()));
    }
    let found = coordinates(scene, node, length)?;
    Ok(found.map(|found| {
        let is_packed = found.scale != 1.0 || found.offset != 0.0;
        let text = |value: &Value| match *value {
            Value::Float(value) if value.is_nan() => None,
            value if is_packed => Some(rounded(value.float() * found.scale + found.offset, 12)),
            // All the digits of its type and no others.
            Value::Float(value) if !found.is_exact => Some(shown_single(value)),
            value => Some(shown(value)),
        };
        found.numbers.iter().map(text).collect()
    }))
}

/// A number with so many digits after the first one, or fewer.
fn rounded(value: f64, digits: usize) -> String {
    let value = format!("{value:.digits$e}").parse().unwrap_or(value);
    shown(Value::Float(value))
}

/// The shortest text that is a number in single precision.
#[expect(clippy::cast_possible_truncation, reason = "it was one")]
fn shown_single(value: f64) -> String {
    let text = (value as f32).to_string();
    shown(Value::Float(text.parse().unwrap_or(value)))
}

/// A time of numpy in ISO 8601; none if it is not a time, or of a unit that is not written.
fn date(count: i128, unit: &TimeUnit) -> Option<String> {
    if count == i128::from(i64::MIN) {
        return None;
    }
    let (days, digits) = (86_400_i128, unit_digits(unit.base));
    // Parts of a second.
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
    // Days of eras of 400 years that begin with March (H. Hinnant, "chrono-Compatible Low-Level
    // Date Algorithms").
    let day = day + 719_468;
    let (era, in_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + i128::from(month <= 2);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if of_one < days {
        let (hour, minute) = (second / 3600, second / 60 % 60);
        // Writing to a String does not fail.
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
    fn numbers_are_shown_with_all_digits() {
        for (value, expected) in [
            (Value::Int(u64::MAX.into()), "18446744073709551615"),
            (Value::Float(f64::NAN), "nan"),
            (Value::Float(f64::NEG_INFINITY), "-inf"),
            (Value::Float(-1.0), "-1"),
            (Value::Float(0.1_f32.into()), "0.10000000149011612"),
            (Value::Float(1e20_f32.into()), "1.0000000200408773e20"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }

    #[test]
    fn texts_can_not_break_out_of_their_items() {
        let mut text = String::new();
        item(&mut text, "a\"<", None, "</Item>&");
        assert_eq!(
            text,
            "  <Item name=\"a&quot;&lt;\">&amp;lt;/Item&amp;gt;&amp;amp;</Item>\n"
        );
        assert!(is_plain("m s-1 \u{b0}") && !is_plain("a\0b") && !is_plain("a\nb"));
        assert!(!is_plain(&"a".repeat(5000)));
    }

    #[test]
    fn bands_are_counted_as_planes_lie() {
        let axis = |length, name: &str, coordinates| BandAxis {
            length,
            name: (!name.is_empty()).then(|| name.to_owned()),
            units: None,
            coordinates,
        };
        let levels = Some(vec![Some("850".to_owned()), None]);
        let axes = vec![
            axis(3, "time", None),
            axis(1, "", None),
            axis(2, "level", levels),
        ];
        let bands = Bands { axes };
        assert_eq!(bands.name(0).unwrap(), "time[0] level=850");
        assert_eq!(bands.name(5).unwrap(), "time[2] level[1]");
        let mut long = About {
            no_data: None,
            offset: Some("273.15".into()),
            scale: Some("0.1".into()),
            units: None,
            long_name: None,
            standard_name: None,
            bands: Bands {
                axes: vec![axis(9000, &"t".repeat(200), None)],
            },
        };
        let mut notes = Notes::default();
        let text = long.metadata(9000, &mut notes).unwrap();
        assert_eq!(text.matches("SCALE").count(), 9000);
        assert_eq!(text.matches("OFFSET").count(), 9000);
        assert!(!text.contains("DESCRIPTION") && notes.0.len() == 1);
        long.scale = Some("-1.2345678901234567e-300".into());
        long.offset = long.scale.clone();
        assert!(long.metadata(65_535, &mut notes).is_ok());
    }

    #[test]
    fn places_are_written_with_the_digits_they_have() {
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
