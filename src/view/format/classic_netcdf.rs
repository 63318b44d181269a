//! Classic NetCDF: CDF-1, CDF-2 and CDF-5 (NetCDF User's Guide, "File Format Specifications", "The
//! NetCDF Classic Format Specification").
//!
//! The formats have no groups. Before CDF-5 they have no unsigned and no 64-bit integers: these become the
//! smallest type that holds them exactly. A 64-bit element that a double cannot hold exactly is a read error.

mod header;
mod placement;
mod plan;

use self::header::{Header, NcType};
use self::placement::{has_small_offsets, segments};
use self::plan::{Planner, attributes, used_dimensions};
use super::Renderer;
use super::row::{FormatRow, ViewName};
use crate::conventions::cf::attributes::is_of_values;
use crate::conventions::cf::{self, names};
use crate::conventions::description::Field;
use crate::node::{Number, Value, ViewNode};
use crate::view::dataset::{self, Attribute, AttributeValue, Dataset, VariableType, proven_type};
use crate::view::file::layout::{self, FileLayout, VirtualFile};
use crate::view::group::tree::{GroupTree, TreeScope};

/// What the files express: attributes and coordinate arrays of CF, also those computed from spacings and the names of
/// channels.
const FIELDS: &[Field] = &[
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
];

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "cdf",
        ViewName::Suffix(".cdf.nc"),
        "classic NetCDF of the arrays of the group",
        "ncdump -h",
        Renderer::Group(TreeScope::Group, metadata_prove, render),
    )
    .expressing(FIELDS)
    .also_called(&["netcdf3"]),
    FormatRow::new(
        "cdf5",
        ViewName::Suffix(".cdf5.nc"),
        "CDF-5 of the arrays of the group",
        "ncdump -h",
        Renderer::Group(TreeScope::Group, metadata_prove, render_cdf5),
    )
    .expressing(FIELDS),
];

/// The length of the blocks in which netCDF-C (8 KiB) and CDO read, in bytes. A read(2) that fails after its
/// first page returns that page, and netCDF-C takes the missing rest of the block for the end of the file, which
/// has zeros: so each block fails as a whole, and belongs to one variable.
const BLOCK_BYTES: u64 = 16 << 10;
/// CDF-1 and CDF-2: the maximum size of a variable, or of its part of a record, in bytes.
const MAX_VARIABLE_BYTES: u64 = u32::MAX as u64 - 3;
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
