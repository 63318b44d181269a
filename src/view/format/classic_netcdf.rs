//! Classic NetCDF: CDF-1, CDF-2 and CDF-5 (NetCDF User's Guide, "File Format Specifications", "The
//! NetCDF Classic Format Specification").
//!
//! The formats have no groups. Before CDF-5 they have no unsigned and no 64-bit integers: these become the
//! smallest type that holds them exactly. A 64-bit element that a double cannot hold exactly is a read error.

mod header;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use self::header::{Header, NcType, Variable};
use super::Renderer;
use super::row::{CF, FormatRow, ViewName};
use crate::array::ArrayReader;
use crate::conventions::cf::attributes::is_of_values;
use crate::conventions::cf::{self, names};
use crate::node::{Number, NumberKind, Value, ViewNode};
use crate::store::StoreError;
use crate::view::dataset::{
    self, Attribute, AttributeValue, Data, Dataset, Dimension, VariableType, proven_type,
};
use crate::view::group_tree::GroupTree;
use crate::view::group_tree::TreeScope;
use crate::view::layout::{
    self, ArrayExtent, ElementOrder, FileLayout, RecordSlice, Segment, VirtualFile,
};
use crate::view::padding::Padding;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "cdf",
        ViewName::Suffix(".cdf.nc"),
        "classic NetCDF of the arrays of the group",
        "ncdump -h",
        Renderer::Group(TreeScope::Group, metadata_prove, render),
    )
    .expressing(CF)
    .also_called(&["netcdf3"]),
    FormatRow::new(
        "cdf5",
        ViewName::Suffix(".cdf5.nc"),
        "CDF-5 of the arrays of the group",
        "ncdump -h",
        Renderer::Group(TreeScope::Group, metadata_prove, render_cdf5),
    )
    .expressing(CF),
];

/// The length of the blocks in which netCDF-C (8 KiB) and CDO read, in bytes. A read(2) that fails after its
/// first page returns that page, and netCDF-C takes the missing rest of the block for the end of the file, which
/// has zeros: so each block fails as a whole, and belongs to one variable.
const BLOCK_BYTES: u64 = 16 << 10;
/// Alignment in bytes of variables whose elements may fail to decode.
const APART_BYTES: u64 = 128 << 10;
/// CDF-1: the limit of a variable's offset, in bytes.
const MAX_OFFSET_1: u64 = i32::MAX as u64;
/// CDF-1 and CDF-2: the maximum size of a variable, or of its part of a record, in bytes.
const MAX_VARIABLE_BYTES: u64 = u32::MAX as u64 - 3;
/// The maximum size of a text array, with padding.
const MAX_PADDED_BYTES: usize = 8 << 20;
/// CDF-1 and CDF-2: the maximum length of a dimension.
const MAX_LENGTH: u64 = i32::MAX as u64;

/// The format version, as in the magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Cdf1 = 1,
    Cdf2 = 2,
    Cdf5 = 5,
}

/// Returns whether metadata alone prove that an array is a variable of a file.
fn metadata_prove(node: &ViewNode) -> bool {
    let (Some(item), Some(view)) = (proven_type(node), node.array_view()) else {
        return false;
    };
    if item == VariableType::Structure {
        return false;
    }
    let shape = view.shape();
    // Numbers may be twice as large in the file.
    let is_short = view.reader.size_bytes() <= MAX_VARIABLE_BYTES / 2;
    is_short && shape.iter().all(|length| (1..=MAX_LENGTH).contains(length))
}

/// Renders the variables of a group as CDF-1, or as CDF-2 if offsets exceed 32 bits.
///
/// # Errors
/// Returns why the format cannot express the group.
fn render(tree: &GroupTree) -> Result<VirtualFile, String> {
    render_version(tree, Version::Cdf2)
}

/// Renders the variables of a group as CDF-5, which fewer tools read.
///
/// # Errors
/// Returns why the format cannot express the group.
fn render_cdf5(tree: &GroupTree) -> Result<VirtualFile, String> {
    render_version(tree, Version::Cdf5)
}

/// A variable with its elements.
struct PlannedVariable {
    variable: Variable,
    elements: VariableElements,
    /// Size of the variable, or of its part of a record, without padding.
    size_bytes: u64,
    is_record: bool,
    /// Whether the file's type cannot hold all values of the array's type, so that a read may fail.
    is_inexact: bool,
}

enum VariableElements {
    Bytes(Vec<u8>),
    Array(Arc<ArrayReader>, ArrayExtent),
    /// The elements could not be read.
    Unread(StoreError),
}

fn render_version(tree: &GroupTree, version: Version) -> Result<VirtualFile, String> {
    let mut dataset = Dataset::of(tree)?;
    for variable in &mut dataset.root.variables {
        apply_unsigned(variable, version);
    }
    let mut planner = Planner::new(&dataset, version);
    if !tree.omitted_groups.is_empty() {
        let names = tree.omitted_groups.join(", ");
        planner.notes.push(format!(
            "a classic file has no groups: {names} have files of their own"
        ));
    }
    let mut planned = planner.plan_all(&dataset.root.variables);
    let mut notes = planner.notes;
    if planned.is_empty() {
        return Err(tree.reason_without_variables(notes));
    }
    let attributes = attributes(&dataset.root.attributes, version, "the group", &mut notes);
    // Unused dimensions, such as those of groups, are left out.
    let dimensions = planner.dimensions.all;
    let used = used_dimensions(&mut planned, &dimensions);
    let record = planner
        .record
        .filter(|_| planned.iter().any(|planned| planned.is_record))
        .and_then(|record| Some((record, dimensions.get(record)?.length)));
    let sizes = planned
        .iter()
        .map(|planned| match (planned.is_record, record) {
            (true, Some((_, records))) => planned.size_bytes.saturating_mul(records),
            _ => planned.size_bytes,
        });
    // Elements that may fail to decode come after a gap, whatever their size.
    let has_gap = tree.needs_gap()
        || planned.iter().any(|planned| planned.is_inexact)
        || layout::has_gap(sizes.fold(0, u64::saturating_add));
    let mut header = Header {
        version,
        dimensions: used,
        attributes,
        record,
    };
    if version == Version::Cdf2 {
        header.version = Version::Cdf1;
        if !has_small_offsets(&header, &planned, has_gap) {
            header.version = Version::Cdf2;
        }
    }
    let (mut sources, mut errors) = (Vec::new(), Vec::new());
    let segments = segments(&header, planned, has_gap, &mut sources, &mut errors);
    let layout = segments
        .and_then(FileLayout::new)
        .ok_or("no file can be so long")?;
    Ok(VirtualFile {
        layout,
        sources,
        notes,
        block_bytes: BLOCK_BYTES,
        readability: tree.readability(errors, has_gap),
    })
}

/// Returns whether CDF-1 can express the offsets of all variables.
fn has_small_offsets(header: &Header, planned: &[PlannedVariable], has_gap: bool) -> bool {
    let offsets = offsets(header, planned, has_gap);
    offsets.is_some_and(|offsets| offsets.iter().all(|offset| *offset <= MAX_OFFSET_1))
}

/// Applies `_Unsigned` to a variable whose numbers get a wider type in the file, and removes the attribute: for
/// the wider type it would have another meaning.
fn apply_unsigned(variable: &mut dataset::Variable, version: Version) {
    let VariableType::Number(own) = variable.item else {
        return;
    };
    let in_file = NcType::of(own, version).and_then(|kind| kind.number);
    let has_own_type = in_file
        .is_some_and(|number| (number.kind, number.size_bytes) == (own.kind, own.size_bytes));
    let text_of = |attribute: &Attribute| match &attribute.value {
        AttributeValue::Text(text) if attribute.name == names::UNSIGNED => Some(text.clone()),
        _ => None,
    };
    let Some(text) = variable.attributes.iter().find_map(text_of) else {
        return;
    };
    if has_own_type {
        return;
    }
    let is_other = |attribute: &Attribute| attribute.name != names::UNSIGNED;
    variable.attributes.retain(is_other);
    let kind = cf::unsigned(own.kind, Some(&text.into()));
    let meant = Number { kind, ..own };
    // The same bits, as attributes have them.
    let same_bits = |value: &mut Value| {
        if let Some(read) = own
            .write(*value)
            .and_then(|bits| Number::read(meant, &bits))
        {
            *value = read;
        }
    };
    variable.item = VariableType::Number(meant);
    variable.fill.iter_mut().for_each(same_bits);
    for attribute in &mut variable.attributes {
        if let AttributeValue::Numbers(number, values) = &mut attribute.value
            && *number == own
            && is_of_values(&attribute.name)
        {
            *number = meant;
            values.iter_mut().for_each(same_bits);
        }
    }
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
struct Planner {
    version: Version,
    dimensions: Dimensions,
    /// The unlimited dimension.
    record: Option<usize>,
    padding: Padding,
    notes: Vec<String>,
}

impl Planner {
    fn new(dataset: &Dataset, version: Version) -> Self {
        Self {
            version,
            dimensions: Dimensions::of(dataset.dimensions.clone()),
            record: record_dimension(dataset, version),
            padding: Padding::default(),
            notes: dataset.notes.clone(),
        }
    }

    /// Returns all variables that the format can express. Those whose elements may fail to decode come last.
    fn plan_all(&mut self, variables: &[dataset::Variable]) -> Vec<PlannedVariable> {
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
struct Dimensions {
    all: Vec<Dimension>,
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
fn used_dimensions(planned: &mut [PlannedVariable], all: &[Dimension]) -> Vec<(usize, Dimension)> {
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

/// Returns the number of zero bytes after a variable, or after its part of a record. Zero for the only record
/// variable ("Note on padding").
fn padding_bytes(planned: &PlannedVariable, is_only_record: bool) -> u64 {
    match planned.is_record && is_only_record {
        true => 0,
        false => planned.size_bytes.next_multiple_of(4) - planned.size_bytes,
    }
}

fn is_only_record(planned: &[PlannedVariable]) -> bool {
    planned.iter().filter(|planned| planned.is_record).count() == 1
}

/// Returns the offset of each variable: first those of fixed size, then the parts of the first record.
fn offsets(header: &Header, planned: &[PlannedVariable], has_gap: bool) -> Option<Vec<u64>> {
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let mut offsets = vec![0; planned.len()];
    let length = header.encode(&variables, &offsets).len() as u64;
    let mut at = layout::elements_start(length, has_gap, BLOCK_BYTES)?;
    let is_only = is_only_record(planned);
    for is_record in [false, true] {
        for (planned, offset) in planned.iter().zip(&mut offsets) {
            if planned.is_record == is_record {
                at = at.checked_next_multiple_of(match (is_record, planned.is_inexact) {
                    (true, _) => 1,
                    // A variable that may fail to decode shares no page with another variable.
                    (false, true) => APART_BYTES,
                    (false, false) => BLOCK_BYTES,
                })?;
                *offset = at;
                let padding = padding_bytes(planned, is_only);
                at = at.checked_add(planned.size_bytes)?.checked_add(padding)?;
            }
        }
    }
    Some(offsets)
}

fn segments(
    header: &Header,
    planned: Vec<PlannedVariable>,
    has_gap: bool,
    sources: &mut Vec<Arc<ArrayReader>>,
    errors: &mut Vec<StoreError>,
) -> Option<Vec<Segment>> {
    let offsets = offsets(header, &planned, has_gap)?;
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let bytes = header.encode(&variables, &offsets);
    let mut end = bytes.len() as u64;
    let mut segments = vec![Segment::Bytes(bytes)];
    let is_only = is_only_record(&planned);
    let mut slices = Vec::new();
    let mut records_begin = None;
    for (planned, offset) in planned.into_iter().zip(offsets) {
        let padding = padding_bytes(&planned, is_only);
        if planned.is_record {
            records_begin.get_or_insert(offset);
        } else {
            segments.push(Segment::Zeros(offset.checked_sub(end)?));
            end = offset
                .checked_add(planned.size_bytes)?
                .checked_add(padding)?;
        }
        match planned.elements {
            // There are no records.
            VariableElements::Bytes(_) | VariableElements::Unread(_) if planned.is_record => {
                continue;
            }
            VariableElements::Unread(error) => {
                errors.push(error);
                segments.push(Segment::Unread(errors.len() - 1, planned.size_bytes));
            }
            VariableElements::Bytes(bytes) => segments.push(Segment::Bytes(bytes)),
            VariableElements::Array(reader, extent) => {
                let source = sources.len();
                sources.push(reader);
                let extent = ArrayExtent { source, ..extent };
                if planned.is_record {
                    slices.push(RecordSlice {
                        extent,
                        size_bytes: planned.size_bytes,
                        padding_bytes: padding,
                    });
                    continue;
                }
                segments.push(Segment::Array(extent));
            }
        }
        segments.push(Segment::Zeros(padding));
    }
    if let (Some((_, records)), Some(begin)) = (header.record, records_begin) {
        segments.push(Segment::Zeros(begin.checked_sub(end)?));
        segments.push(Segment::Records(records, slices));
    }
    Some(segments)
}
