//! Sample metadata of an array: nodata value, scale and offset, units, names of bands.

use serde_json::{Map, Value as Json};

use super::axis::reinterpret;
use super::bands::Bands;
use super::context::{Context, Notes};
use super::nifti_header;
use super::raster::Raster;
use crate::conventions::cf::attributes::packing as packing_of_cf;
use crate::conventions::cf::names;
use crate::conventions::missing::MissingValues;
use crate::conventions::text::{is_plain, shown};
use crate::fallible::{List, NoMemory};
use crate::node::{ContentError, Number, Value};
use crate::zarr::Scalar;

/// The maximum size of the text of all metadata, in bytes.
pub(crate) const MAX_METADATA_BYTES: usize = 2 << 20;

/// The metadata of samples and bands.
#[derive(Debug)]
pub(crate) struct SampleMetadata {
    pub(crate) no_data: Option<String>,
    pub(crate) offset: Option<String>,
    pub(crate) scale: Option<String>,
    pub(crate) units: Option<String>,
    pub(crate) long_name: Option<String>,
    pub(crate) standard_name: Option<String>,
    pub(crate) bands: Bands,
}

impl SampleMetadata {
    /// Reads the metadata of samples and bands.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of(
        context: &Context<'_>,
        raster: &Raster,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let no_data = no_data(context, raster, notes)?;
        // The stored bits as numbers of the file's type.
        let own = context.view.number().map_or(raster.number, |(own, _)| own);
        let meant = Number {
            kind: raster.number.kind,
            ..own
        };
        let (offset, scale) = packing(context, notes)?;
        let text = |value: Option<f64>| value.map(|value| shown(Value::Float(value)));
        let is_known = |value: &Json| matches!(value.as_str(), Some("true" | "false"));
        if context
            .own("_Unsigned")
            .is_some_and(|value| !is_known(value))
        {
            notes.add("_Unsigned is neither \"true\" nor \"false\": left out");
        }
        let bands = Bands::of(context, raster, notes)?;
        if bands.axes.iter().any(|axis| axis.coordinates.is_some()) {
            notes.add("coordinates of other axes than those of the raster are only in the names of bands, as text");
        }
        Ok(Self {
            no_data: no_data.map(|value| shown(reinterpret(own, meant, value))),
            offset: text(offset),
            scale: text(scale),
            units: units(context, notes),
            long_name: attribute_text(context, names::LONG_NAME, notes),
            standard_name: attribute_text(context, names::STANDARD_NAME, notes),
            bands,
        })
    }

    /// Returns the first difference between the metadata of two levels of a pyramid.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
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

    /// Returns the name of a band; if it is the only band, the name of the array.
    pub(crate) fn band_name(&self, band: u64, samples: u64) -> Option<String> {
        match (samples, self.bands.name(band)) {
            (1, None) => (self.long_name.as_ref())
                .or(self.standard_name.as_ref())
                .cloned(),
            (_, name) => name,
        }
    }

    /// Returns the names of all bands; empty, with a note, if their text is too long.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub(crate) fn band_names(
        &self,
        samples: u64,
        notes: &mut Notes,
    ) -> Result<Vec<Option<String>>, NoMemory> {
        let (mut names, mut bytes) = (List::default(), 0);
        for band in 0..samples {
            let name = self.band_name(band, samples);
            bytes += name.as_ref().map_or(0, String::len) + size_of::<Option<String>>();
            if bytes > MAX_METADATA_BYTES {
                notes.add("the names of bands are left out: they are longer than 2 MiB");
                return Ok(Vec::new());
            }
            names.push(name);
        }
        names.finish()
    }
}

/// Returns offset and scale: of CF, else of the header of NIfTI-Zarr.
///
/// # Errors
/// Errors of the store.
pub(crate) fn packing(
    context: &Context<'_>,
    notes: &mut Notes,
) -> Result<(Option<f64>, Option<f64>), ContentError> {
    if is_packed_by_cf(context) {
        return Ok(cf_packing(context, notes));
    }
    let header = nifti_header::level_by_header(context)?.and_then(Result::ok);
    let packing = header.and_then(|(header, _)| header.packing);
    Ok(packing.map_or((None, None), |(scale, offset)| (Some(offset), Some(scale))))
}

/// Returns whether an array has `scale_factor` or `add_offset`, which then count in place of a NIfTI header.
pub(crate) fn is_packed_by_cf(context: &Context<'_>) -> bool {
    let names = [names::SCALE_FACTOR, names::ADD_OFFSET];
    names.iter().any(|name| context.own(name).is_some())
}

/// Returns `add_offset` and `scale_factor`; neither if one of them is not a number.
fn cf_packing(context: &Context<'_>, notes: &mut Notes) -> (Option<f64>, Option<f64>) {
    let none = Map::new();
    match packing_of_cf(context.view.array.attributes.as_ref().unwrap_or(&none)) {
        Ok((scale, offset)) => (offset, scale),
        Err(name) => {
            notes.add(format!(
                "scale_factor and add_offset are left out: {name} is no number, and one without \
                 the other would be a wrong scale"
            ));
            (None, None)
        }
    }
}

/// Returns the nodata value ([`MissingValues`]).
fn no_data(
    context: &Context<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Option<Value>, ContentError> {
    let view = context.view;
    let own = match view.number() {
        Some((own, _)) if raster.numbers == 1 && view.data_type().scalar != Scalar::Bool => own,
        _ => return Ok(None),
    };
    // In the array's type: no pixel has a value that the type cannot hold.
    let mut note = |why| notes.add(why);
    let missing = MissingValues::of(view.node, own, context.nodes, &mut note)?;
    Ok(missing.one(&mut note))
}

/// Returns the units of the values.
pub(crate) fn units(context: &Context<'_>, notes: &mut Notes) -> Option<String> {
    attribute_text(context, names::UNITS, notes)
}

/// Returns a one-line text that is valid in XML.
fn attribute_text(context: &Context<'_>, name: &str, notes: &mut Notes) -> Option<String> {
    let value = context.own(name)?;
    let text = value.as_str().filter(|text| is_plain(text));
    if text.is_none() {
        notes.add(format!("{name} is no text of one line: left out"));
    }
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
