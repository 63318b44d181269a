//! The spacing of elements along each axis, for files of images and volumes: from OME-NGFF, evenly spaced
//! coordinates, or the transform of the raster.

use super::RasterMetadata;
use super::axis::{Axis, Steps, reinterpret};
use super::context::{Context, Groups, Notes};
use super::raster::direction_of;
use super::samples::{attribute_text, packing};
use super::scale::ome_axes;
use crate::view::array_view::ArrayView;
use crate::view::cf;
use crate::view::content::ContentError;
use crate::view::number::{Number, Value};
use crate::view::resolve::NodeResolver;

/// The step along an axis, the coordinate of the first element, and the unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::view) struct Spacing {
    /// The name in OME-NGFF or of the dimension.
    pub(in crate::view) name: Option<String>,
    pub(in crate::view) role: Role,
    /// The distance of adjacent elements; never zero.
    pub(in crate::view) distance: Option<f64>,
    /// The coordinate of the centre of the first element.
    pub(in crate::view) first: Option<f64>,
    pub(in crate::view) unit: Option<String>,
}

/// The role of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::view) enum Role {
    /// Unknown: a side of an image, if it is one of the last three axes.
    #[default]
    Unnamed,
    Space,
    Time,
    Channel,
}

impl Role {
    fn of_ome(kind: &str) -> Option<Self> {
        match kind {
            "space" => Some(Self::Space),
            "time" => Some(Self::Time),
            "channel" => Some(Self::Channel),
            _ => None,
        }
    }

    fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "t" | "time" => Self::Time,
            "c" | "channel" | "channels" | "band" | "bands" => Self::Channel,
            _ => Self::Space,
        }
    }
}

/// The metadata of an array for files of images and volumes.
#[derive(Debug)]
pub(in crate::view) struct ImageMetadata {
    /// The spacing of each axis, in the order of the array.
    pub(in crate::view) axes: Vec<Spacing>,
    /// A value is a stored number times `scale` plus `offset`.
    pub(in crate::view) scale: Option<f64>,
    pub(in crate::view) offset: Option<f64>,
    /// The units of the values.
    pub(in crate::view) units: Option<String>,
    /// The number that marks missing values, with the sign that `_Unsigned` gives to the elements.
    pub(in crate::view) missing: Option<Value>,
}

impl ImageMetadata {
    /// Reads the metadata of an array of numbers.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) fn of(
        view: &ArrayView<'_>,
        nodes: &dyn NodeResolver,
        notes: &mut Notes,
    ) -> Result<Self, ContentError> {
        let axes = spacings(view, nodes, notes)?;
        let groups = Groups::above(view, nodes, notes)?;
        let context = Context::new(view, nodes, &groups);
        let (offset, scale) = packing(&context, notes);
        let missing = match view.number() {
            Some((own, 1)) => {
                let kind = cf::unsigned(own.kind, view.array.attribute("_Unsigned"));
                let found = cf::fill_value(view.array, own, &mut |why| notes.add(why));
                found.map(|value| reinterpret(own, Number { kind, ..own }, value))
            }
            _ => None,
        };
        Ok(Self {
            axes,
            scale,
            offset,
            units: attribute_text(&context, "units", notes),
            missing,
        })
    }
}

/// Returns the spacing of all axes, in the order of the array.
///
/// # Errors
/// Errors of the store.
pub(in crate::view) fn spacings(
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
    notes: &mut Notes,
) -> Result<Vec<Spacing>, ContentError> {
    let rank = view.shape().len();
    let groups = Groups::above(view, nodes, notes)?;
    let context = Context::new(view, nodes, &groups);
    let mut axes = vec![Spacing::default(); rank];
    for (axis, name) in axes.iter_mut().zip(&view.array.dimension_names) {
        axis.name.clone_from(name);
    }
    if let Some(found) = ome_axes(&context, rank) {
        for (axis, found) in axes.iter_mut().zip(found) {
            axis.distance = Some(found.scale);
            axis.first = Some(found.start);
            axis.unit = found.unit;
            axis.name = found.name.or(axis.name.take());
            if let Some(role) = found.kind.as_deref().and_then(Role::of_ome) {
                axis.role = role;
            }
        }
    } else {
        for (axis, length) in axes.iter_mut().zip(view.shape()) {
            let found = Axis::of(&context, axis.name.as_deref(), *length, notes)?;
            if let Steps::Regular(first, distance) = found.steps {
                axis.distance = Some(distance).filter(|distance| *distance != 0.0);
                axis.first = Some(first);
                axis.unit = found.units;
            }
        }
        add_transform(&mut axes, view, nodes)?;
    }
    for axis in &mut axes {
        if let (Role::Unnamed, Some(name)) = (axis.role, &axis.name) {
            axis.role = Role::of_name(name);
        }
    }
    Ok(axes)
}

/// Adds the steps of the transform to axes without coordinates.
fn add_transform(
    axes: &mut [Spacing],
    view: &ArrayView<'_>,
    nodes: &dyn NodeResolver,
) -> Result<(), ContentError> {
    let is_side = |name: &Option<String>| name.as_deref().and_then(direction_of).is_some();
    let [.., down, across] = axes else {
        return Ok(());
    };
    if down.distance.is_some() || across.distance.is_some() {
        return Ok(());
    }
    let Some(metadata) = RasterMetadata::of_planes(view, nodes)? else {
        return Ok(());
    };
    let is_named = is_side(&metadata.raster.down) || is_side(&metadata.raster.across);
    if let Some([a, 0.0, c, 0.0, e, f]) = metadata.georef.corner_transform()
        && (is_named || metadata.georef.crs.is_some())
    {
        (across.distance, across.first) = (Some(a), Some(c + a / 2.0));
        (down.distance, down.first) = (Some(e), Some(f + e / 2.0));
    }
    Ok(())
}

/// Returns the length in metres of a unit of OME-NGFF or CF; `None` for other units.
pub(in crate::view) fn metres(unit: &str) -> Option<f64> {
    // Symbols are case-sensitive: `Mm` is a megametre.
    Some(match unit {
        "m" => 1.0,
        "km" => 1e3,
        "cm" => 1e-2,
        "mm" => 1e-3,
        "um" | "\u{b5}m" | "\u{3bc}m" => 1e-6,
        "nm" => 1e-9,
        "\u{c5}" | "\u{212b}" | "\u{e5}" => 1e-10,
        "pm" => 1e-12,
        _ => match unit.to_ascii_lowercase().as_str() {
            "meter" | "meters" | "metre" | "metres" => 1.0,
            "kilometer" | "kilometers" | "kilometre" | "kilometres" => 1e3,
            "centimeter" | "centimeters" | "centimetre" | "centimetres" => 1e-2,
            "millimeter" | "millimeters" | "millimetre" | "millimetres" => 1e-3,
            "micron" | "microns" | "micrometer" | "micrometers" | "micrometre" | "micrometres" => {
                1e-6
            }
            "nanometer" | "nanometers" | "nanometre" | "nanometres" => 1e-9,
            "angstrom" | "angstroms" => 1e-10,
            "picometer" | "picometers" | "picometre" => 1e-12,
            _ => return None,
        },
    })
}

/// Returns the length in seconds of a unit of OME-NGFF or CF; `None` for other units.
pub(in crate::view) fn seconds(unit: &str) -> Option<f64> {
    // CF puts an epoch after the unit.
    let unit = unit.split(" since ").next().unwrap_or(unit);
    let unit = unit.trim();
    Some(match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => match unit.to_ascii_lowercase().as_str() {
            "sec" | "second" | "seconds" => 1.0,
            "millisecond" | "milliseconds" => 1e-3,
            "microsecond" | "microseconds" => 1e-6,
            "nanosecond" | "nanoseconds" => 1e-9,
            "min" | "minute" | "minutes" => 60.0,
            "hr" | "hour" | "hours" => 3600.0,
            "day" | "days" => 86_400.0,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_units_are_case_sensitive_and_names_are_not() {
        for (unit, expected) in [
            ("\u{c5}", Some(1e-10)),
            ("\u{212b}", Some(1e-10)),
            ("Angstrom", Some(1e-10)),
            ("mm", Some(1e-3)),
            ("Mm", None),
            ("Metre", Some(1.0)),
            ("\u{b5}m", Some(1e-6)),
            ("furlong", None),
        ] {
            assert_eq!(metres(unit), expected, "{unit}");
        }
        for (unit, expected) in [
            ("ms", Some(1e-3)),
            ("Ms", None),
            ("Days since 2000-01-01", Some(86_400.0)),
            ("\u{3bc}s", Some(1e-6)),
        ] {
            assert_eq!(seconds(unit), expected, "{unit}");
        }
    }
}
