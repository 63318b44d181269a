//! NetCDF-4: a group as an HDF5 file with dimension scales (netcdf-c, "NetCDF-4 file format";
//! HDF5 Dimension Scale Specification).

mod body;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::body::{Stored, Values};
use super::branch::GroupTree;
use super::dataset::{
    Attr, Attribute, Data, Dataset, Dimension, Group, Item, MAX_NAME_BYTES, NOT_A_COORDINATE,
    Variable, certain_item,
};
use super::hdf5::{self, ChunkIndex, Datatype, Entry, Object, Payload, Storage};
use super::layout::{ArrayExtent, ElementOrder, VirtualFile};
use super::node::ViewNode;
use super::number::{Number, NumberKind, Value};
use crate::array::ArrayReader;
use crate::zarr::ByteOrder;

/// The most axes of HDF5 (`H5S_MAX_RANK`).
const MAX_RANK: usize = 32;

/// Whether an array is certainly a variable of a file, by its metadata alone.
pub(super) fn is_certain(node: &ViewNode) -> bool {
    let rank = node.array_view().map_or(0, |view| view.shape().len());
    // Complex numbers and characters add an axis.
    certain_item(node).is_some() && rank < MAX_RANK
}

/// The NetCDF-4 file of a group tree.
///
/// # Errors
/// Why there is none: no array can be a variable, or the file would be too long.
pub(super) fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    let dataset = Dataset::of(tree)?;
    let mut plan = Plan::of(&dataset);
    plan.group(&dataset.root);
    plan.attach_scales();
    let notes = [dataset.notes.clone(), std::mem::take(&mut plan.notes)].concat();
    if plan.variables == 0 {
        return Err(tree.without_variables(notes));
    }
    let found = body::lay_out(plan.file, plan.values, plan.arrays);
    let (layout, sources) = found.ok_or("no file can be so long")?;
    Ok(VirtualFile {
        layout,
        sources,
        notes,
    })
}

/// The elements of a dataset.
enum Elements {
    Nowhere,
    Values(Values),
    Array(Arc<ArrayReader>, ArrayExtent, Option<ChunkIndex>),
}

/// The objects of the file.
struct Plan<'a> {
    dataset: &'a Dataset,
    file: hdf5::File,
    /// The dimension scale of each dimension.
    scales: Vec<usize>,
    /// The datasets with each dimension, and the axis in each.
    users: Vec<Vec<(usize, u32)>>,
    /// The datasets whose elements are in the header.
    values: Vec<(usize, Values)>,
    arrays: Vec<Stored>,
    /// The number of arrays that are variables.
    variables: usize,
    notes: Vec<String>,
}

impl<'a> Plan<'a> {
    fn of(dataset: &'a Dataset) -> Self {
        let mut file = hdf5::File::default();
        // The first entries are those of the dimensions, by index.
        let scales = dataset.dimensions.iter().map(|_| Entry::Address(0));
        file.heap.extend(scales);
        Self {
            file,
            scales: vec![0; dataset.dimensions.len()],
            users: vec![Vec::new(); dataset.dimensions.len()],
            values: Vec::new(),
            arrays: Vec::new(),
            variables: 0,
            notes: Vec::new(),
            dataset,
        }
    }

    fn push(&mut self, object: Object) -> usize {
        self.file.objects.push(object);
        self.file.objects.len() - 1
    }

    fn group(&mut self, group: &Group) -> usize {
        let number = self.push(Object::Group(hdf5::Group::default()));
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
            // The name of a dimension whose coordinate it is not.
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

    /// A dimension without a variable.
    fn bare_scale(&mut self, dimension: usize) -> Option<(String, usize)> {
        let Dimension { name, length } = self.dataset.dimensions.get(dimension)?.clone();
        let title = format!("This is a netCDF dimension but not a netCDF variable.{length:10}");
        let number = Number::new(NumberKind::Float, 4, ByteOrder::Big);
        let object = self.push(Object::Dataset(hdf5::Dataset {
            datatype: Datatype::Number(number),
            shape: vec![length],
            fill: None,
            storage: Storage::Nowhere,
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

    fn variable(&mut self, variable: &Variable, coordinate: Option<usize>) -> Option<usize> {
        let shape = variable.shape(&self.dataset.dimensions);
        if shape.len() > MAX_RANK {
            let rank = shape.len();
            self.note(
                &variable.name,
                &format!("left out: {rank} axes, HDF5 has {MAX_RANK}"),
            );
            return None;
        }
        let number = target(variable.item);
        let datatype = match (number, variable.item) {
            (Some(number), _) => Datatype::Number(number),
            (None, Item::Char) => Datatype::Text {
                size_bytes: 1,
                is_ascii: true,
            },
            (None, Item::Text) => Datatype::VariableText,
            (None, Item::Number(_)) => return None,
        };
        let (storage, elements) = match self.storage(variable, number, &shape) {
            Ok(found) => found,
            Err(why) => {
                self.note(&variable.name, &format!("left out: {why}"));
                return None;
            }
        };
        let mut attributes = match coordinate {
            Some(dimension) => scale_attributes(&variable.name, dimension),
            None => Vec::new(),
        };
        attributes.extend(self.attributes(&variable.attributes, &variable.name));
        let fill = variable.fill.zip(number);
        let object = self.push(Object::Dataset(hdf5::Dataset {
            datatype,
            shape,
            fill: fill.and_then(|(fill, number)| number.write(fill)),
            storage,
            attributes,
        }));
        self.variables += 1;
        match elements {
            Elements::Nowhere => {}
            Elements::Values(values) => self.values.push((object, values)),
            Elements::Array(reader, extent, index) => self.arrays.push(Stored {
                object,
                reader,
                extent,
                index,
            }),
        }
        match coordinate {
            Some(dimension) => self.set_scale(dimension, object),
            None => {
                for (axis, dimension) in (0..).zip(&variable.dimensions) {
                    if let Some(users) = self.users.get_mut(*dimension) {
                        users.push((object, axis));
                    }
                }
                self.name_dimensions(object, &variable.dimensions);
            }
        }
        Some(object)
    }

    /// The storage of the elements: the chunks of the array, so that each is decoded once; contiguous if
    /// there is one chunk, or if HDF5 cannot have such chunks.
    fn storage(
        &mut self,
        variable: &Variable,
        number: Option<Number>,
        shape: &[u64],
    ) -> Result<(Storage, Elements), String> {
        if shape.contains(&0) {
            return Ok((Storage::Nowhere, Elements::Nowhere));
        }
        let (reader, chunks) = match &variable.data {
            Data::Texts(texts) => {
                let elements = Elements::Values(Values::Texts(self.texts(texts)));
                return Ok((Storage::Contiguous(0), elements));
            }
            Data::Numbers(values) => {
                let number = number.ok_or("no numbers")?;
                let bytes: Option<Vec<Vec<u8>>> =
                    values.iter().map(|value| number.write(*value)).collect();
                let bytes = bytes.ok_or("no numbers of their type")?.concat();
                let elements = Elements::Values(Values::Bytes(bytes));
                return Ok((Storage::Contiguous(0), elements));
            }
            Data::Array(reader, chunks) => (reader, chunks),
        };
        let conversion = number.and_then(|number| variable.conversion(number));
        let item = number.map_or(1, |number| number.size_bytes) as u64;
        let pairs = || chunks.iter().zip(shape);
        let is_one = pairs().all(|(chunk, length)| chunk >= length);
        // A chunk of HDF5 must not be larger than the array.
        let fits = pairs().all(|(chunk, length)| chunk <= length);
        let index = match fits && !is_one {
            true => ChunkIndex::new(shape, chunks, item),
            false => None,
        };
        let (order, storage) = match index {
            Some(_) => (
                ElementOrder::ChunkMajor,
                Storage::Chunked(0, chunks.clone()),
            ),
            None => (ElementOrder::RowMajor, Storage::Contiguous(0)),
        };
        let extent = ArrayExtent::new(0, reader, order, conversion).ok_or("too many bytes")?;
        if let Some(index) = &index
            && index.chunks_bytes() != extent.size_bytes
        {
            return Err("bug: its chunks are not those of its file".into());
        }
        Ok((storage, Elements::Array(Arc::clone(reader), extent, index)))
    }

    /// Adds texts to the heap, each once.
    fn texts(&mut self, texts: &[String]) -> Vec<(u32, usize)> {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut entries = Vec::with_capacity(texts.len());
        for text in texts {
            let entry = *known.entry(text).or_insert_with(|| {
                self.file.heap.push(Entry::Text(text.clone()));
                self.file.heap.len() - 1
            });
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            entries.push((length, entry));
        }
        entries
    }

    fn name_dimensions(&mut self, object: usize, dimensions: &[usize]) {
        if let Some(Object::Dataset(dataset)) = self.file.objects.get_mut(object)
            && !dimensions.is_empty()
        {
            dataset.attributes.push(hdf5::Attribute {
                name: "DIMENSION_LIST".into(),
                datatype: Datatype::References,
                payload: Payload::Lists(dimensions.to_vec()),
            });
        }
    }

    /// Adds the datasets of each dimension to its scale.
    fn attach_scales(&mut self) {
        for (entry, scale) in self.file.heap.iter_mut().zip(&self.scales) {
            *entry = Entry::Address(*scale);
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
            match encode(attribute).filter(hdf5::Attribute::fits) {
                Some(encoded) => found.push(encoded),
                None => {
                    let limit = "is longer than 64 KiB, the limit of HDF5 (.cdf.nc has none)";
                    self.note(of, &format!("attribute {:?} {limit}", attribute.name));
                }
            }
        }
        found
    }

    fn note(&mut self, name: &str, what: &str) {
        let name = if name.is_empty() { "the group" } else { name };
        self.notes.push(format!("{name}: {what}"));
    }
}

/// The type of the numbers in the file: netCDF has no floats of two bytes.
fn target(item: Item) -> Option<Number> {
    match item {
        Item::Number(number) if number.kind == NumberKind::Float && number.size_bytes == 2 => {
            Some(Number::new(NumberKind::Float, 4, number.order))
        }
        Item::Number(number) => Some(number),
        Item::Char | Item::Text => None,
    }
}

/// The attributes of a dimension scale in netCDF (`nc4hdf.c`).
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

fn encode(attribute: &Attribute) -> Option<hdf5::Attribute> {
    let (datatype, payload) = match &attribute.value {
        Attr::Text(text) => {
            // One NUL if it is empty: readers fail on an attribute without a value.
            let bytes = if text.is_empty() { "\0" } else { text };
            let datatype = Datatype::Text {
                size_bytes: bytes.len(),
                is_ascii: text.is_ascii(),
            };
            (datatype, Payload::One(bytes.as_bytes().to_vec()))
        }
        Attr::Texts(texts) => {
            let size_bytes = texts.iter().map(String::len).max().unwrap_or(0).max(1);
            // Checked before the padding is written.
            let total = size_bytes.checked_mul(texts.len())?;
            if total > usize::from(u16::MAX) {
                return None;
            }
            let mut bytes = Vec::with_capacity(total);
            for text in texts {
                let end = bytes.len() + size_bytes;
                bytes.extend(text.as_bytes());
                bytes.resize(end, 0);
            }
            let is_ascii = bytes.is_ascii();
            let datatype = Datatype::Text {
                size_bytes,
                is_ascii,
            };
            (datatype, Payload::Many(texts.len() as u64, bytes))
        }
        Attr::Numbers(number, values) => {
            let number = target(Item::Number(*number))?;
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
    use super::*;

    fn text(name: &str, dimensions: &[usize]) -> Variable {
        Variable {
            name: name.to_owned(),
            dimensions: dimensions.to_vec(),
            item: Item::Text,
            data: Data::Texts(Arc::new(vec!["a".to_owned(); 6])),
            attributes: Vec::new(),
            fill: None,
        }
    }

    #[test]
    fn variables_that_are_left_out_take_no_space() {
        let long = "n".repeat(MAX_NAME_BYTES - 10);
        let dimension = |name: &str, length| Dimension {
            name: name.to_owned(),
            length,
        };
        let dataset = Dataset {
            dimensions: vec![dimension(&long, 2), dimension("x", 3)],
            root: Group {
                name: String::new(),
                dimensions: vec![0, 1],
                // A dimension has its name, and with the prefix it is too long.
                variables: vec![text(&long, &[0, 1]), text("other", &[0, 1])],
                attributes: Vec::new(),
                groups: Vec::new(),
            },
            notes: Vec::new(),
        };
        let mut plan = Plan::of(&dataset);
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
