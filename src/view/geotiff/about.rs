//! What GDAL reads beside the pixels: the value of pixels without data, scale and offset, units,
//! and what the bands are called.

use std::fmt::Write as _;

use super::ifd::{Values, tag};
use super::raster::Raster;
use super::scene::{Notes, Scene, number, short};
use crate::view::cf;
use crate::view::content::NoContent;
use crate::view::node::ViewNode;
use crate::view::number::Value;
use crate::zarr::{Array, Scalar};

/// The longest text of an attribute, and of all together, that is written.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_METADATA_BYTES: usize = 2 << 20;

/// The tags of GDAL ("GTiff - GeoTIFF File Format", metadata and nodata).
///
/// # Errors
/// Those of the store.
pub(super) fn fields(
    scene: &Scene<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Vec<(u16, Values)>, NoContent> {
    let mut fields = Vec::new();
    if let Some(value) = no_data(scene, raster, notes) {
        fields.push((tag::GDAL_NODATA, Values::Text(shown(value))));
    }
    let metadata = metadata(scene, raster, notes)?;
    if !metadata.is_empty() {
        let text = format!("<GDALMetadata>\n{metadata}</GDALMetadata>\n");
        fields.push((tag::GDAL_METADATA, Values::Text(text)));
    }
    Ok(fields)
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

/// Items in the form of GDAL; nothing if there is nothing to say.
fn metadata(scene: &Scene<'_>, raster: &Raster, notes: &mut Notes) -> Result<String, NoContent> {
    let mut text = String::new();
    let packed = |name: &str, notes: &mut Notes| {
        let value = scene.own(name)?;
        let value_or_none = number(value);
        if value_or_none.is_none() {
            notes.add(format!("{name} is no number: left out"));
        }
        value_or_none
    };
    let (offset, scale) = (packed("add_offset", notes), packed("scale_factor", notes));
    let mut of_each: Vec<(&str, &str, String)> = Vec::new();
    let shown = |value: f64| shown(Value::Float(value));
    of_each.extend(offset.map(|value| ("OFFSET", "offset", shown(value))));
    of_each.extend(scale.map(|value| ("SCALE", "scale", shown(value))));
    let units = attribute_text(scene, "units", notes);
    of_each.extend(units.map(|units| ("UNITTYPE", "unittype", units)));
    if scene.own("_Unsigned").is_some() {
        notes.add("_Unsigned is left out: numbers are as they are stored");
    }
    let long_name = attribute_text(scene, "long_name", notes);
    let standard_name = attribute_text(scene, "standard_name", notes);
    for (name, value) in [("long_name", &long_name), ("standard_name", &standard_name)] {
        if let Some(value) = value {
            item(&mut text, name, None, value);
        }
    }
    let bands = Bands::of(scene, raster, &mut text, notes)?;
    let of_all = text.len();
    for band in 0..raster.samples {
        for (name, role, value) in &of_each {
            item(&mut text, name, Some((band, role)), value);
        }
        let description = match (raster.samples, bands.name(band)) {
            (1, None) => long_name.as_ref().or(standard_name.as_ref()).cloned(),
            (_, name) => name,
        };
        if let Some(description) = description {
            item(
                &mut text,
                "DESCRIPTION",
                Some((band, "description")),
                &description,
            );
        }
        if text.len() > MAX_METADATA_BYTES {
            text.truncate(of_all);
            notes.add(format!(
                "scales, offsets, units and names of {} bands are left out: too much text",
                raster.samples
            ));
            break;
        }
    }
    Ok(text)
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
struct Bands {
    axes: Vec<BandAxis>,
}

struct BandAxis {
    length: u64,
    name: Option<String>,
    coordinates: Option<Vec<Value>>,
}

impl Bands {
    /// Reads the coordinates of the axes of bands; their units are said once.
    fn of(
        scene: &Scene<'_>,
        raster: &Raster,
        text: &mut String,
        notes: &mut Notes,
    ) -> Result<Self, NoContent> {
        let lengths = match raster.is_chunky {
            true => vec![raster.samples],
            false => raster.planes.clone(),
        };
        let mut axes = Vec::new();
        for (length, name) in lengths.into_iter().zip(&raster.band_axes) {
            let name = name.clone().filter(|name| is_plain(name));
            let mut coordinates = None;
            if let Some(name) = &name
                && let Some(node) = scene.coordinate(name)?
            {
                match numbers_along(scene, &node, length) {
                    Ok(Some(numbers)) => {
                        coordinates = Some(numbers);
                        let units = node.metadata().as_array().and_then(units_of);
                        if let Some(units) = units.filter(|units| is_plain(units)) {
                            item(text, &format!("{name}#units"), None, &units);
                        }
                    }
                    Ok(None) => {}
                    Err(NoContent::Absent(why)) => {
                        notes.add(format!("coordinates {}: {why}", short(name)));
                    }
                    Err(error) => return Err(error),
                }
            }
            axes.push(BandAxis {
                length,
                name,
                coordinates,
            });
        }
        Ok(Self { axes })
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
            let value = axis
                .coordinates
                .as_ref()
                .and_then(|values| values.get(place));
            words.push(match value {
                Some(value) => format!("{name}={}", shown(*value)),
                None => format!("{name}[{at}]"),
            });
        }
        words.reverse();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// The coordinates of an axis of bands; none if they are not one for each.
fn numbers_along(
    scene: &Scene<'_>,
    node: &ViewNode,
    length: u64,
) -> Result<Option<Vec<Value>>, NoContent> {
    if let Some(why) = node.broken() {
        return Err(NoContent::Absent(why.to_owned()));
    }
    match node.metadata().as_array() {
        Some(array) if array.shape == [length] => scene.around.numbers(node, length).map(Some),
        _ => Ok(None),
    }
}

/// What the numbers of an array count: for times it is the data type that says it.
fn units_of(array: &Array) -> Option<String> {
    let data_type = array.data_type.as_ref().ok()?;
    match data_type
        .fixed()
        .map(|fixed| cf::meaning_of_time(&fixed.scalar))
    {
        Some(Ok(Some(said))) => said
            .into_iter()
            .find_map(|(name, value)| (name == "units").then_some(value)),
        Some(Err(_)) => None,
        _ => Some(array.attribute("units")?.as_str()?.to_owned()),
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
            coordinates,
        };
        let levels = Some(vec![Value::Float(850.0), Value::Float(0.5)]);
        let axes = vec![
            axis(3, "time", None),
            axis(1, "", None),
            axis(2, "level", levels),
        ];
        let bands = Bands { axes };
        assert_eq!(bands.name(0).unwrap(), "time[0] level=850");
        assert_eq!(bands.name(5).unwrap(), "time[2] level=0.5");
    }
}
