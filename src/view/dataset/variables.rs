//! From arrays to variables.

use std::collections::HashSet;
use std::sync::Arc;

use super::attributes::{self, canonical, is_name, is_of_values};
use super::dimensions::Scopes;
use super::{Attr, Attribute, Data, Group, Item, Variable};
use crate::view::branch::{Branch, Leaf};
use crate::view::node::{Elements, ViewNode};
use crate::view::number::{Number, Value};
use crate::zarr::data_type::TimeBase;
use crate::zarr::{self, Node, Scalar};

/// Elements along the axis that is added for real and imaginary parts.
const PARTS: u64 = 2;

pub(super) fn group(
    branch: &Branch,
    name: String,
    scopes: &mut Scopes,
    notes: &mut Vec<String>,
) -> Group {
    let groups = branch.groups.iter();
    scopes.enter(groups.map(|group| canonical(group.node.name())));
    // The length of a dimension is that of its coordinate variable, if it has one, else that of the
    // first array that has it.
    let arrays = || branch.arrays.iter().filter_map(|leaf| leaf_array(leaf));
    for (name, array) in arrays() {
        if let ([Some(dimension)], [length]) = (&array.dimension_names[..], &array.shape[..])
            && dimension == name
        {
            settle(dimension, *length, scopes);
        }
    }
    for (_, array) in arrays() {
        for (dimension, length) in array.dimension_names.iter().zip(&array.shape) {
            if let Some(dimension) = dimension {
                settle(dimension, *length, scopes);
            }
        }
    }
    let mut names = HashSet::new();
    let mut variables = Vec::new();
    for leaf in &branch.arrays {
        match variable(leaf, scopes, notes) {
            Ok(variable) if !names.insert(variable.name.clone()) => notes.push(format!(
                "{} is not in it: another array has the same name in NFC",
                leaf.node.key()
            )),
            Ok(variable) => variables.push(variable),
            Err(why) => notes.push(format!("{} is not in it: {why}", leaf.node.key())),
        }
    for (key, why) in &branch.left_out {
        notes.push(format!("{key} is not in it: {why}"));
    }
    }
    let mut groups = Vec::new();
    for branch in &branch.groups {
        let name = branch.node.name();
        match is_name(name) {
            true => groups.push(group(branch, canonical(name), scopes, notes)),
            false => notes.push(format!(
                "{} is not in it: no name of netCDF",
                branch.node.key()
            )),
        }
    }
    let attributes = match branch.node.metadata().attributes() {
        Ok(members) => attributes::of_group(members, &mut |note| {
            notes.push(format!("{}: {note}", place(&branch.node)));
        }),
        Err(error) => {
            notes.push(format!("{}: attributes: {error}", place(&branch.node)));
            Vec::new()
        }
    };
    Group {
        name,
        dimensions: scopes.leave(),
        variables,
        attributes,
        groups,
    }
}

/// The name and the metadata of an array that can be a variable.
fn leaf_array(leaf: &Leaf) -> Option<(&str, &zarr::Array)> {
    match leaf.node.metadata() {
        Node::Array(array) if is_name(leaf.node.name()) => Some((leaf.node.name(), array)),
        _ => None,
    }
}

fn settle(name: &str, length: u64, scopes: &mut Scopes) {
    if is_name(name) && length <= MAX_LENGTH {
        scopes.settle(&canonical(name), length);
    }
}

fn place(node: &ViewNode) -> String {
    match node.key().is_root() {
        true => "the root".into(),
        false => node.key().to_string(),
    }
}

fn variable(leaf: &Leaf, scopes: &mut Scopes, notes: &mut Vec<String>) -> Result<Variable, String> {
    let node = &leaf.node;
    let Node::Array(array) = node.metadata() else {
        return Err("no array".into());
    };
    if !is_name(node.name()) {
        return Err("no name of netCDF".into());
    }
    if let Some(length) = array.shape.iter().find(|length| **length > MAX_LENGTH) {
        return Err(format!("{length} elements along one axis"));
    }
    let mut note = |note: String| notes.push(format!("{}: {note}", node.key()));
    let (item, data, parts) = elements(leaf, array, scopes)?;
    let mut dimensions = Vec::new();
    for (axis, length) in array.shape.iter().enumerate() {
        let given = array.dimension_names.get(axis).and_then(Option::as_deref);
        let wanted = match given {
            Some(name) if is_name(name) => canonical(name),
            Some(name) => {
                note(format!("{name:?} is no name for a dimension of netCDF"));
                format!("dim_{length}")
            }
            None => format!("dim_{length}"),
        };
        let number = scopes.dimension(&wanted, *length, &dimensions);
        if given == Some(&wanted[..])
            && scopes.find(&wanted).map(|(number, _)| number) != Some(number)
        {
            note(format!(
                "axis {axis} is called {wanted}, as something else is: it got another name"
            ));
        }
        dimensions.push(number);
    }
    if parts == PARTS {
        note("complex numbers: real and imaginary parts are the last dimension".into());
        dimensions.push(scopes.dimension("complex", PARTS, &dimensions));
    }
    if let (Item::Char, Data::Array(_, pieces)) = (item, &data) {
        let length = pieces.last().copied().unwrap_or(1);
        dimensions.push(scopes.dimension(&format!("string{length}"), length, &dimensions));
    }
    let (mut attributes, fill) = match node.metadata().attributes() {
        Ok(members) => attributes::of_variable(members, item, &mut note),
        Err(error) => {
            note(format!("attributes: {error}"));
            (Vec::new(), None)
        }
    };
    let mut fill = fill.or_else(|| xarray_fill(array, item));
    if parts == PARTS {
        // They are said of whole numbers, and would be taken for each part.
        fill = None;
        attributes.retain(|attribute| !is_of_values(&attribute.name));
    }
    if let zarr::DataType::Fixed(fixed) = array.data_type.as_ref().map_err(|e| e.to_string())? {
        add_meaning(&fixed.scalar, &mut attributes, &mut fill, &mut note);
    }
    if let (Some(fill), Item::Number(number)) = (fill, item) {
        attributes.retain(|attribute| attribute.name != "_FillValue");
        let value = Attr::Numbers(number, vec![fill]);
        let name = "_FillValue".to_owned();
        attributes.insert(0, Attribute { name, value });
    }
    Ok(Variable {
        name: canonical(node.name()),
        dimensions,
        item,
        data,
        attributes,
        fill,
    })
}

/// What one element is, where they are, and how many numbers each is.
fn elements(
    leaf: &Leaf,
    array: &zarr::Array,
    scopes: &mut Scopes,
) -> Result<(Item, Data, u64), String> {
    if let Some(texts) = &leaf.texts {
        let texts = texts.as_ref().map_err(Clone::clone)?;
        let bytes: usize = texts
            .iter()
            .map(|text| text.len() + size_of::<String>())
            .sum();
        scopes.text_bytes = (scopes.text_bytes.checked_add(bytes))
            .filter(|total| *total <= MAX_TEXT_BYTES)
            .ok_or_else(|| format!("more than {MAX_TEXT_BYTES} bytes of text in one file"))?;
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("text with NUL in it".into());
        }
        return Ok((Item::Text, Data::Texts(Arc::clone(texts)), 1));
    }
    let reader = match &leaf.node.elements {
        Elements::Fixed(reader) => reader,
        Elements::Unreadable(why) => return Err(why.clone()),
        Elements::Variable(..) | Elements::None => {
            return Err("elements of variable length that are no text".into());
        }
    };
    let data_type = reader.pieces().data_type();
    let mut pieces = reader.piece_shape().to_vec();
    let (item, parts) = match (Number::of(data_type), &data_type.scalar) {
        (Some((number, parts)), _) => (Item::Number(number), parts as u64),
        (None, Scalar::Bytes) => {
            pieces.push(data_type.size_bytes as u64);
            (Item::Char, 1)
        }
        (None, _) => return Err(format!("netCDF has no data type for {data_type}")),
    };
    if parts == PARTS {
        pieces.push(PARTS);
    }
    debug_assert_eq!(reader.pieces().grid().array_shape(), &array.shape[..]);
    Ok((item, Data::Array(Arc::clone(reader), pieces), parts))
}

/// The longest axis: libraries count the bytes of what is along it.
const MAX_LENGTH: u64 = 1 << 58;
/// Decoded text of all variables.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// xarray takes the fill value of its v2 arrays for missing. Zero is what zarr-python writes where
/// nobody has chosen one: it says nothing, and zeros that are there must not be hidden.
fn xarray_fill(array: &zarr::Array, item: Item) -> Option<Value> {
    let Item::Number(number) = item else {
        return None;
    };
    if array.format != zarr::Format::V2 || array.attribute("_ARRAY_DIMENSIONS").is_none() {
        return None;
    }
    match array.fill_value.as_ref().ok()? {
        zarr::FillValue::Fixed(bytes) => number.read(bytes).filter(|value| value.float() != 0.0),
        _ => None,
    }
}

/// What the data type says and numbers alone do not.
fn add_meaning(
    scalar: &Scalar,
    attributes: &mut Vec<Attribute>,
    fill: &mut Option<Value>,
    note: &mut impl FnMut(String),
) {
    let mut set = |name: &str, text: &str| {
        if attributes.iter().all(|attribute| attribute.name != name) {
            let value = Attr::Text(text.to_owned());
            attributes.push(Attribute {
                name: name.to_owned(),
                value,
            });
        }
    };
    let (unit, is_date) = match scalar {
        // As xarray writes it to netCDF.
        Scalar::Bool => return set("dtype", "bool"),
        Scalar::DateTime { unit, .. } => (unit, true),
        Scalar::TimeDelta { unit, .. } => (unit, false),
        _ => return,
    };
    *fill = Some(Value::Int(i64::MIN.into()));
    let name = match unit.base {
        TimeBase::Day => "days",
        TimeBase::Hour => "hours",
        TimeBase::Minute => "minutes",
        TimeBase::Second => "seconds",
        TimeBase::Millisecond => "milliseconds",
        TimeBase::Microsecond => "microseconds",
        TimeBase::Nanosecond => "nanoseconds",
        _ => "",
    };
    if name.is_empty() || unit.count != 1 {
        return note(format!(
            "CF has no time in units of {unit}: numbers without a unit"
        ));
    }
    if is_date {
        set("units", &format!("{name} since 1970-01-01 00:00:00"));
        set("calendar", "proleptic_gregorian");
    } else {
        set("units", name);
    }
}
