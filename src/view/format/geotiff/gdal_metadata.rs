//! Sample metadata in the tags of GDAL.

use crate::conventions::cf::names;
use crate::conventions::georef::context::Notes;
use crate::conventions::georef::raster::Raster;
use crate::conventions::georef::samples::{MAX_METADATA_BYTES, SampleMetadata};
use crate::conventions::text::item;
use crate::fallible::{NoMemory, Text};
use crate::node::ContentError;
use crate::view::encode::tiff::{FieldValue, tag};

/// The maximum size of the text of scales and offsets, in bytes: enough for the maximum number of bands.
const MAX_PACKING_BYTES: usize = 13 << 20;

impl SampleMetadata {
    /// Returns the tags of GDAL ("GTiff - GeoTIFF File Format", metadata and nodata).
    ///
    /// # Errors
    /// The text of scales and offsets is too long; without scales and offsets, the numbers would be wrong.
    pub(super) fn fields(
        &self,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Vec<(u16, FieldValue)>, ContentError> {
        let mut fields = Vec::new();
        if let Some(value) = &self.no_data {
            fields.push((tag::GDAL_NODATA, FieldValue::Text(value.clone())));
        }
        let metadata = self.metadata(raster.samples, notes)?;
        if !metadata.is_empty() {
            let mut text = Text::default();
            for part in ["<GDALMetadata>\n", &metadata, "</GDALMetadata>\n"] {
                text.push_str(part);
            }
            fields.push((tag::GDAL_METADATA, FieldValue::Text(text.finish()?)));
        }
        Ok(fields)
    }

    /// Returns GDAL metadata items; empty without metadata. If their text is too long, names of bands are
    /// left out first, then units.
    fn metadata(&self, samples: u64, notes: &mut Notes) -> Result<String, ContentError> {
        let mut text = Text::default();
        for (name, value) in [
            (names::LONG_NAME, &self.long_name),
            (names::STANDARD_NAME, &self.standard_name),
        ] {
            if let Some(value) = value {
                item(&mut text, name, None, value);
            }
        }
        for (name, units) in self.bands.units() {
            item(&mut text, &format!("{name}#units"), None, units);
        }
        let of_each = |name, role, value: &str| -> Result<String, NoMemory> {
            let mut text = Text::default();
            for band in 0..samples {
                item(&mut text, name, Some((band, role)), value);
                if text.len() > MAX_PACKING_BYTES {
                    break;
                }
            }
            text.finish()
        };
        let of_each = |name, role, value: &Option<String>| {
            let texts = value.as_ref().map(|value| of_each(name, role, value));
            texts.transpose()
        };
        let offsets = of_each("OFFSET", "offset", &self.offset)?.unwrap_or_default();
        let scales = of_each("SCALE", "scale", &self.scale)?.unwrap_or_default();
        if offsets.len().saturating_add(scales.len()) > MAX_PACKING_BYTES {
            let why = format!("scales and offsets of {samples} bands are too much text");
            return Err(why.into());
        }
        text.push_str(&offsets);
        text.push_str(&scales);
        if let Some(units) = of_each("UNITTYPE", "unittype", &self.units)? {
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
            let Some(description) = self.band_name(band, samples) else {
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
        Ok(text.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conventions::georef::bands::{BandAxis, Bands};

    #[test]
    fn bands_are_numbered_in_the_order_of_planes() {
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
        let mut long = SampleMetadata {
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
