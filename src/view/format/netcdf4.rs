//! NetCDF-4: a group as an HDF5 file with dimension scales (netcdf-c, "NetCDF-4 file format";
//! HDF5 Dimension Scale Specification).

mod compound;
pub(in crate::view) mod storage;

use std::collections::{HashMap, HashSet};

pub(in crate::view) use self::compound::needs_encoding;
use self::compound::{NamedTypes, NetCdfMembers};
use self::storage::DatasetElements;
use super::Renderer;
use super::packed::{StoredChunks, swapped};
use super::row::{FormatRow, Listing, ViewName};
use crate::conventions::description::Field;
use crate::node::{Number, NumberKind, Value, ViewNode};
use crate::view::dataset::{
    Attribute, AttributeValue, Data, Dataset, Dimension, Group, MAX_NAME_BYTES, NOT_A_COORDINATE,
    Variable, VariableType, is_name, proven_type,
};
use crate::view::encode::hdf5::file_body::{self, ArrayContent, DatasetValues, StoredArray};
use crate::view::encode::hdf5::record_encoding::RecordEncoding;
use crate::view::encode::hdf5::{
    self, ChunkIndex, Datatype, HeapObject, MAX_RANK, Object, Payload,
};
use crate::view::encode::padding::Padding;
use crate::view::file::layout::VirtualFile;
use crate::view::group::tree::GroupTree;
use crate::zarr::ByteOrder;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "nc",
    ViewName::Suffix(".nc"),
    "NetCDF-4 of the group and all groups below it, or of the array with its coordinates",
    "ncdump -h",
    Renderer::Variables(metadata_prove, render),
)
.expressing(FIELDS)
.also_called(&["netcdf", "netcdf4", "nc4"])
.listed(Listing::ViewsAndGroup)];

/// What the files express: attributes and coordinate arrays of CF, also those computed from spacings and the names of
/// channels; categories and codes are groups, as in the hierarchy.
pub(super) const FIELDS: &[Field] = &[
    Field::ImageName,
    Field::AxisNames,
    Field::Spacing,
    Field::Origin,
    Field::AxisUnits,
    Field::Orientation,
    Field::Coordinates,
    Field::UnevenCoordinates,
    Field::Missing,
    Field::Packing,
    Field::ValueUnits,
    Field::ChannelNames,
    Field::ChannelColors,
    Field::ReferenceSystem,
    Field::Categories,
];

/// The maximum size of the texts of an attribute, padded to the longest one, in bytes.
const MAX_PADDED_BYTES: usize = 16 << 20;

/// Returns whether metadata alone prove that an array is a variable of the file of any group above it.
pub(in crate::view) fn metadata_prove(node: &ViewNode) -> bool {
    let rank = node.array_view().map_or(0, |view| view.shape().len());
    let is_variable = match (proven_type(node), node.array_view()) {
        (Some(VariableType::Structure), Some(view)) => compound::datatype(view.data_type()).is_ok(),
        (item, _) => item.is_some(),
    };
    let mut groups = node.key().as_bytes().split(|byte| *byte == b'/');
    let has_names = groups.all(|name| std::str::from_utf8(name).is_ok_and(is_name));
    // Complex numbers and characters add an axis.
    is_variable && rank < MAX_RANK && has_names
}

/// Renders a group tree as a NetCDF-4 file.
///
/// # Errors
/// No array can be a variable, or the file would be too long.
fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    render_tree(tree, false)
}

/// As [`render`], but with the stored chunks of the arrays for which the tree has them.
///
/// # Errors
/// As [`render`]; or no array has such chunks.
pub(in crate::view) fn render_packed(tree: &GroupTree) -> Result<VirtualFile, String> {
    render_tree(tree, true)
}

fn render_tree(tree: &GroupTree, is_packed: bool) -> Result<VirtualFile, String> {
    let mut dataset = Dataset::of(tree)?;
    dataset.name_labels();
    let mut plan = FileBuilder::of(&dataset);
    plan.group(&dataset.root);
    plan.attach_scales();
    plan.add_types();
    let notes = [dataset.notes.clone(), std::mem::take(&mut plan.notes)].concat();
    if plan.variables == 0 {
        return Err(tree.reason_without_variables(notes));
    }
    if is_packed && plan.packed == 0 {
        return Err(match notes.into_iter().next() {
            Some(note) => format!("no array in it has chunks that HDF5 reads as they are: {note}"),
            None => "no array in it has elements".into(),
        });
    }
    let file = file_body::lay_out(tree, plan.file, plan.values, plan.arrays);
    let file = file.ok_or("no file can be so long")?;
    Ok(VirtualFile { notes, ..file })
}

/// The objects of the file.
struct FileBuilder<'a> {
    dataset: &'a Dataset,
    file: hdf5::File<'a>,
    types: NamedTypes,
    /// The dimension scale of each dimension.
    scales: Vec<usize>,
    /// The datasets that use each dimension, and the axis in each.
    users: Vec<Vec<(usize, u32)>>,
    /// The datasets whose elements are part of the header.
    values: Vec<(usize, DatasetValues, Option<ChunkIndex>)>,
    arrays: Vec<StoredArray>,
    /// The number of arrays that are variables.
    variables: usize,
    /// The number of variables with stored chunks.
    packed: usize,
    padding: Padding,
    notes: Vec<String>,
}

impl<'a> FileBuilder<'a> {
    fn of(dataset: &'a Dataset) -> Self {
        let mut file = hdf5::File::default();
        // The first entries are the addresses of the dimensions, by index.
        let scales = dataset.dimensions.iter().map(|_| HeapObject::Address(0));
        file.heap.extend(scales);
        Self {
            file,
            types: NamedTypes::default(),
            scales: vec![0; dataset.dimensions.len()],
            users: vec![Vec::new(); dataset.dimensions.len()],
            values: Vec::new(),
            arrays: Vec::new(),
            variables: 0,
            padding: Padding::default(),
            packed: 0,
            notes: Vec::new(),
            dataset,
        }
    }

    fn group(&mut self, group: &'a Group) -> usize {
        let number = self.file.push(Object::Group(hdf5::Group::default()));
        let mut links = Vec::new();
        let all = self.dataset;
        let names: HashMap<&str, usize> = (group.dimensions.iter())
            .filter_map(|number| Some((&all.dimensions.get(*number)?.name[..], *number)))
            .collect();
        let coordinate = |variable: &Variable| {
            let dimension = names.get(&variable.name[..]).copied();
            dimension.filter(|dimension| variable.dimensions == [*dimension])
        };
        let coordinates: HashSet<usize> = group.variables.iter().filter_map(coordinate).collect();
        for dimension in &group.dimensions {
            if !coordinates.contains(dimension) {
                links.extend(self.bare_scale(*dimension));
            }
        }
        for variable in &group.variables {
            let coordinate = coordinate(variable);
            // The variable has the name of a dimension, but is not its coordinate.
            let name = match coordinate.is_none() && names.contains_key(&variable.name[..]) {
                true => format!("{NOT_A_COORDINATE}{}", variable.name),
                false => variable.name.clone(),
            };
            if name.len() > MAX_NAME_BYTES {
                self.note(
                    &variable.name,
                    "left out: a dimension has this name as well",
                );
                continue;
            }
            match self.variable(variable, coordinate) {
                Some(object) => links.push((name, object)),
                None => links.extend(coordinate.and_then(|dimension| self.bare_scale(dimension))),
            }
        }
        for group in &group.groups {
            links.push((group.name.clone(), self.group(group)));
        }
        let attributes = self.attributes(&group.attributes, &group.name);
        if let Some(Object::Group(group)) = self.file.objects.get_mut(number) {
            *group = hdf5::Group { links, attributes };
        }
        number
    }

    /// Adds the dimension scale of a dimension without a variable.
    fn bare_scale(&mut self, dimension: usize) -> Option<(String, usize)> {
        let Dimension {
            name,
            length,
            is_unlimited,
        } = self.dataset.dimensions.get(dimension)?.clone();
        let title = format!("This is a netCDF dimension but not a netCDF variable.{length:10}");
        let number = Number::new(NumberKind::Float, 4, ByteOrder::Big);
        let object = self.file.push(Object::Dataset(hdf5::Dataset {
            datatype: Datatype::Number(number),
            named_type: None,
            shape: vec![length],
            fill: None,
            storage: storage::unallocated(&[length], is_unlimited),
            attributes: scale_attributes(&title, dimension),
        }));
        self.set_scale(dimension, object);
        Some((name, object))
    }

    fn set_scale(&mut self, dimension: usize, object: usize) {
        if let Some(scale) = self.scales.get_mut(dimension) {
            *scale = object;
        }
    }

    /// Adds the dataset of a variable; returns its index. `coordinate` is the dimension whose coordinate
    /// variable it is.
    fn variable(&mut self, variable: &'a Variable, coordinate: Option<usize>) -> Option<usize> {
        let (dataset, elements) = match self.dataset(variable, coordinate) {
            Ok(planned) => planned,
            Err(reason) => {
                self.note(&variable.name, &format!("left out: {reason}"));
                return None;
            }
        };
        let object = self.file.push(Object::Dataset(dataset));
        self.variables += 1;
        self.add_elements(object, elements);
        match coordinate {
            Some(dimension) => self.set_scale(dimension, object),
            None => self.use_dimensions(object, &variable.dimensions),
        }
        Some(object)
    }

    /// Returns the dataset of a variable and its elements, or why HDF5 cannot express it.
    fn dataset(
        &mut self,
        variable: &'a Variable,
        coordinate: Option<usize>,
    ) -> Result<(hdf5::Dataset, DatasetElements), String> {
        let shape = variable.shape(&self.dataset.dimensions);
        if shape.len() > MAX_RANK {
            let rank = shape.len();
            return Err(format!("{rank} axes, HDF5 has {MAX_RANK}"));
        }
        let stored = self.stored_chunks(variable);
        let number = match (target(variable.item), stored) {
            (Some(number), Some(stored)) if stored.form.is_swapped => Some(swapped(number)),
            (number, _) => number,
        };
        let is_unlimited = self.is_unlimited(variable);
        let datatype = self.datatype(variable, number)?;
        let (storage, elements) = match stored {
            Some(stored) if !shape.contains(&0) => {
                storage::packed(variable, number, &shape, stored, is_unlimited)?
            }
            _ => self.storage(
                variable,
                number,
                datatype.size_bytes(),
                &shape,
                is_unlimited,
            )?,
        };
        let named_type = match &datatype {
            Datatype::Compound { .. } => {
                Some(self.types.name(&datatype, &variable.name, &mut self.file))
            }
            _ => None,
        };
        let mut attributes = match coordinate {
            Some(dimension) => scale_attributes(&variable.name, dimension),
            None => Vec::new(),
        };
        attributes.extend(self.attributes(&variable.attributes, &variable.name));
        let fill = match stored {
            // Readers use the fill value for chunks that are not stored.
            Some(stored) => Some(stored.form.fill.clone()),
            None => (variable.fill.zip(number)).and_then(|(fill, number)| number.write(fill)),
        };
        let dataset = hdf5::Dataset {
            datatype,
            named_type,
            shape,
            fill,
            storage,
            attributes,
        };
        Ok((dataset, elements))
    }

    fn add_elements(&mut self, object: usize, elements: DatasetElements) {
        match elements {
            DatasetElements::Unallocated => {}
            DatasetElements::Values(values, index) => self.values.push((object, values, index)),
            DatasetElements::Unread(size_bytes, error, index) => self.arrays.push(StoredArray {
                object,
                reader: None,
                content: ArrayContent::Unread(size_bytes, error),
                index,
            }),
            DatasetElements::Array(reader, content, index) => {
                self.packed += usize::from(matches!(content, ArrayContent::Chunks(_)));
                self.arrays.push(StoredArray {
                    object,
                    reader: Some(reader),
                    content,
                    index,
                });
            }
        }
    }

    fn datatype(&self, variable: &Variable, number: Option<Number>) -> Result<Datatype, String> {
        match (number, variable.item, &variable.data) {
            (Some(number), ..) => Ok(Datatype::Number(number)),
            (None, VariableType::Char, _) => Ok(compound::CHARACTER),
            (None, VariableType::Text, _) => Ok(Datatype::VariableText),
            (None, VariableType::Structure, Data::Array(reader, _)) => {
                compound::datatype(reader.chunks().data_type())
            }
            (
                None,
                VariableType::Structure,
                Data::Records(_, reader) | Data::Unread(_, Some(reader)),
            ) => Ok(RecordEncoding::of::<NetCdfMembers>(reader.chunks().data_type())?.datatype),
            (None, VariableType::Number(_) | VariableType::Structure, _) => {
                Err("no data type of netCDF".into())
            }
        }
    }

    /// Returns whether the first dimension of a variable is unlimited.
    fn is_unlimited(&self, variable: &Variable) -> bool {
        let first = variable.dimensions.first();
        let first = first.and_then(|dimension| self.dataset.dimensions.get(*dimension));
        first.is_some_and(|dimension| dimension.is_unlimited)
    }

    /// Returns the stored chunks of a variable, if the file has them.
    fn stored_chunks<'v>(&mut self, variable: &'v Variable) -> Option<&'v StoredChunks> {
        match variable.stored.as_ref()? {
            Ok(stored) => Some(stored),
            Err(why) => {
                self.note(&variable.name, &format!("has decoded elements: {why}"));
                None
            }
        }
    }

    /// Links a dataset with the scales of its dimensions.
    fn use_dimensions(&mut self, object: usize, dimensions: &[usize]) {
        for (axis, dimension) in (0..).zip(dimensions) {
            if let Some(users) = self.users.get_mut(*dimension) {
                users.push((object, axis));
            }
        }
        if let Some(Object::Dataset(dataset)) = self.file.objects.get_mut(object)
            && !dimensions.is_empty()
        {
            // Each axis has a list of one scale.
            let lists = dimensions.iter().map(|entry| (1, *entry));
            dataset.attributes.push(hdf5::Attribute {
                name: "DIMENSION_LIST".into(),
                datatype: Datatype::Sequence(Box::new(Datatype::Reference)),
                payload: Payload::Variable(lists.collect()),
            });
        }
    }

    /// Adds the datasets of each dimension to its scale.
    fn attach_scales(&mut self) {
        for (entry, scale) in self.file.heap.iter_mut().zip(&self.scales) {
            *entry = HeapObject::Address(*scale);
        }
        for (scale, users) in self.scales.iter().zip(std::mem::take(&mut self.users)) {
            let list = hdf5::Attribute {
                name: "REFERENCE_LIST".into(),
                datatype: Datatype::AxisReference,
                payload: Payload::Axes(users),
            };
            // Readers use DIMENSION_LIST; REFERENCE_LIST is left out if it is too long.
            if let Payload::Axes(users) = &list.payload
                && !users.is_empty()
                && list.fits()
                && let Some(Object::Dataset(dataset)) = self.file.objects.get_mut(*scale)
            {
                dataset.attributes.push(list);
            }
        }
    }

    fn attributes(&mut self, attributes: &[Attribute], of: &str) -> Vec<hdf5::Attribute> {
        let mut found = Vec::new();
        for attribute in attributes {
            match encode(attribute, &mut self.padding) {
                Some(encoded) => found.push(encoded),
                None => self.note_attribute(of, &attribute.name),
            }
        }
        for removed in hdf5::Attribute::remove_unstorable(&mut found) {
            self.note_attribute(of, &removed.name);
        }
        found
    }

    fn note_attribute(&mut self, of: &str, name: &str) {
        let why = "is too long for HDF5 (.cdf.nc may have it)";
        self.note(of, &format!("attribute {name:?} {why}"));
    }

    /// Adds the named types to the root group as its first members. netCDF reads members in order and needs
    /// the type of a variable before the variable.
    fn add_types(&mut self) {
        if let Some(Object::Group(root)) = self.file.objects.first_mut() {
            self.types.add_links(&mut root.links);
        }
    }

    fn note(&mut self, name: &str, what: &str) {
        let name = if name.is_empty() { "the group" } else { name };
        self.notes.push(format!("{name}: {what}"));
    }
}

/// Returns the type of the numbers in the file: netCDF has no 2-byte floats.
fn target(item: VariableType) -> Option<Number> {
    match item {
        VariableType::Number(number)
            if number.kind == NumberKind::Float && number.size_bytes == 2 =>
        {
            Some(Number::new(NumberKind::Float, 4, number.order))
        }
        VariableType::Number(number) => Some(number),
        VariableType::Char | VariableType::Text | VariableType::Structure => None,
    }
}

/// Returns the attributes of a dimension scale in netCDF (`nc4hdf.c`).
fn scale_attributes(name: &str, dimension: usize) -> Vec<hdf5::Attribute> {
    let text = |name: &str, text: &str| hdf5::Attribute {
        name: name.to_owned(),
        datatype: Datatype::Terminated(text.len() + 1),
        payload: Payload::One(text.bytes().chain([0]).collect()),
    };
    let number = i32::try_from(dimension).unwrap_or(i32::MAX);
    vec![
        text("CLASS", "DIMENSION_SCALE"),
        text("NAME", name),
        hdf5::Attribute {
            name: "_Netcdf4Dimid".into(),
            datatype: Datatype::Number(Number::new(NumberKind::Int, 4, ByteOrder::Little)),
            payload: Payload::One(number.to_le_bytes().to_vec()),
        },
    ]
}

fn encode(attribute: &Attribute, padding: &mut Padding) -> Option<hdf5::Attribute> {
    let (datatype, payload) = match &attribute.value {
        AttributeValue::Text(text) => {
            // An empty text becomes one NUL: readers fail on an attribute without a value.
            let bytes = if text.is_empty() { "\0" } else { text };
            let datatype = Datatype::Text {
                size_bytes: bytes.len(),
                is_ascii: text.is_ascii(),
            };
            (datatype, Payload::One(bytes.as_bytes().to_vec()))
        }
        AttributeValue::Texts(texts) => {
            let (size_bytes, bytes) = padding.pad(texts, MAX_PADDED_BYTES)?;
            // h5netcdf returns bytes for a list of ASCII texts.
            let datatype = Datatype::Text {
                size_bytes,
                is_ascii: false,
            };
            (datatype, Payload::Many(texts.len() as u64, bytes))
        }
        AttributeValue::Numbers(number, values) => {
            let number = target(VariableType::Number(*number))?;
            let bytes: Option<Vec<Vec<u8>>> = values
                .iter()
                .map(|value: &Value| number.write(*value))
                .collect();
            let payload = Payload::Many(values.len() as u64, bytes?.concat());
            (Datatype::Number(number), payload)
        }
    };
    Some(hdf5::Attribute {
        name: attribute.name.clone(),
        datatype,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::view::dataset::Data;

    fn text(name: &str, dimensions: &[usize]) -> Variable {
        Variable {
            name: name.to_owned(),
            dimensions: dimensions.to_vec(),
            item: VariableType::Text,
            data: Data::Texts(Arc::new(vec!["a".to_owned(); 6])),
            attributes: Vec::new(),
            fill: None,
            stored: None,
        }
    }

    #[test]
    fn variables_that_are_left_out_take_no_space() {
        let long = "n".repeat(MAX_NAME_BYTES - 10);
        let dimension = |name: &str, length| Dimension {
            name: name.to_owned(),
            length,
            is_unlimited: false,
        };
        let dataset = Dataset {
            dimensions: vec![dimension(&long, 2), dimension("x", 3)],
            root: Group {
                name: String::new(),
                dimensions: vec![0, 1],
                // A dimension has this name, and the name with the prefix is too long.
                variables: vec![text(&long, &[0, 1]), text("other", &[0, 1])],
                attributes: Vec::new(),
                groups: Vec::new(),
            },
            labels: Vec::new(),
            notes: Vec::new(),
        };
        let mut plan = FileBuilder::of(&dataset);
        plan.group(&dataset.root);
        let Some(Object::Group(root)) = plan.file.objects.first() else {
            panic!("no root group");
        };
        let linked: HashSet<usize> = root.links.iter().map(|(_, object)| *object).collect();
        assert_eq!(linked, (1..plan.file.objects.len()).collect());
        let users = plan.users.iter().flatten();
        assert!(users.clone().count() == 2 && users.clone().all(|(user, _)| linked.contains(user)));
        assert_eq!(plan.values.len(), 1);
        assert!(plan.notes[0].contains("left out"), "{:?}", plan.notes);
    }
}
