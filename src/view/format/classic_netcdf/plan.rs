//! The variables of a file: their types, dimensions, attributes and elements.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::header::{self, NcType, Variable};
use super::{MAX_LENGTH, MAX_VARIABLE_BYTES, Version};
use crate::array::ArrayReader;
use crate::node::{NumberKind, Value};
use crate::store::StoreError;
use crate::view::dataset::{
    self, Attribute, AttributeValue, Data, Dataset, Dimension, VariableType,
};
use crate::view::encode::padding::Padding;
use crate::view::file::layout::{ArrayExtent, ElementOrder};

/// The maximum size of a text array, with padding.
const MAX_PADDED_BYTES: usize = 8 << 20;

/// A variable with its elements.
pub(super) struct PlannedVariable {
    pub(super) variable: Variable,
    pub(super) elements: VariableElements,
    /// Size of the variable, or of its part of a record, without padding.
    pub(super) size_bytes: u64,
    pub(super) is_record: bool,
    /// Whether the file's type cannot hold all values of the array's type, so that a read may fail.
    pub(super) is_inexact: bool,
}

/// The elements of a variable.
pub(super) enum VariableElements {
    Bytes(Vec<u8>),
    Array(Arc<ArrayReader>, ArrayExtent),
    /// The elements could not be read.
    Unread(StoreError),
}

/// Returns the unlimited dimension: the slowest dimension of the first variable that is too large for a fixed
/// size, else that of the first variable that has no elements along it, since only the unlimited dimension may
/// have length 0. Other variables that need one and lack this dimension are left out.
fn record_dimension(dataset: &Dataset, version: Version) -> Option<usize> {
    let of_large = (version != Version::Cdf5).then(|| large_dimension(dataset, version));
    let empty = |variable: &dataset::Variable| {
        let shape = variable.shape(&dataset.dimensions);
        let first = variable.dimensions.first().copied();
        first.filter(|_| is_empty_record(&shape))
    };
    let of_empty = || dataset.root.variables.iter().find_map(empty);
    of_large.flatten().or_else(of_empty)
}

/// Returns whether an array has no elements along its first axis, and only there.
fn is_empty_record(shape: &[u64]) -> bool {
    matches!(shape, [0, rest @ ..] if !rest.contains(&0))
}

fn large_dimension(dataset: &Dataset, version: Version) -> Option<usize> {
    let mut found = None;
    for variable in &dataset.root.variables {
        let Some(kind) = target(variable.item, version) else {
            continue;
        };
        let item = kind.size_bytes as u64;
        let shape = variable.shape(&dataset.dimensions);
        let size = shape
            .iter()
            .try_fold(item, |size, length| size.checked_mul(*length));
        if size.is_none_or(|size| size > MAX_VARIABLE_BYTES) {
            let Some(first) = variable.dimensions.first() else {
                continue;
            };
            found.get_or_insert(*first);
        }
    }
    found
}

/// Returns the type of elements in the file; characters for text.
fn target(item: VariableType, version: Version) -> Option<NcType> {
    match item {
        VariableType::Number(number) => NcType::of(number, version),
        VariableType::Char | VariableType::Text => Some(NcType::CHAR),
        VariableType::Structure => None,
    }
}

/// Lays out the variables of a file, one after another.
pub(super) struct Planner {
    version: Version,
    pub(super) dimensions: Dimensions,
    /// The unlimited dimension.
    pub(super) record: Option<usize>,
    padding: Padding,
    pub(super) notes: Vec<String>,
}

impl Planner {
    pub(super) fn new(dataset: &Dataset, version: Version) -> Self {
        Self {
            version,
            dimensions: Dimensions::of(dataset.dimensions.clone()),
            record: record_dimension(dataset, version),
            padding: Padding::default(),
            notes: dataset.notes.clone(),
        }
    }

    /// Returns all variables that the format can express. Those whose elements may fail to decode come last.
    pub(super) fn plan_all(&mut self, variables: &[dataset::Variable]) -> Vec<PlannedVariable> {
        let mut planned = Vec::new();
        for variable in variables {
            match self.plan(variable) {
                Ok(variable) => planned.push(variable),
                Err(reason) => {
                    let name = &variable.name;
                    self.notes.push(format!("{name} is not in it: {reason}"));
                }
            }
        }
        planned.sort_by_key(|planned| planned.is_inexact);
        planned
    }

    /// Returns a variable of the file, or why the format cannot express it.
    fn plan(&mut self, variable: &dataset::Variable) -> Result<PlannedVariable, String> {
        let kind = target(variable.item, self.version).ok_or(match variable.item {
            VariableType::Structure => "structures are only in NetCDF-4",
            _ => "no type of netCDF holds its numbers",
        })?;
        let shape = self.shape(variable)?;
        let texts = match &variable.data {
            Data::Texts(texts) => Some(self.pad(texts)?),
            Data::Array(..) | Data::Records(..) | Data::Numbers(_) | Data::Unread(..) => None,
        };
        let characters = texts.as_ref().map_or(1, |(length, _)| *length as u64);
        let mut dimensions = variable.dimensions.clone();
        if texts.is_some() {
            dimensions.push(self.dimensions.text(characters));
        }
        let is_record = self.is_record(&dimensions)?;
        let in_record = shape.get(usize::from(is_record)..).unwrap_or_default();
        let size_bytes = self.size_bytes(kind, characters, in_record)?;
        let elements = elements(variable, kind, texts)?;
        let is_array = matches!(elements, VariableElements::Array(..));
        if !is_array && is_record && !shape.contains(&0) {
            return Err("text along the unlimited dimension".into());
        }
        let is_wide = matches!(variable.item, VariableType::Number(number)
            if number.size_bytes == 8 && number.kind != NumberKind::Float);
        let vsize = size_bytes.checked_next_multiple_of(4);
        Ok(PlannedVariable {
            is_inexact: is_wide && self.version != Version::Cdf5,
            variable: Variable {
                name: variable.name.clone(),
                dimensions,
                attributes: self.attributes(variable),
                kind,
                vsize: vsize.ok_or("too many bytes")?,
            },
            elements,
            size_bytes,
            is_record,
        })
    }

    fn shape(&self, variable: &dataset::Variable) -> Result<Vec<u64>, String> {
        let shape = variable.shape(&self.dimensions.all);
        let is_record =
            self.record.is_some() && variable.dimensions.first() == self.record.as_ref();
        if shape.contains(&0) && !(is_record && is_empty_record(&shape)) {
            return Err("it has no elements".into());
        }
        let too_long = shape.iter().find(|length| **length > MAX_LENGTH);
        match too_long {
            Some(length) if self.version != Version::Cdf5 => {
                Err(format!("a dimension of {length}; {MAX_LENGTH} is the most"))
            }
            _ => Ok(shape),
        }
    }

    /// Returns the length of the texts after padding, and their bytes.
    fn pad(&mut self, texts: &[String]) -> Result<(usize, Vec<u8>), String> {
        let padded = self.padding.pad(texts, MAX_PADDED_BYTES);
        padded.ok_or_else(|| {
            format!("more than {MAX_PADDED_BYTES} bytes of padded text, or too much in one file")
        })
    }

    fn is_record(&self, dimensions: &[usize]) -> Result<bool, String> {
        let Some(record) = self.record else {
            return Ok(false);
        };
        if dimensions.iter().skip(1).any(|number| *number == record) {
            return Err("the unlimited dimension is not its first one".into());
        }
        Ok(dimensions.first() == Some(&record))
    }

    /// Returns the size of elements of `characters` bytes or numbers, without padding.
    fn size_bytes(&self, kind: NcType, characters: u64, shape: &[u64]) -> Result<u64, String> {
        let item_bytes = (kind.size_bytes as u64).checked_mul(characters);
        let size_bytes = item_bytes.and_then(|item_bytes| {
            let mut lengths = shape.iter();
            lengths.try_fold(item_bytes, |size, length| size.checked_mul(*length))
        });
        let size_bytes = size_bytes.ok_or("too many bytes")?;
        if self.version != Version::Cdf5 && size_bytes > MAX_VARIABLE_BYTES {
            return Err(format!(
                "{size_bytes} bytes; {MAX_VARIABLE_BYTES} are the most, unless it is along the \
                 unlimited dimension (.cdf5.nc has no such limit)"
            ));
        }
        Ok(size_bytes)
    }

    fn attributes(&mut self, variable: &dataset::Variable) -> Vec<header::Attribute> {
        let (found, name) = (&variable.attributes, &variable.name);
        let mut attributes = attributes(found, self.version, name, &mut self.notes);
        let has_encoding = attributes.iter().any(|it| it.name == "_Encoding");
        if matches!(variable.data, Data::Texts(_)) && !has_encoding {
            attributes.push(header::Attribute {
                name: "_Encoding".into(),
                kind: NcType::CHAR,
                count: 5,
                bytes: b"utf-8".to_vec(),
            });
        }
        attributes
    }
}

/// Returns the elements of a variable, whose texts are given with padding.
fn elements(
    variable: &dataset::Variable,
    kind: NcType,
    texts: Option<(usize, Vec<u8>)>,
) -> Result<VariableElements, String> {
    Ok(match (&variable.data, texts) {
        (Data::Texts(_), texts) => {
            VariableElements::Bytes(texts.map_or_else(Vec::new, |(_, bytes)| bytes))
        }
        (Data::Unread(error, _), _) => VariableElements::Unread(error.clone()),
        (Data::Records(..), _) => return Err("structures are only in NetCDF-4".into()),
        (Data::Numbers(values), _) => {
            let number = kind.number.ok_or("no numbers")?;
            let bytes: Option<Vec<Vec<u8>>> =
                values.iter().map(|value| number.write(*value)).collect();
            VariableElements::Bytes(bytes.ok_or("no numbers of their type")?.concat())
        }
        (Data::Array(reader, _), _) => {
            let conversion = kind.number.and_then(|number| variable.conversion(number));
            let extent = ArrayExtent::new(0, reader, ElementOrder::RowMajor, conversion);
            VariableElements::Array(Arc::clone(reader), extent.ok_or("too many bytes")?)
        }
    })
}

/// The dimensions of the file, including those of the characters of texts.
pub(super) struct Dimensions {
    pub(super) all: Vec<Dimension>,
    names: HashMap<String, usize>,
}

impl Dimensions {
    fn of(all: Vec<Dimension>) -> Self {
        let names = all.iter().enumerate();
        let names = names.map(|(number, dimension)| (dimension.name.clone(), number));
        Self {
            names: names.collect(),
            all,
        }
    }

    /// Returns the index of the dimension of `length` characters.
    fn text(&mut self, length: u64) -> usize {
        let mut name = format!("string{length}");
        loop {
            match self.names.get(&name) {
                Some(found) if self.all.get(*found).is_some_and(|it| it.length == length) => {
                    return *found;
                }
                Some(_) => name.push('_'),
                None => break,
            }
        }
        let number = self.all.len();
        self.names.insert(name.clone(), number);
        self.all.push(Dimension {
            name,
            length,
            is_unlimited: false,
        });
        number
    }
}

/// Removes unused dimensions and renumbers the others.
pub(super) fn used_dimensions(
    planned: &mut [PlannedVariable],
    all: &[Dimension],
) -> Vec<(usize, Dimension)> {
    let numbers = planned
        .iter()
        .flat_map(|planned| &planned.variable.dimensions);
    let used: BTreeSet<usize> = numbers.copied().collect();
    let places: HashMap<usize, usize> = used.iter().copied().zip(0..).collect();
    for planned in planned {
        for number in &mut planned.variable.dimensions {
            *number = places.get(number).copied().unwrap_or(0);
        }
    }
    let used = used
        .into_iter()
        .filter_map(|number| Some((number, all.get(number)?.clone())));
    used.collect()
}

/// Returns the attributes in the types of the file. Those that no type holds are notes.
pub(super) fn attributes(
    found: &[Attribute],
    version: Version,
    of: &str,
    notes: &mut Vec<String>,
) -> Vec<header::Attribute> {
    let mut encoded = Vec::new();
    for attribute in found {
        match encode(&attribute.value, version) {
            Some((kind, count, bytes)) => encoded.push(header::Attribute {
                name: attribute.name.clone(),
                kind,
                count,
                bytes,
            }),
            None => notes.push(format!(
                "{of}: attribute {:?} is not in it: no type holds it",
                attribute.name
            )),
        }
    }
    encoded
}

fn encode(value: &AttributeValue, version: Version) -> Option<(NcType, u64, Vec<u8>)> {
    let text = |text: &str| (NcType::CHAR, text.len() as u64, text.as_bytes().to_vec());
    match value {
        AttributeValue::Text(value) => Some(text(value)),
        // The formats have no lists of text.
        AttributeValue::Texts(values) => {
            Some(text(&serde_json::Value::from(values.clone()).to_string()))
        }
        AttributeValue::Numbers(number, values) => {
            let kind = NcType::of(*number, version)?;
            let number = kind.number?;
            let bytes = values.iter().map(|value: &Value| number.write(*value));
            let bytes: Option<Vec<Vec<u8>>> = bytes.collect();
            Some((kind, values.len() as u64, bytes?.concat()))
        }
    }
}
