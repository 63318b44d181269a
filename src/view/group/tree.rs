//! A group and the nodes below it: the input of the formats of groups.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::column::GroupColumn;
use crate::conventions::column::NullableElements;
use crate::conventions::description::DeclaredAxes;
use crate::conventions::georef::grid::Grid;
use crate::conventions::missing::ZeroFill;
use crate::node::ViewNode;
use crate::store::{Key, StoreError};
use crate::view::file::layout::{READ_TO_OPEN_BYTES, Readability};
use crate::view::format::packed::StoredChunks;

/// The maximum number of chunks that opening a file may decode.
const MAX_CHUNKS_WITHOUT_GAP: u64 = 1024;

/// The nodes of a hierarchy that a file of a group contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeScope {
    /// The arrays in the group.
    Group,
    /// The arrays in the group, and the groups in it that are columns of a table.
    Table,
    /// All nodes below the group.
    Subtree,
    /// All nodes below the group, unchanged: with more text, with structures that contain text, and without
    /// georeferencing.
    RawSubtree,
}

impl TreeScope {
    /// Returns whether the file has no groups below the group.
    pub(in crate::view) fn is_one_group(self) -> bool {
        matches!(self, Self::Group | Self::Table)
    }
}

/// A group, its arrays and its groups, each in the order of their names.
#[derive(Debug, Clone)]
pub struct GroupTree {
    /// The group itself.
    pub node: Arc<ViewNode>,
    /// The arrays of the group.
    pub arrays: Vec<GroupArray>,
    /// The groups in the group. Directories without a metadata document are left out unless they contain an
    /// array or a group.
    pub groups: Vec<GroupTree>,
    /// The groups in the group that are columns ([`TreeScope::Table`]).
    pub(in crate::view) group_columns: Vec<GroupColumn>,
    /// Names of the groups that the [`TreeScope`] excludes.
    pub omitted_groups: Vec<String>,
    /// Nodes below the group that have no known type or no usable name, and the reasons.
    pub omitted: Vec<(Key, String)>,
    /// Whether the elements of a small file also begin behind a gap.
    pub(in crate::view) has_gap: bool,
}

impl GroupTree {
    /// Returns a tree that has only these arrays, in the order of their names.
    pub(in crate::view) fn of_arrays(node: &Arc<ViewNode>, arrays: Vec<GroupArray>) -> Self {
        Self {
            node: Arc::clone(node),
            arrays,
            groups: Vec::new(),
            group_columns: Vec::new(),
            omitted_groups: Vec::new(),
            omitted: Vec::new(),
            has_gap: false,
        }
    }

    /// Returns whether the elements of the file begin behind a gap, whatever its size: elements at its beginning
    /// cannot be read, or opening the file would decode very many chunks.
    pub(in crate::view) fn needs_gap(&self) -> bool {
        let arrays = self.all_arrays();
        let decoded = arrays
            .iter()
            .filter(|array| !matches!(array.stored, Some(Ok(_))));
        let chunks = decoded.filter_map(|array| array.node.reader());
        let chunks = chunks.map(|reader| match reader.chunks().inner_counts() {
            Some(counts) => counts
                .iter()
                .fold(1, |n: u64, axis| n.saturating_mul(*axis)),
            None => reader.chunks().grid().chunk_count(),
        });
        self.has_gap
            || arrays.iter().any(|array| array.unread.is_some())
            || chunks.fold(0, u64::saturating_add) > MAX_CHUNKS_WITHOUT_GAP
    }

    /// Returns the readability of a file of this tree, of which elements could not be read for these reasons.
    pub(in crate::view) fn readability(
        &self,
        errors: Vec<StoreError>,
        has_gap: bool,
    ) -> Readability {
        let has_failed_input = |array: &&GroupArray| array.unread_place.is_some();
        Readability {
            errors,
            has_failed_input: self.all_arrays().iter().any(has_failed_input),
            read_to_open_bytes: if has_gap { 0 } else { READ_TO_OPEN_BYTES },
        }
    }

    /// Returns why the file has no variables, and thus does not exist; `notes` say which arrays it leaves out.
    pub(in crate::view) fn reason_without_variables(&self, notes: Vec<String>) -> String {
        let names = &self.omitted_groups;
        if !self.all_arrays().is_empty() || !self.omitted.is_empty() {
            let why = notes.into_iter().next();
            return why.unwrap_or_else(|| "no array in it has a variable".into());
        }
        match names.is_empty() {
            true => "no array is in it".into(),
            false => format!(
                "no array is in the group itself: {} have files of their own",
                names.join(", ")
            ),
        }
    }

    /// Returns all arrays, including those of the groups below, for changes.
    pub(in crate::view) fn all_arrays_mut(&mut self) -> Vec<&mut GroupArray> {
        let below = self.groups.iter_mut().flat_map(Self::all_arrays_mut);
        self.arrays.iter_mut().chain(below).collect()
    }

    /// Returns the dimensions that have no array of their name in the groups that their arrays are in. Dimensions
    /// of one name and several lengths, or of the name of a group, are left out.
    pub(in crate::view) fn dimensions_without_coordinates(&self) -> Vec<(String, u64)> {
        let mut found = BTreeMap::new();
        self.collect_without_coordinates(&mut Vec::new(), &mut found);
        let is_group = |name: &str| {
            let names = self.groups.iter().map(|group| group.node.name());
            let others = self.omitted_groups.iter().map(String::as_str);
            names.chain(others).any(|group| group == name)
        };
        let only = |(name, length): (&str, Option<u64>)| Some((name.to_owned(), length?));
        let found = found.into_iter().filter(|(name, _)| !is_group(name));
        found.filter_map(only).collect()
    }

    /// Adds the dimensions without coordinates of this group and the groups below it to `found`, which gets no
    /// length for a name with several. `names` are the names of the arrays in the groups above.
    fn collect_without_coordinates<'a>(
        &'a self,
        names: &mut Vec<HashSet<&'a str>>,
        found: &mut BTreeMap<&'a str, Option<u64>>,
    ) {
        names.push(self.arrays.iter().map(|array| array.node.name()).collect());
        let metadata = self.arrays.iter().map(|array| array.node.metadata());
        for array in metadata.filter_map(|metadata| metadata.as_array()) {
            let dimensions = array.dimension_names.iter().zip(&array.shape);
            for (name, length) in
                dimensions.filter_map(|(name, length)| Some((name.as_deref()?, length)))
            {
                if !names.iter().any(|names| names.contains(name)) {
                    let known = found.entry(name).or_insert(Some(*length));
                    *known = known.filter(|known| known == length);
                }
            }
        }
        for group in &self.groups {
            group.collect_without_coordinates(names, found);
        }
        names.pop();
    }

    /// Returns all arrays, including those of the groups below.
    pub(in crate::view) fn all_arrays(&self) -> Vec<&GroupArray> {
        let below = self.groups.iter().flat_map(Self::all_arrays);
        self.arrays.iter().chain(below).collect()
    }
}

/// An array of a group.
#[derive(Debug, Clone)]
pub struct GroupArray {
    /// The array.
    pub node: Arc<ViewNode>,
    /// Its axes, as attributes declare them in files with coordinates; else with the names of dimensions alone.
    pub(in crate::view) axes: DeclaredAxes,
    /// The decoded elements, if they are text that a read cannot decode by itself; or why they are not
    /// decoded.
    pub texts: Option<DecodedTexts>,
    /// The elements as bytes, if they are structures that the file has in another form; or why they are not
    /// read.
    pub records: Option<Result<Arc<Vec<u8>>, String>>,
    /// The items of each element, if the elements are byte strings or lists ([`TreeScope::RawSubtree`]); or why
    /// they are not decoded.
    pub(in crate::view) sequences: Option<Result<Arc<Vec<Vec<u8>>>, String>>,
    /// The elements, if some rows have no value; or why this is not known ([`TreeScope::Table`]).
    pub(in crate::view) nulls: Result<Option<Arc<NullableElements>>, String>,
    /// What the `fill_value` 0 of the array means.
    pub(in crate::view) zero_fill: ZeroFill,
    /// The grid of the array, if other conventions than CF georeference it.
    pub(in crate::view) grid: Option<Arc<Grid>>,
    /// The stored chunks, for a file that has them, or why the file has decoded elements.
    pub(in crate::view) stored: Option<Result<StoredChunks, String>>,
    /// Why `texts`, `records` or `sequences`, which the file needs, could not be read.
    pub(in crate::view) unread: Option<StoreError>,
    /// Why the coordinates of the grid, or what says where the axes are, could not be read.
    pub(in crate::view) unread_place: Option<StoreError>,
}

/// Decoded text in C order, or why the text is not decoded.
pub type DecodedTexts = Result<Arc<Vec<String>>, String>;
