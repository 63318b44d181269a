//! The one-dimensional arrays of a group that share a dimension, as the columns of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::column::{GroupColumn, GroupValues};
use super::tree::{GroupArray, GroupTree};
use crate::array::ArrayReader;
use crate::conventions::anndata::dataframe_columns;
use crate::conventions::column::{Categories, NullableElements};
use crate::conventions::missing::values_in_tables;
use crate::node::{NodeElements, Value, ViewNode};
use crate::zarr::{Node, Scalar};

/// The maximum size of the decoded text of all columns, in bytes.
const MAX_TEXT_BYTES: usize = 32 << 20;
/// The maximum number of names in a note.
const MAX_NAMES: usize = 16;

/// A table: columns of the same length.
#[derive(Debug)]
pub(in crate::view) struct Table {
    pub(in crate::view) rows: u64,
    /// The columns; at least one.
    pub(in crate::view) columns: Vec<Column>,
    /// What the table leaves out, and why.
    pub(in crate::view) notes: Vec<String>,
}

/// One column.
#[derive(Debug)]
pub(in crate::view) struct Column {
    /// The name of the array; unique.
    pub(in crate::view) name: String,
    pub(in crate::view) node: Arc<ViewNode>,
    pub(in crate::view) data: ColumnData,
    /// The numbers that are rows without a value.
    pub(in crate::view) missing: Vec<Value>,
    /// The elements, if some rows have no value; or why this is not known.
    pub(in crate::view) nulls: Result<Option<Arc<NullableElements>>, String>,
}

/// The values of a column.
#[derive(Debug)]
pub(in crate::view) enum ColumnData {
    /// Elements of constant size.
    Elements(Arc<ArrayReader>),
    /// Decoded text.
    Texts(Arc<Vec<String>>),
    /// Decoded text with repeated values; a row may have no value.
    Categories(Arc<Categories>),
    /// Decoded numbers or booleans of which some may be missing.
    Nullable(Arc<NullableElements>),
}

/// The common dimension of the columns of a table: its name, if any, and its length.
pub(in crate::view) type Dimension = (Option<String>, u64);

impl Table {
    /// Returns the table of a group: the arrays of the dimension of the array `along`; without one, of the
    /// dimension with the most arrays, and of these dimensions the longest. `check` returns why a format does
    /// not support a column of such values.
    ///
    /// # Errors
    /// Returns why the table has no column.
    pub(in crate::view) fn of(
        tree: &GroupTree,
        along: Option<&ViewNode>,
        check: impl Fn(&ColumnData) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut tables: BTreeMap<Dimension, Vec<Column>> = BTreeMap::new();
        let (mut notes, mut text_bytes) = (Vec::new(), 0);
        for member in &tree.arrays {
            let Some(dimension) = dimension_of(&member.node) else {
                continue;
            };
            let column = column(member, &mut text_bytes, &mut notes);
            match column.and_then(|column| check(&column.data).map(|()| column)) {
                Ok(column) => tables.entry(dimension).or_default().push(column),
                Err(why) => notes.push(format!("{} is not in it: {why}", member.node.key())),
            }
        }
        for group in &tree.group_columns {
            match group_column(group).and_then(|column| check(&column.data).map(|()| column)) {
                Ok(column) => {
                    let columns = tables.entry(group.dimension.clone()).or_default();
                    columns.push(column);
                }
                Err(why) => notes.push(format!("{} is not in it: {why}", group.node.key())),
            }
        }
        for (key, why) in &tree.omitted {
            notes.push(format!("{key} is not in it: {why}"));
        }
        // `max_by_key` returns the last one of equal maxima.
        let largest = tables
            .iter()
            .rev()
            .max_by_key(|((_, length), columns)| (columns.len(), *length));
        let dimension = match along {
            Some(array) => dimension_of(array).filter(|dimension| tables.contains_key(dimension)),
            None => largest.map(|(dimension, _)| dimension.clone()),
        };
        let Some(dimension) = dimension else {
            let why = notes.into_iter().next();
            return Err(why.unwrap_or_else(|| "no array in it has one axis".into()));
        };
        let mut columns = tables.remove(&dimension).unwrap_or_default();
        if along.is_none() {
            notes.extend(others(&dimension, &tables));
        }
        let order = ColumnOrder::of(tree, dimension.0.as_deref());
        columns.sort_by_cached_key(|column| (order.position(&column.name), column.name.clone()));
        notes.extend(order.groups(tree));
        Ok(Self {
            rows: dimension.1,
            columns,
            notes,
        })
    }

    /// Returns the arrays of the columns, except for columns of decoded text.
    pub(in crate::view) fn readers(&self) -> impl Iterator<Item = &Arc<ArrayReader>> {
        self.columns.iter().filter_map(|column| match &column.data {
            ColumnData::Elements(reader) => Some(reader),
            ColumnData::Texts(_) | ColumnData::Categories(_) | ColumnData::Nullable(_) => None,
        })
    }
}

/// Returns whether metadata alone prove that an array is a column of a table.
pub(in crate::view) fn metadata_prove(node: &ViewNode) -> bool {
    let Some(view) = node.array_view() else {
        return false;
    };
    let scalar = &view.data_type().scalar;
    let is_number = matches!(
        scalar,
        Scalar::Bool | Scalar::Int(_) | Scalar::UInt(_) | Scalar::Float(_)
    );
    is_number && dimension_of(node).is_some() && !node.name().contains('\0')
}

/// Returns the dimension of a one-dimensional array.
pub(in crate::view) fn dimension_of(node: &ViewNode) -> Option<Dimension> {
    let Node::Array(array) = node.metadata() else {
        return None;
    };
    let [length] = array.shape[..] else {
        return None;
    };
    Some((array.dimension_names.first().cloned().flatten(), length))
}

fn column(
    member: &GroupArray,
    text_bytes: &mut usize,
    notes: &mut Vec<String>,
) -> Result<Column, String> {
    let node = &member.node;
    if node.name().contains('\0') {
        return Err("a name with NUL".into());
    }
    let data = match (&member.texts, &node.elements) {
        (Some(texts), _) => {
            let texts = texts.as_ref().map_err(Clone::clone)?;
            let bytes: usize = texts
                .iter()
                .map(|text| text.len() + size_of::<String>())
                .sum();
            *text_bytes = (text_bytes.checked_add(bytes))
                .filter(|total| *total <= MAX_TEXT_BYTES)
                .ok_or_else(|| format!("more than {MAX_TEXT_BYTES} bytes of text in one file"))?;
            if texts.iter().any(|text| text.contains('\0')) {
                return Err("text with NUL in it".into());
            }
            ColumnData::Texts(Arc::clone(texts))
        }
        (None, NodeElements::Fixed(reader)) => ColumnData::Elements(Arc::clone(reader)),
        (None, NodeElements::Unreadable(why)) => return Err(why.clone()),
        (None, NodeElements::Variable(..) | NodeElements::None) => {
            return Err("elements of variable length that are no text".into());
        }
    };
    let mut note = |note: String| notes.push(format!("{}: {note}", node.key()));
    let array = node.metadata().as_array();
    let missing = array.map(|array| values_in_tables(array, member.zero_fill, &mut note));
    let missing = missing.unwrap_or_default();
    Ok(Column {
        name: node.name().to_owned(),
        node: Arc::clone(node),
        data,
        missing,
        nulls: member.nulls.clone(),
    })
}

fn group_column(group: &GroupColumn) -> Result<Column, String> {
    if group.node.name().contains('\0') {
        return Err("a name with NUL".into());
    }
    let data = match group.values.clone()? {
        GroupValues::Texts(values) => ColumnData::Categories(values),
        GroupValues::Elements(values) => ColumnData::Nullable(values),
    };
    Ok(Column {
        name: group.node.name().to_owned(),
        node: Arc::clone(&group.node),
        data,
        missing: Vec::new(),
        nulls: Ok(None),
    })
}

/// Returns the note that names the columns of other tables.
fn others(chosen: &Dimension, tables: &BTreeMap<Dimension, Vec<Column>>) -> Option<String> {
    let described = |(name, length): &Dimension| match name {
        Some(name) => format!("{name} ({length})"),
        None => format!("a dimension of {length} without a name"),
    };
    let names = tables.iter().flat_map(|(dimension, columns)| {
        let of = described(dimension);
        (columns.iter()).map(move |column| format!("{} of {of}", column.name))
    });
    let names = listed(names)?;
    let chosen = described(chosen);
    Some(format!(
        "its rows are along {chosen}; arrays of other dimensions have tables of their own, with the names of \
         these arrays: {names}"
    ))
}

/// Returns a list of names as one text; `None` without a name.
fn listed(mut names: impl Iterator<Item = String>) -> Option<String> {
    let first: Vec<String> = names.by_ref().take(MAX_NAMES).collect();
    let text = first.join(", ");
    match (text.is_empty(), names.count()) {
        (true, _) => None,
        (_, 0) => Some(text),
        (_, more) => Some(format!("{text} and {more} more")),
    }
}

/// The order of the columns. A dataframe of AnnData declares it; otherwise the array with the name of the dimension comes first. Other columns follow in the order of their names.
struct ColumnOrder {
    first: Vec<String>,
    is_dataframe: bool,
}

impl ColumnOrder {
    fn of(tree: &GroupTree, dimension: Option<&str>) -> Self {
        match dataframe_columns(&tree.node) {
            Some(first) => Self {
                first,
                is_dataframe: true,
            },
            None => Self {
                first: dimension.map(str::to_owned).into_iter().collect(),
                is_dataframe: false,
            },
        }
    }

    fn position(&self, name: &str) -> usize {
        let found = self.first.iter().position(|first| first == name);
        found.unwrap_or(self.first.len())
    }

    /// Returns the note that names the columns of a dataframe that are groups.
    fn groups(&self, tree: &GroupTree) -> Option<String> {
        let groups = tree.omitted_groups.iter();
        let columns = groups.filter(|group| self.is_dataframe && self.first.contains(group));
        let names = listed(columns.cloned())?;
        Some(format!(
            "columns of the dataframe that are groups (with missing values, for example) are not in it: {names}"
        ))
    }
}
