//! A hierarchy as a plain HDF5 file: all groups, arrays and attributes with their own names, as h5py writes
//! them, without the dimension scales of netCDF.

mod attributes;
mod types;

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use self::attributes::HeapTexts;
use self::types::PlainMembers;
use super::Renderer;
use super::netcdf4::storage;
use super::row::{FormatRow, ViewName};
use crate::array::ArrayReader;
use crate::conventions::cf;
use crate::conventions::description::Field;
use crate::node::{NodeElements, ViewNode};
use crate::store::StoreError;
use crate::view::encode::hdf5::file_body::{self, ArrayContent, DatasetValues, StoredArray};
use crate::view::encode::hdf5::record_encoding::RecordEncoding;
use crate::view::encode::hdf5::{
    self, ChunkIndex, Datatype, MAX_LINK_NAME_BYTES, MAX_RANK, Object, Storage,
};
use crate::view::file::layout::VirtualFile;
use crate::view::group::tree::TreeScope;
use crate::view::group::tree::{GroupArray, GroupTree};
use crate::zarr::{self, FillValue, Node, Variable};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "h5",
    ViewName::Suffix(".h5"),
    "HDF5 of the group and all that is below it, as it is",
    "h5dump -H",
    Renderer::Group(TreeScope::RawSubtree, metadata_prove, render),
)
.expressing(Field::ALL)
.also_called(&["hdf5", "hdf"])];

/// Returns whether metadata alone prove that an array is in the file of its group.
fn metadata_prove(node: &ViewNode) -> bool {
    let Some(view) = node.array_view() else {
        return false;
    };
    view.shape().len() <= MAX_RANK
        && check_name(node.name()).is_ok()
        && types::of_elements(view.data_type()).is_ok()
}

/// Renders a group tree as an HDF5 file. Notes name the nodes that are left out.
///
/// # Errors
/// The group has no node that the file can contain, or the file would be too long.
fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    let (file, omitted) = render_tree(tree)?;
    let notes = [omitted, file.notes].concat();
    Ok(VirtualFile { notes, ..file })
}

/// As [`render`], but fails if a node is left out.
///
/// # Errors
/// As [`render`]; or which nodes are left out.
pub(in crate::view) fn render_whole(tree: &GroupTree) -> Result<VirtualFile, String> {
    let (file, omitted) = render_tree(tree)?;
    match omitted.first() {
        None => Ok(file),
        Some(first) => Err(format!("{first}; the .h5 file has everything else")),
    }
}

/// Returns the file, with notes about attributes, and the list of nodes that are left out.
fn render_tree(tree: &GroupTree) -> Result<(VirtualFile, Vec<String>), String> {
    let mut plan = FileBuilder::default();
    plan.group(tree);
    if plan.file.objects.len() == 1 && tree.node.is_implicit {
        return Err(tree.reason_without_variables(plan.omitted));
    }
    let file = file_body::lay_out(tree, plan.file, plan.values, plan.arrays);
    let file = file.ok_or("no file can be so long")?;
    let notes = plan.notes;
    Ok((VirtualFile { notes, ..file }, plan.omitted))
}

/// Checks that an HDF5 object can have this name.
fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" | "." => Err("no name of HDF5".into()),
        name if name.contains(['\0', '/']) => Err("no name of HDF5".into()),
        name if name.len() > MAX_LINK_NAME_BYTES => Err("its name is too long for HDF5".into()),
        _ => Ok(()),
    }
}

/// The objects of the file.
#[derive(Default)]
struct FileBuilder<'a> {
    file: hdf5::File<'a>,
    /// The texts of the attributes.
    texts: HeapTexts,
    /// The datasets whose elements are part of the header.
    values: Vec<(usize, DatasetValues, Option<ChunkIndex>)>,
    arrays: Vec<StoredArray>,
    notes: Vec<String>,
    /// The nodes that are left out, and why.
    omitted: Vec<String>,
}

/// The type and the elements of a dataset.
struct PlannedDataset {
    datatype: Datatype,
    fill: Option<Vec<u8>>,
    storage: Storage,
    elements: DatasetElements,
}

enum DatasetElements {
    Unallocated,
    Values(DatasetValues),
    Array(Box<StoredArray>),
}

impl<'a> FileBuilder<'a> {
    fn group(&mut self, tree: &'a GroupTree) -> usize {
        let number = self.file.push(Object::Group(hdf5::Group::default()));
        let mut links = Vec::new();
        for (key, why) in &tree.omitted {
            self.omitted.push(format!("{key} is not in it: {why}"));
        }
        for member in &tree.arrays {
            let name = member.node.name();
            match check_name(name).and_then(|()| self.array(member)) {
                Ok(object) => links.push((name.to_owned(), object)),
                Err(why) => self.leave_out(&member.node, &why),
            }
        }
        for tree in &tree.groups {
            let name = tree.node.name();
            match check_name(name) {
                Ok(()) => links.push((name.to_owned(), self.group(tree))),
                Err(why) => self.leave_out(&tree.node, &why),
            }
        }
        // Readers that list by creation order then list by name.
        links.sort_unstable();
        let attributes = match tree.node.metadata().attributes() {
            Ok(members) => self.attributes(&tree.node, members),
            Err(error) => {
                self.note(&tree.node, &format!("attributes: {error}"));
                Vec::new()
            }
        };
        if let Some(Object::Group(group)) = self.file.objects.get_mut(number) {
            *group = hdf5::Group { links, attributes };
        }
        number
    }

    fn array(&mut self, member: &'a GroupArray) -> Result<usize, String> {
        let node = &member.node;
        let Node::Array(array) = node.metadata() else {
            return Err("no array".into());
        };
        let rank = array.shape.len();
        if rank > MAX_RANK {
            return Err(format!("{rank} axes, HDF5 has {MAX_RANK}"));
        }
        let planned = self.elements(member, array)?;
        if let Some(fill) = &planned.fill
            && !hdf5::Dataset::fits_fill_value(fill)
        {
            self.note(node, "its fill value is not in it: too long for HDF5");
        }
        let attributes = self.attributes_of_array(node, array);
        let object = self.file.push(Object::Dataset(hdf5::Dataset {
            datatype: planned.datatype,
            named_type: None,
            shape: array.shape.clone(),
            fill: planned.fill,
            storage: planned.storage,
            attributes,
        }));
        match planned.elements {
            DatasetElements::Unallocated => {}
            DatasetElements::Values(values) => self.values.push((object, values, None)),
            DatasetElements::Array(stored) => self.arrays.push(StoredArray { object, ..*stored }),
        }
        Ok(object)
    }

    fn elements(
        &mut self,
        member: &'a GroupArray,
        array: &zarr::Array,
    ) -> Result<PlannedDataset, String> {
        let is_empty = array.shape.contains(&0);
        let of_values = |datatype, values| PlannedDataset {
            datatype,
            fill: None,
            storage: match is_empty {
                true => Storage::Unallocated,
                false => Storage::Contiguous(0),
            },
            elements: match is_empty {
                true => DatasetElements::Unallocated,
                false => DatasetElements::Values(values),
            },
        };
        if let Some(error) = &member.unread {
            self.note(
                &member.node,
                &format!("its elements cannot be read: {error}"),
            );
            return unread(member, array, error);
        }
        if let Some(texts) = &member.texts {
            let texts = texts.as_ref().map_err(Clone::clone)?;
            if texts.iter().any(|text| text.contains('\0')) {
                return Err("text with NUL in it".into());
            }
            let values = DatasetValues::Variable(self.file.push_texts(texts));
            return Ok(of_values(Datatype::VariableText, values));
        }
        if let Some(sequences) = &member.sequences {
            let sequences = sequences.as_ref().map_err(Clone::clone)?;
            let item = types::of_items(&array.data_type)?;
            let item_bytes = item.size_bytes();
            let added = sequences.iter();
            let added = added.map(|items| self.file.push_sequence(items, item_bytes));
            let values = DatasetValues::Variable(added.collect());
            return Ok(of_values(Datatype::Sequence(Box::new(item)), values));
        }
        let reader = match &member.node.elements {
            NodeElements::Fixed(reader) => reader,
            NodeElements::Unreadable(why) => return Err(why.clone()),
            NodeElements::Variable(..) | NodeElements::None => {
                return Err("objects of variable length: they are in .json".into());
            }
        };
        if let Some(bytes) = &member.records {
            let bytes = bytes.as_ref().map_err(Clone::clone)?;
            let encoding = RecordEncoding::of::<PlainMembers>(reader.chunks().data_type())?;
            let values = types::encode(&encoding, bytes, &mut self.file)?;
            return Ok(of_values(encoding.datatype, values));
        }
        fixed_elements(reader, array)
    }

    fn attributes_of_array(
        &mut self,
        node: &ViewNode,
        array: &zarr::Array,
    ) -> Vec<hdf5::Attribute> {
        let mut members = match &array.attributes {
            Ok(members) => members.clone(),
            Err(error) => {
                self.note(node, &format!("attributes: {error}"));
                Map::new()
            }
        };
        if let Ok(zarr::DataType::Fixed(fixed)) = &array.data_type {
            match cf::time_attributes(&fixed.scalar) {
                Ok(units) => {
                    // The unit of the data type takes precedence over attributes.
                    let units = units.into_iter().flatten();
                    members.extend(units.map(|(name, text)| (name.to_owned(), text.into())));
                }
                Err(why) => self.note(node, &why),
            }
        }
        let names = &array.dimension_names;
        let has_nul = |name: &Option<String>| name.as_ref().is_some_and(|name| name.contains('\0'));
        if names.iter().any(Option::is_some) && !names.iter().any(has_nul) {
            let names = names.iter().map(|name| name.clone().unwrap_or_default());
            let labels = names.map(Json::String).collect();
            // h5py and the library (`H5DSset_label`) name axes with this attribute.
            members.entry("DIMENSION_LABELS").or_insert(labels);
        }
        self.attributes(node, &members)
    }

    fn attributes(&mut self, node: &ViewNode, members: &Map<String, Json>) -> Vec<hdf5::Attribute> {
        let mut found = Vec::with_capacity(members.len());
        for (name, json) in members {
            let (attribute, is_text) =
                attributes::encode(name, json, &mut self.texts, &mut self.file);
            found.push(attribute);
            if is_text {
                self.note(
                    node,
                    &format!("attribute {name:?} is JSON text: HDF5 has no such value"),
                );
            }
        }
        for removed in hdf5::Attribute::remove_unstorable(&mut found) {
            let why = "is not in it: its name or its size is none of HDF5";
            self.note(node, &format!("attribute {:?} {why}", removed.name));
        }
        found
    }

    fn leave_out(&mut self, node: &ViewNode, why: &str) {
        self.omitted
            .push(format!("{} is not in it: {why}", node.key()));
    }

    fn note(&mut self, node: &ViewNode, what: &str) {
        let place = match node.key().is_root() {
            true => "the root".to_owned(),
            false => node.key().to_string(),
        };
        self.notes.push(format!("{place}: {what}"));
    }
}

/// Elements that could not be read: text, sequences or structures.
fn unread(
    member: &GroupArray,
    array: &zarr::Array,
    error: &StoreError,
) -> Result<PlannedDataset, String> {
    let datatype = match (&member.node.elements, &array.data_type) {
        (NodeElements::Fixed(reader), _) => {
            RecordEncoding::of::<PlainMembers>(reader.chunks().data_type())?.datatype
        }
        (_, Ok(zarr::DataType::Variable(Variable::Bytes | Variable::Array(_)))) => {
            Datatype::Sequence(Box::new(types::of_items(&array.data_type)?))
        }
        _ => Datatype::VariableText,
    };
    let item_bytes = datatype.size_bytes() as u64;
    let lengths = array.shape.iter();
    let size_bytes = lengths.fold(item_bytes, |size, length| size.saturating_mul(*length));
    Ok(PlannedDataset {
        datatype,
        fill: None,
        storage: Storage::Contiguous(0),
        elements: DatasetElements::Array(Box::new(StoredArray {
            object: 0,
            reader: None,
            content: ArrayContent::Unread(size_bytes, error.clone()),
            index: None,
        })),
    })
}

/// Elements of constant size.
fn fixed_elements(
    reader: &Arc<ArrayReader>,
    array: &zarr::Array,
) -> Result<PlannedDataset, String> {
    let data_type = reader.chunks().data_type();
    let (datatype, conversion) = types::of_elements(data_type)?;
    let fill = match array.fill_value {
        Ok(FillValue::Undefined) | Err(_) => None,
        Ok(_) => {
            let stored = reader.chunks().fill_value();
            let mut fill = stored.to_vec();
            if let Some(conversion) = conversion {
                let converted = conversion.convert(stored, &mut fill);
                converted.map_err(|_| "its fill value is not text in Unicode")?;
            }
            Some(fill)
        }
    };
    if array.shape.contains(&0) {
        return Ok(PlannedDataset {
            datatype,
            fill,
            storage: Storage::Unallocated,
            elements: DatasetElements::Unallocated,
        });
    }
    let chunks = reader.read_chunk_shape().unwrap_or(&array.shape);
    let item_bytes = datatype.size_bytes();
    let (storage, content, index) =
        storage::of_array(reader, &array.shape, chunks, item_bytes, conversion, false)?;
    Ok(PlannedDataset {
        datatype,
        fill,
        storage,
        elements: DatasetElements::Array(Box::new(StoredArray {
            object: 0,
            reader: Some(Arc::clone(reader)),
            content,
            index,
        })),
    })
}
