//! Classic NetCDF: CDF-1, CDF-2 and CDF-5 (NetCDF User's Guide, "File Format Specifications", "The
//! NetCDF Classic Format Specification").
//!
//! There are no groups, and before CDF-5 no unsigned and no 64-bit integers: they become the
//! smallest type that holds them exactly; an element of 64 bits that a double does not hold exactly
//! is an error when it is read.

mod header;

use std::sync::Arc;

use self::header::{Header, Type, Variable};
use super::branch::Branch;
use super::dataset::{self, Attr, Attribute, Data, Dataset, Dimension, Item};
use super::layout::{Layout, Made, Order, Placed, Placement, Slab};
use super::number::Value;
use crate::array::ArrayReader;

/// Elements begin at a multiple of this, so that what the kernel reads ahead of a header is no
/// chunk.
const DATA_ALIGNMENT_BYTES: u64 = 1 << 20;
/// At least so much is between the header and the elements.
const GAP_BYTES: u64 = 128 << 10;
/// CDF-1: a variable begins before this.
const MAX_OFFSET_1: u64 = i32::MAX as u64;
/// CDF-1 and CDF-2: the size of a variable, or of its part of a record.
const MAX_VARIABLE_BYTES: u64 = u32::MAX as u64 - 3;
/// CDF-1 and CDF-2: the length of a dimension.
const MAX_LENGTH: u64 = i32::MAX as u64;

/// Which of the three it is; the number stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Cdf1 = 1,
    Cdf2 = 2,
    Cdf5 = 5,
}

/// The variables of a group in CDF-1, or in CDF-2 if that is not enough.
///
/// # Errors
/// Why there is none.
pub(super) fn make(branch: &Branch) -> Result<Made, String> {
    make_version(branch, Version::Cdf2)
}

/// The variables of a group in CDF-5, which fewer tools read.
///
/// # Errors
/// Why there is none.
pub(super) fn make_cdf5(branch: &Branch) -> Result<Made, String> {
    make_version(branch, Version::Cdf5)
}

/// A variable with its elements.
struct Planned {
    variable: Variable,
    elements: Elements,
    /// All of it, or its part of a record, without padding.
    size_bytes: u64,
    is_record: bool,
}

enum Elements {
    Bytes(Vec<u8>),
    Array(Arc<ArrayReader>, Placed),
}

fn make_version(branch: &Branch, version: Version) -> Result<Made, String> {
    let dataset = Dataset::of(branch);
    let mut notes = dataset.notes.clone();
    if !branch.groups_left_out.is_empty() {
        let names = branch.groups_left_out.join(", ");
        notes.push(format!(
            "there are no groups in it: {names} have files of their own"
        ));
    }
    let record = match version {
        Version::Cdf5 => None,
        _ => record_dimension(&dataset, version),
    };
    let mut dimensions = dataset.dimensions.clone();
    let mut planned = Vec::new();
    for variable in &dataset.root.variables {
        match plan(variable, &mut dimensions, record, version, &mut notes) {
            Ok(found) => planned.push(found),
            Err(why) => notes.push(format!("{} is not in it: {why}", variable.name)),
        }
    }
    if planned.is_empty() {
        let why = notes.into_iter().next();
        return Err(why.unwrap_or_else(|| "no array is in it".into()));
    }
    let attributes = attributes(&dataset.root.attributes, version, "the group", &mut notes);
    // Only dimensions that are used: those of groups are not.
    let used = used_dimensions(&mut planned, &dimensions);
    let record = record.filter(|_| planned.iter().any(|planned| planned.is_record));
    let records = record.and_then(|record| dimensions.get(record));
    let mut header = Header {
        version,
        dimensions: used,
        attributes,
        record: records.map(|records| (record.unwrap_or(0), records.length)),
    };
    if version == Version::Cdf2 {
        header.version = Version::Cdf1;
        let offsets = offsets(&header, &planned);
        let is_small = offsets.is_some_and(|offsets| offsets.iter().all(|at| *at <= MAX_OFFSET_1));
        header.version = if is_small {
            Version::Cdf1
        } else {
            Version::Cdf2
        };
    }
    let mut sources = Vec::new();
    let parts = parts(&header, planned, &mut sources);
    let layout = parts
        .and_then(Layout::new)
        .ok_or("no file can be so long")?;
    Ok(Made {
        layout,
        sources,
        notes,
    })
}

/// The slowest dimension of the first variable that is too large to have a fixed size; others that
/// are too large and do not have it are left out.
fn record_dimension(dataset: &Dataset, version: Version) -> Option<usize> {
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

/// The type of elements in the file; characters for text.
fn target(item: Item, version: Version) -> Option<Type> {
    let Item::Number(number) = item else {
        return Some(Type::CHAR);
    };
    Type::of(number, version)
}

fn plan(
    variable: &dataset::Variable,
    dimensions: &mut Vec<Dimension>,
    record: Option<usize>,
    version: Version,
    notes: &mut Vec<String>,
) -> Result<Planned, String> {
    let kind = target(variable.item, version).ok_or("no type of netCDF holds its numbers")?;
    let shape = variable.shape(dimensions);
    if shape.contains(&0) {
        return Err("it has no elements".into());
    }
    if version != Version::Cdf5
        && let Some(length) = shape.iter().find(|length| **length > MAX_LENGTH)
    {
        return Err(format!("a dimension of {length}; {MAX_LENGTH} is the most"));
    }
    let mut numbers = variable.dimensions.clone();
    let characters = match variable.item {
        Item::Text { size_bytes, .. } => size_bytes as u64,
        Item::Number(_) => 1,
    };
    if let Item::Text { size_bytes, .. } = variable.item {
        numbers.push(text_dimension(size_bytes as u64, dimensions));
    }
    let is_record = record.is_some() && numbers.first() == record.as_ref();
    if record.is_some_and(|record| numbers.iter().skip(1).any(|number| *number == record)) {
        return Err("the unlimited dimension is not its first one".into());
    }
    let inner = if is_record {
        shape.get(1..).unwrap_or_default()
    } else {
        &shape
    };
    let item = (kind.size_bytes as u64).checked_mul(characters);
    let size_bytes = item.and_then(|item| {
        let mut lengths = inner.iter();
        lengths.try_fold(item, |size, length| size.checked_mul(*length))
    });
    let size_bytes = size_bytes.ok_or("too many bytes")?;
    if version != Version::Cdf5 && size_bytes > MAX_VARIABLE_BYTES {
        return Err(format!(
            "{size_bytes} bytes; {MAX_VARIABLE_BYTES} are the most, unless it is along the \
             unlimited dimension (.cdf5.nc has no such limit)"
        ));
    }
    let elements = match &variable.data {
        Data::Bytes(bytes) => Elements::Bytes(bytes.clone()),
        Data::Array(reader, _) => {
            let conversion = kind.number.and_then(|number| variable.conversion(number));
            let placed = Placed::new(0, reader, Order::Rows, conversion);
            Elements::Array(Arc::clone(reader), placed.ok_or("too many bytes")?)
        }
    };
    if matches!(elements, Elements::Bytes(_)) && is_record {
        return Err("text along the unlimited dimension".into());
    }
    Ok(Planned {
        variable: Variable {
            name: variable.name.clone(),
            dimensions: numbers,
            attributes: attributes(&variable.attributes, version, &variable.name, notes),
            kind,
            vsize: size_bytes
                .checked_next_multiple_of(4)
                .ok_or("too many bytes")?,
        },
        elements,
        size_bytes,
        is_record,
    })
}

/// The dimension along the characters of text.
fn text_dimension(length: u64, dimensions: &mut Vec<Dimension>) -> usize {
    let names = (0..).map(|attempt| match attempt {
        0 => format!("string{length}"),
        attempt => format!("string{length}_{attempt}"),
    });
    for name in names {
        match dimensions
            .iter()
            .position(|dimension| dimension.name == name)
        {
            Some(found)
                if dimensions
                    .get(found)
                    .is_some_and(|found| found.length == length) =>
            {
                return found;
            }
            Some(_) => {}
            None => {
                dimensions.push(Dimension { name, length });
                break;
            }
        }
    }
    dimensions.len() - 1
}

/// Leaves out the dimensions that nobody has, and numbers the others anew.
fn used_dimensions(planned: &mut [Planned], all: &[Dimension]) -> Vec<(usize, Dimension)> {
    let mut used: Vec<(usize, Dimension)> = Vec::new();
    for (number, dimension) in all.iter().enumerate() {
        let mut variables = planned.iter();
        if variables.any(|planned| planned.variable.dimensions.contains(&number)) {
            used.push((number, dimension.clone()));
        }
    }
    for planned in planned {
        for number in &mut planned.variable.dimensions {
            let place = used.iter().position(|(old, _)| old == number);
            *number = place.unwrap_or(0);
        }
    }
    used
}

fn attributes(
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

fn encode(value: &Attr, version: Version) -> Option<(Type, u64, Vec<u8>)> {
    let text = |text: &str| (Type::CHAR, text.len() as u64, text.as_bytes().to_vec());
    match value {
        Attr::Text(value) => Some(text(value)),
        // There are no lists of text.
        Attr::Texts(values) => Some(text(&serde_json::Value::from(values.clone()).to_string())),
        Attr::Numbers(number, values) => {
            let kind = Type::of(*number, version)?;
            let number = kind.number?;
            let bytes = values.iter().map(|value: &Value| number.write(*value));
            let bytes: Option<Vec<Vec<u8>>> = bytes.collect();
            Some((kind, values.len() as u64, bytes?.concat()))
        }
    }
}

/// Zeros behind a variable, or behind its part of a record. The only variable with records has
/// none ("Note on padding").
fn padding_bytes(planned: &Planned, is_only_record: bool) -> u64 {
    match planned.is_record && is_only_record {
        true => 0,
        false => planned.size_bytes.next_multiple_of(4) - planned.size_bytes,
    }
}

fn is_only_record(planned: &[Planned]) -> bool {
    planned.iter().filter(|planned| planned.is_record).count() == 1
}

/// Where each variable begins: those of fixed size, then the parts of the first record.
fn offsets(header: &Header, planned: &[Planned]) -> Option<Vec<u64>> {
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let mut offsets = vec![0; planned.len()];
    let length = header.encode(&variables, &offsets).len() as u64;
    let start = length.checked_add(GAP_BYTES)?;
    let mut at = start.checked_next_multiple_of(DATA_ALIGNMENT_BYTES)?;
    let is_only = is_only_record(planned);
    for is_record in [false, true] {
        for (planned, offset) in planned.iter().zip(&mut offsets) {
            if planned.is_record == is_record {
                *offset = at;
                let padding = padding_bytes(planned, is_only);
                at = at.checked_add(planned.size_bytes)?.checked_add(padding)?;
            }
        }
    }
    Some(offsets)
}

fn parts(
    header: &Header,
    planned: Vec<Planned>,
    sources: &mut Vec<Arc<ArrayReader>>,
) -> Option<Vec<Placement>> {
    let offsets = offsets(header, &planned)?;
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let bytes = header.encode(&variables, &offsets);
    let start = offsets.iter().min()?;
    let gap = start.checked_sub(bytes.len() as u64)?;
    let mut parts = vec![Placement::Bytes(bytes), Placement::Zeros(gap)];
    let is_only = is_only_record(&planned);
    let mut slabs = Vec::new();
    for planned in planned {
        let padding = padding_bytes(&planned, is_only);
        match planned.elements {
            Elements::Bytes(bytes) => parts.push(Placement::Bytes(bytes)),
            Elements::Array(reader, placed) => {
                let source = sources.len();
                sources.push(reader);
                let placed = Placed { source, ..placed };
                if planned.is_record {
                    slabs.push(Slab {
                        placed,
                        size_bytes: planned.size_bytes,
                        padding_bytes: padding,
                    });
                    continue;
                }
                parts.push(Placement::Array(placed));
            }
        }
        parts.push(Placement::Zeros(padding));
    }
    if let Some((_, records)) = header.record {
        parts.push(Placement::Records(records, slabs));
    }
    Some(parts)
}
