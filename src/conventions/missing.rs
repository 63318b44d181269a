//! The value that marks missing elements of an array: one decision, which all formats use.
//!
//! xarray is the reference (xarray, "Zarr Encoding Specification"). In v2 it reads the `fill_value` of an array as
//! `_FillValue`, in v3 only the attribute. zarr-python 2 writes a `fill_value` of 0 by default, and stored zeros
//! must not be masked. xarray never writes 0 by default in v2: it writes `null`, and NaN for floats. So the arrays
//! around an array tell whether its 0 was chosen ([`ZeroFill`]).

use std::sync::Arc;

use super::cf::names::{ADD_OFFSET, FILL_VALUE, MISSING_VALUE, SCALE_FACTOR};
use super::cf::stated;
use crate::conventions::gdal;
use crate::conventions::text::shown;
use crate::node::{Conclusion, ContentError, NodeResolver, Number, Value, ViewNode};
use crate::zarr::{ARRAY_DIMENSIONS, Array, DataType, FillValue, Scalar, ZarrFormat};

/// The maximum number of groups above an array whose coordinates are read.
const MAX_GROUPS: usize = 16;
/// The maximum number of arrays of the group that are read.
const MAX_SIBLINGS: usize = 64;

/// What the `fill_value` 0 of a v2 array with named axes means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroFill {
    /// Zero marks missing elements.
    Missing,
    /// Zero is the default of the writer, and elements of 0 are values.
    Default,
    /// Nothing tells; elements of 0 are values.
    Unknown,
}

impl ZeroFill {
    /// Returns the note of an array whose zeros are values here and missing in xarray.
    fn note(self) -> Option<String> {
        let why = match self {
            Self::Missing => return None,
            Self::Default => "is the default of its writer",
            Self::Unknown => "may be the default of its writer",
        };
        Some(format!(
            "its fill_value 0 {why}, so 0 is a value; xarray takes it for missing (mask_and_scale)"
        ))
    }
}

/// The stored numbers that mark missing elements. In packed arrays they are packed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct MissingValues {
    /// `_FillValue`, or the fill value that means the same.
    pub(crate) fill: Option<Value>,
    /// The attribute `missing_value`.
    pub(crate) other: Option<Value>,
}

impl MissingValues {
    /// Reads the metadata of an array of numbers of the type `own`, and of the arrays around it if necessary.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn of(
        node: &ViewNode,
        own: Number,
        nodes: &dyn NodeResolver,
        note: &mut impl FnMut(String),
    ) -> Result<Self, ContentError> {
        let Some(array) = node.metadata().as_array() else {
            return Ok(Self::default());
        };
        let zero = match is_ambiguous(array) {
            true => zero_fill(node, nodes)?,
            false => ZeroFill::Unknown,
        };
        Ok(Self {
            fill: fill_value(array, own, zero, note),
            other: attribute(array, MISSING_VALUE, own, note),
        })
    }

    /// Returns the value for a format that has one.
    pub(crate) fn one(self, note: &mut impl FnMut(String)) -> Option<Value> {
        if let (Some(fill), Some(other)) = (self.fill, self.other)
            && shown(fill) != shown(other)
        {
            note(format!(
                "missing_value {} is left out: there is one value without data, {}",
                shown(other),
                shown(fill)
            ));
        }
        self.fill.or(self.other)
    }

    /// Returns all values.
    pub(crate) fn all(self) -> impl Iterator<Item = Value> {
        self.fill.into_iter().chain(self.other)
    }
}

/// Returns the numbers of an array that are rows without a value in a table. NaN is a value of each format.
pub(crate) fn values_in_tables(
    array: &Array,
    zero: ZeroFill,
    note: &mut impl FnMut(String),
) -> Vec<Value> {
    let Some(own) = number(array) else {
        return Vec::new();
    };
    let missing = MissingValues {
        fill: fill_value(array, own, zero, note),
        other: attribute(array, MISSING_VALUE, own, note),
    };
    missing
        .all()
        .filter(|value| !value.float().is_nan())
        .collect()
}

/// Returns `_FillValue`, else the fill value if xarray (v2) or GDAL (v3) marks missing elements with it; `zero` is
/// the meaning of a `fill_value` 0.
pub(crate) fn fill_value(
    array: &Array,
    own: Number,
    zero: ZeroFill,
    note: &mut impl FnMut(String),
) -> Option<Value> {
    if let Some(declared) = attribute(array, FILL_VALUE, own, note) {
        return Some(declared);
    }
    if !is_ambiguous(array) {
        return of_xarray(array, own).or_else(|| of_gdal(array, own));
    }
    if let Some(why) = zero.note() {
        note(why);
    }
    let is_missing = zero == ZeroFill::Missing;
    is_missing.then(|| fixed_fill(array, own)).flatten()
}

fn attribute(
    array: &Array,
    name: &str,
    own: Number,
    note: &mut impl FnMut(String),
) -> Option<Value> {
    let members = array.attributes.as_ref().ok()?;
    stated(members, name, own).unwrap_or_else(|why| {
        note(why);
        None
    })
}

/// Returns the nodata value of an array that GDAL wrote: the fill value of a v3 array, which is `null`
/// without a nodata value. Georeferenced arrays of GDAL have the attribute `_CRS`.
fn of_gdal(array: &Array, own: Number) -> Option<Value> {
    let is_of_gdal = array.format == ZarrFormat::V3 && gdal::is_writer(array);
    is_of_gdal.then(|| fixed_fill(array, own)).flatten()
}

/// Returns the fill value of a v2 array with named axes, except 0.
fn of_xarray(array: &Array, own: Number) -> Option<Value> {
    let value = is_named_v2(array).then(|| fixed_fill(array, own))?;
    value.filter(|value| value.float() != 0.0)
}

fn fixed_fill(array: &Array, own: Number) -> Option<Value> {
    match array.fill_value.as_ref().ok()? {
        FillValue::Fixed(bytes) if bytes.len() == own.size_bytes => own.read(bytes),
        _ => None,
    }
}

/// Returns whether an array has an attribute that is not null.
fn has(array: &Array, name: &str) -> bool {
    array.attribute(name).is_some_and(|value| !value.is_null())
}

fn is_named_v2(array: &Array) -> bool {
    array.format == ZarrFormat::V2 && has(array, ARRAY_DIMENSIONS)
}

/// Returns the type of the numbers of an array; `None` for booleans, complex numbers and times of a data type, which
/// have no `fill_value` that means missing.
fn number(array: &Array) -> Option<Number> {
    let DataType::Fixed(fixed) = array.data_type.as_ref().ok()? else {
        return None;
    };
    let scalar = &fixed.scalar;
    let is_number = matches!(scalar, Scalar::Int(_) | Scalar::UInt(_) | Scalar::Float(_));
    is_number.then(|| Number::of(fixed))?.map(|(own, _)| own)
}

/// Returns whether the meaning of a `fill_value` 0 depends on other metadata.
pub(crate) fn is_ambiguous(array: &Array) -> bool {
    is_named_v2(array)
        && !has(array, FILL_VALUE)
        && number(array)
            .and_then(|own| fixed_fill(array, own))
            .is_some_and(|value| value.float() == 0.0)
}

/// Returns what an array tells about the fill values of the program that wrote it.
fn evidence(node: &ViewNode) -> ZeroFill {
    let Some((array, own)) = (node.metadata().as_array())
        .filter(|array| is_named_v2(array))
        .and_then(|array| Some((array, number(array)?)))
    else {
        return ZeroFill::Unknown;
    };
    let fill = fixed_fill(array, own).map(Value::float);
    match (&array.fill_value, fill) {
        (Ok(FillValue::Undefined), _) => ZeroFill::Missing,
        (_, Some(fill)) if fill.is_nan() => ZeroFill::Missing,
        // Coordinates have no missing elements (CF 1.11, 2.5.1).
        (_, Some(0.0)) if is_coordinate(node, array) => ZeroFill::Default,
        (_, Some(0.0)) if is_marked(array) => ZeroFill::Missing,
        _ => ZeroFill::Unknown,
    }
}

/// Returns whether the attributes of an array show that its `fill_value` was chosen: it is packed, or of GDAL.
fn is_marked(array: &Array) -> bool {
    has(array, SCALE_FACTOR) || has(array, ADD_OFFSET) || gdal::is_writer(array)
}

fn is_coordinate(node: &ViewNode, array: &Array) -> bool {
    let [length] = array.shape[..] else {
        return false;
    };
    node.is_coordinate_of(node.name(), length)
}

impl Conclusion for ZeroFill {
    fn of_members(members: &[Arc<ViewNode>]) -> Self {
        combined(members.iter().map(|member| evidence(member)))
    }
}

/// Combines what several arrays tell: one coordinate with the default of zarr-python decides.
fn combined(evidence: impl Iterator<Item = ZeroFill>) -> ZeroFill {
    evidence.fold(ZeroFill::Unknown, |known, next| match (known, next) {
        (ZeroFill::Default, _) | (_, ZeroFill::Default) => ZeroFill::Default,
        (ZeroFill::Missing, _) | (_, ZeroFill::Missing) => ZeroFill::Missing,
        (ZeroFill::Unknown, ZeroFill::Unknown) => ZeroFill::Unknown,
    })
}

/// Returns what the `fill_value` 0 of an array means, by the coordinates of its axes, then by its scale and
/// offset, then by the other arrays of its group.
///
/// # Errors
/// Errors of the store.
pub(crate) fn zero_fill(
    node: &ViewNode,
    nodes: &dyn NodeResolver,
) -> Result<ZeroFill, ContentError> {
    let Some(array) = node
        .metadata()
        .as_array()
        .filter(|array| is_ambiguous(array))
    else {
        return Ok(ZeroFill::Unknown);
    };
    if is_coordinate(node, array) {
        return Ok(ZeroFill::Default);
    }
    let by_coordinates = coordinate_evidence(node, array, nodes)?;
    if by_coordinates != ZeroFill::Unknown {
        return Ok(by_coordinates);
    }
    if is_marked(array) {
        return Ok(ZeroFill::Missing);
    }
    if node.key().is_root() {
        return Ok(ZeroFill::Unknown);
    }
    let siblings = nodes.members(&node.key().parent(), MAX_SIBLINGS)?;
    Ok(siblings.conclusion())
}

/// Returns the evidence of the coordinates of an array, of the nearest group that has one: the groups of an
/// xarray DataTree inherit them.
fn coordinate_evidence(
    node: &ViewNode,
    array: &Array,
    nodes: &dyn NodeResolver,
) -> Result<ZeroFill, ContentError> {
    let mut group = node.key().clone();
    for _ in 0..MAX_GROUPS {
        if group.is_root() {
            break;
        }
        group = group.parent();
        let keys = array.dimension_names.iter().flatten();
        let keys = keys.filter_map(|name| group.join(name.as_bytes()).ok());
        // All of them are asked for before the first one is needed, so that they are read together.
        let coordinates: Vec<_> = keys.map(|key| nodes.node(&key)).collect();
        let mut found = Vec::new();
        for coordinate in coordinates {
            found.extend(coordinate?.map(|coordinate| evidence(&coordinate)));
        }
        match combined(found.into_iter()) {
            ZeroFill::Unknown => {}
            known => return Ok(known),
        }
    }
    Ok(ZeroFill::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::ByteOrder;
    use serde_json::{Value as Json, json};

    fn array(fill: Json, attributes: &Json) -> Array {
        let document = json!({
            "zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<u2", "compressor": null,
            "filters": null, "order": "C", "fill_value": fill,
        });
        let attributes = attributes.to_string();
        Array::from_v2(document.to_string().as_bytes(), Some(attributes.as_bytes())).unwrap()
    }

    #[test]
    fn zero_is_missing_only_if_it_was_chosen() {
        let own = Number::new(crate::node::NumberKind::UInt, 2, ByteOrder::Little);
        let named = json!({"_ARRAY_DIMENSIONS": ["x"]});
        let declared = json!({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 7});
        for (fill, attributes, zero, expected, is_told) in [
            (json!(0), &named, ZeroFill::Missing, Some(0), false),
            (json!(0), &named, ZeroFill::Default, None, true),
            (json!(0), &named, ZeroFill::Unknown, None, true),
            (json!(5), &named, ZeroFill::Unknown, Some(5), false),
            (json!(null), &named, ZeroFill::Missing, None, false),
            (json!(0), &declared, ZeroFill::Missing, Some(7), false),
            (json!(0), &json!({}), ZeroFill::Missing, None, false),
        ] {
            let mut notes = Vec::new();
            let found = fill_value(&array(fill, attributes), own, zero, &mut |note| {
                notes.push(note);
            });
            assert_eq!(found, expected.map(Value::Int), "{attributes} {zero:?}");
            assert_eq!(!notes.is_empty(), is_told, "{notes:?}");
        }
    }

    #[test]
    fn one_coordinate_with_the_default_of_the_writer_decides() {
        use ZeroFill::{Default, Missing, Unknown};
        for (evidence, expected) in [
            (vec![], Unknown),
            (vec![Unknown, Missing, Unknown], Missing),
            (vec![Missing, Default, Missing], Default),
        ] {
            assert_eq!(combined(evidence.into_iter()), expected);
        }
    }
}
