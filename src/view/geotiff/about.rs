//! What GDAL reads beside the pixels: the value of pixels without data, scale and offset, units,
//! and what the bands are called.

use serde_json::Value as Json;

use super::bands::Bands;
use super::ifd::{Values, tag};
use super::raster::Raster;
use super::scene::{Notes, Scene, number};
use super::side::again;
use super::text::{is_plain, item, shown};
use crate::view::cf;
use crate::view::content::NoContent;
use crate::view::number::{Number, Value};
use crate::zarr::Scalar;

/// The most for all texts together.
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
    let said = |name| match scene.own(name).map(cf::one_of_list) {
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

/// A text of one line that XML can hold.
fn attribute_text(scene: &Scene<'_>, name: &str, notes: &mut Notes) -> Option<String> {
    let value = scene.own(name)?;
    let text = value.as_str().filter(|text| is_plain(text));
    if text.is_none() {
        notes.add(format!("{name} is no text of one line: left out"));
    }
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::geotiff::bands::BandAxis;

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
}
