//! netCDF variables from arrays.

use std::collections::HashSet;
use std::sync::Arc;

use super::attributes::{self, name_of};
use super::axis_coordinates;
use super::dimensions::Scopes;
use super::grids;
use super::{Attribute, AttributeValue, Data, Group, Variable, VariableType};
use crate::array::ArrayReader;
use crate::conventions::cf::attributes::{is_of_time, is_of_values};
use crate::conventions::cf::{self, names};
use crate::conventions::description::Axis;
use crate::conventions::missing::{ZeroFill, fill_value};
use crate::conventions::xarray;
use crate::node::{NodeElements, Number, NumberKind, Value, ViewNode};
use crate::store::StoreError;
use crate::view::group::tree::{GroupArray, GroupTree};
use crate::zarr::{self, ByteOrder, Node, Scalar};

/// The length of the axis with the real and imaginary parts.
const PARTS: u64 = 2;

pub(super) fn group(
    tree: &GroupTree,
    name: String,
    scopes: &mut Scopes,
    notes: &mut Vec<String>,
) -> Group {
    let groups = tree.groups.iter();
    scopes.enter(groups.filter_map(|group| name_of(group.node.name())));
    settle_lengths(tree, scopes);
    let mut names = HashSet::new();
    let mut variables = Vec::new();
    for member in &tree.arrays {
        match variable(member, scopes, notes) {
            Ok(variable) => match names.insert(variable.name.clone()) {
                true => variables.push(variable),
                false => notes.push(same_name(&member.node)),
            },
            Err(reason) => notes.push(format!("{} is not in it: {reason}", member.node.key())),
        }
    }
    for (key, reason) in &tree.omitted {
        notes.push(format!("{key} is not in it: {reason}"));
    }
    let mut groups = Vec::new();
    for tree in &tree.groups {
        match name_of(tree.node.name()) {
            Some(name) if names.insert(name.clone()) => {
                groups.push(group(tree, name, scopes, notes));
            }
            Some(_) => notes.push(same_name(&tree.node)),
            None => notes.push(format!(
                "{} is not in it: no name of netCDF",
                tree.node.key()
            )),
        }
    }
    // The grids come after all nodes of the hierarchy, so that no generated name displaces a node.
    grids::add(&tree.arrays, &groups, &mut variables, &mut names, scopes);
    let attributes = match tree.node.metadata().attributes() {
        // The tree of a single array: its variable has the attributes.
        _ if tree.node.is_array() => Vec::new(),
        Ok(members) => attributes::of_group(members, &mut |note| {
            notes.push(format!("{}: {note}", place(&tree.node)));
        }),
        Err(error) => {
            notes.push(format!("{}: attributes: {error}", place(&tree.node)));
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

/// Determines the length of each dimension: that of its coordinate variable, else that of the first array with
/// the dimension.
fn settle_lengths(tree: &GroupTree, scopes: &mut Scopes) {
    let arrays = || tree.arrays.iter().filter_map(named_array);
    for (name, array) in arrays() {
        if let ([Some(dimension)], [length]) = (&array.dimension_names[..], &array.shape[..])
            && name_of(dimension).as_ref() == Some(&name)
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
}

fn same_name(node: &ViewNode) -> String {
    format!(
        "{} is not in it: another node has the same name in NFC",
        node.key()
    )
}

/// Returns the name and the metadata of an array, if it can be a variable.
fn named_array(member: &GroupArray) -> Option<(String, &zarr::Array)> {
    let Node::Array(array) = member.node.metadata() else {
        return None;
    };
    Some((name_of(member.node.name())?, array))
}

fn settle(name: &str, length: u64, scopes: &mut Scopes) {
    if let Some(name) = name_of(name).filter(|_| length <= MAX_LENGTH) {
        scopes.settle(&name, length);
    }
}

fn place(node: &ViewNode) -> String {
    match node.key().is_root() {
        true => "the root".into(),
        false => node.key().to_string(),
    }
}

/// Returns the type of a variable, if metadata alone prove that the array is a variable.
pub(in crate::view) fn proven_type(node: &ViewNode) -> Option<VariableType> {
    let Node::Array(array) = node.metadata() else {
        return None;
    };
    variable_name(node, array).ok()?;
    let (item, ..) = fixed_elements(node.reader()?).ok()?;
    Some(item)
}

/// Returns the name of the variable of an array.
fn variable_name(node: &ViewNode, array: &zarr::Array) -> Result<String, String> {
    let name = name_of(node.name()).ok_or("no name of netCDF")?;
    match array.shape.iter().find(|length| **length > MAX_LENGTH) {
        Some(length) => Err(format!("{length} elements along one axis")),
        None => Ok(name),
    }
}

fn variable(
    member: &GroupArray,
    scopes: &mut Scopes,
    notes: &mut Vec<String>,
) -> Result<Variable, String> {
    let node = &member.node;
    let Node::Array(array) = node.metadata() else {
        return Err("no array".into());
    };
    let name = variable_name(node, array)?;
    let mut note = |note: String| notes.push(format!("{}: {note}", node.key()));
    let (item, data, parts) = elements(member, array, scopes)?;
    if let Some(error) = &member.unread {
        note(format!("its elements cannot be read: {error}"));
    }
    if let Some(error) = &member.unread_place {
        note(format!("its coordinates are not in the file: {error}"));
    }
    let mut dimensions = dimensions(array, &member.axes.axes, scopes, &mut note);
    member.axes.notes.iter().cloned().for_each(&mut note);
    let coordinates = axis_coordinates::of_array(&member.axes, &array.shape, &mut note);
    scopes
        .axis_coordinates
        .add(node.key(), &dimensions, &coordinates);
    if parts == PARTS {
        note("complex numbers: real and imaginary parts are the last dimension".into());
        dimensions.push(scopes.dimension("complex", PARTS, &dimensions));
    }
    if let (VariableType::Char, Data::Array(_, chunk_shape)) = (item, &data)
        && let Some(&length) = chunk_shape.get(array.shape.len())
    {
        dimensions.push(scopes.dimension(&format!("string{length}"), length, &dimensions));
    }
    if matches!((item, &data), (VariableType::Char, Data::Unread(..))) {
        // The length of the texts is not known.
        dimensions.push(scopes.dimension("string1", 1, &dimensions));
    }
    let (mut attributes, fill) =
        attributes_and_fill(array, member.zero_fill, (item, parts), &mut note)?;
    if let Some(name) = &member.axes.image_name
        && attributes.iter().all(|it| it.name != names::LONG_NAME)
    {
        attributes.push(Attribute {
            name: names::LONG_NAME.to_owned(),
            value: AttributeValue::Text(name.clone()),
        });
    }
    Ok(Variable {
        name,
        dimensions,
        item,
        data,
        attributes,
        fill,
        stored: member.stored.clone(),
    })
}

/// Returns the dimensions of the axes of an array. An axis without a name that netCDF permits is called after
/// its length.
fn dimensions(
    array: &zarr::Array,
    axes: &[Axis],
    scopes: &mut Scopes,
    note: &mut impl FnMut(String),
) -> Vec<usize> {
    let mut dimensions = Vec::new();
    if let Some(why) = array.ignored_dimension_names() {
        note(why);
    }
    for (axis, length) in array.shape.iter().enumerate() {
        let declared = axes.get(axis).and_then(|axis| axis.name.as_deref());
        let valid = declared.and_then(name_of);
        if let (Some(name), None) = (declared, &valid) {
            note(format!("{name:?} is no name for a dimension of netCDF"));
        }
        let is_declared = valid.is_some();
        let name = valid.unwrap_or_else(|| format!("dim_{length}"));
        let number = scopes.dimension(&name, *length, &dimensions);
        if is_declared && scopes.find(&name).map(|(number, _)| number) != Some(number) {
            note(format!(
                "axis {axis} is called {name}, as something else is: it got another name"
            ));
        }
        dimensions.push(number);
    }
    dimensions
}

/// Returns the attributes of the variable of an array, and its fill value.
fn attributes_and_fill(
    array: &zarr::Array,
    zero_fill: ZeroFill,
    (item, parts): (VariableType, u64),
    note: &mut impl FnMut(String),
) -> Result<(Vec<Attribute>, Option<Value>), String> {
    let mut attributes = match &array.attributes {
        Ok(members) => attributes::of_variable(members, item, note),
        Err(error) => {
            note(format!("attributes: {error}"));
            Vec::new()
        }
    };
    let mut fill = match item {
        VariableType::Number(number) => fill_value(array, number, zero_fill, note),
        VariableType::Char | VariableType::Text | VariableType::Structure => None,
    };
    if parts == PARTS {
        // Such attributes apply to complex numbers, not to each part.
        fill = None;
        attributes.retain(|Attribute { name, .. }| {
            let is_kept = !is_of_values(name);
            if !is_kept {
                note(format!(
                    "attribute {name:?} is not in it: it is of complex numbers"
                ));
            }
            is_kept
        });
    }
    if let zarr::DataType::Fixed(fixed) = array.data_type.as_ref().map_err(|e| e.to_string())? {
        add_meaning(&fixed.scalar, &mut attributes, &mut fill, note);
    }
    if let (Some(fill), VariableType::Number(number)) = (fill, item) {
        let value = AttributeValue::Numbers(number, vec![fill]);
        let name = names::FILL_VALUE.to_owned();
        attributes.insert(0, Attribute { name, value });
    }
    Ok((attributes, fill))
}

/// Returns the type of the elements, the elements, and the count of numbers in each.
fn elements(
    member: &GroupArray,
    array: &zarr::Array,
    scopes: &mut Scopes,
) -> Result<(VariableType, Data, u64), String> {
    if let Some(error) = &member.unread {
        return Ok(unread(member, error));
    }
    if let Some(texts) = &member.texts {
        let texts = texts.as_ref().map_err(Clone::clone)?;
        let bytes: usize = texts
            .iter()
            .map(|text| text.len() + size_of::<String>())
            .sum();
        scopes.add_text(bytes)?;
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("text with NUL in it".into());
        }
        return Ok((VariableType::Text, Data::Texts(Arc::clone(texts)), 1));
    }
    let reader = match &member.node.elements {
        NodeElements::Fixed(reader) => reader,
        NodeElements::Unreadable(why) => return Err(why.clone()),
        NodeElements::Variable(..) | NodeElements::None => {
            return Err("elements of variable length that are no text".into());
        }
    };
    if let Some(records) = &member.records {
        let records = records.as_ref().map_err(Clone::clone)?;
        scopes.add_text(records.len())?;
        let data = Data::Records(Arc::clone(records), Arc::clone(reader));
        return Ok((VariableType::Structure, data, 1));
    }
    let (item, chunk_shape, parts) = fixed_elements(reader)?;
    debug_assert_eq!(reader.chunks().grid().array_shape(), &array.shape[..]);
    Ok((item, Data::Array(Arc::clone(reader), chunk_shape), parts))
}

/// Returns the elements of an array that could not be read: as [`elements`]. Text is characters, since xarray reads
/// an element of each variable of strings to open a file.
fn unread(member: &GroupArray, error: &StoreError) -> (VariableType, Data, u64) {
    let structures = member
        .node
        .reader()
        .filter(|reader| matches!(reader.chunks().data_type().scalar, Scalar::Struct(_)));
    let item = match structures {
        Some(_) => VariableType::Structure,
        None => VariableType::Char,
    };
    (item, Data::Unread(error.clone(), structures.cloned()), 1)
}

/// Returns the type of elements of constant size, the chunk shape, and the count of numbers in each element.
fn fixed_elements(reader: &ArrayReader) -> Result<(VariableType, Vec<u64>, u64), String> {
    let data_type = reader.chunks().data_type();
    // An array that is one chunk is contiguous.
    let whole = reader.chunks().grid().array_shape();
    let mut chunk_shape = reader.read_chunk_shape().unwrap_or(whole).to_vec();
    let (item, parts) = match (Number::of(data_type), &data_type.scalar) {
        // As in xarray: `byte` is the one-byte type that all readers support.
        (_, Scalar::Bool) => (
            VariableType::Number(Number::new(NumberKind::Int, 1, ByteOrder::Little)),
            1,
        ),
        (Some((number, parts)), _) => (VariableType::Number(number), parts as u64),
        (None, Scalar::Bytes) => {
            // One byte is one character, as in nczarr; longer strings add a dimension.
            if data_type.size_bytes != 1 {
                chunk_shape.push(data_type.size_bytes as u64);
            }
            (VariableType::Char, 1)
        }
        (None, Scalar::Struct(_)) => (VariableType::Structure, 1),
        (None, _) => return Err(format!("netCDF has no data type for {data_type}")),
    };
    if parts == PARTS {
        chunk_shape.push(PARTS);
    }
    Ok((item, chunk_shape, parts))
}

/// The maximum length of an axis; libraries count its bytes.
const MAX_LENGTH: u64 = 1 << 58;

/// Adds attributes that describe the data type.
fn add_meaning(
    scalar: &Scalar,
    attributes: &mut Vec<Attribute>,
    fill: &mut Option<Value>,
    note: &mut impl FnMut(String),
) {
    let text = |name: &str, text: &str| Attribute {
        name: name.to_owned(),
        value: AttributeValue::Text(text.to_owned()),
    };
    match scalar {
        Scalar::DateTime { .. } | Scalar::TimeDelta { .. } => {
            // NaT ("not a time").
            *fill = Some(Value::Int(i64::MIN.into()));
        }
        Scalar::Bool => {
            // As in xarray's netCDF files.
            if attributes.iter().all(|there| there.name != xarray::DTYPE) {
                attributes.push(text(xarray::DTYPE, xarray::BOOL));
            }
            return;
        }
        _ => return,
    }
    let declared = match cf::time_attributes(scalar) {
        Ok(None) => return,
        Ok(Some(declared)) => (declared.iter().map(|(name, value)| text(name, value))).collect(),
        Err(reason) => {
            note(reason);
            Vec::new()
        }
    };
    // The unit of the data type takes precedence over attributes.
    attributes.retain(|there| {
        let is_of_time =
            is_of_time(&there.name) || declared.iter().any(|declared| declared.name == there.name);
        if is_of_time && !declared.contains(there) {
            note(format!(
                "attribute {:?} is not in it: the data type says another one",
                there.name
            ));
        }
        !is_of_time
    });
    attributes.extend(declared);
}
