//! The arrays of one axis in a group that share a dimension, as the columns of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::branch::{GroupArray, GroupTree};
use super::categories::{CategoricalColumn, Categories};
use super::node::{Elements, ViewNode};
use crate::array::ArrayReader;
use crate::zarr::{Node, Scalar};

/// The most decoded text of all columns.
const MAX_TEXT_BYTES: usize = 32 << 20;
/// The most names in one note.
const MAX_NAMES: usize = 16;

/// A table: columns of the same length.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: u64,
    /// At least one.
    pub(super) columns: Vec<Column>,
    /// What is not in the table, and why.
    pub(super) notes: Vec<String>,
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    /// The name of the array; unique.
    pub(super) name: String,
    pub(super) node: Arc<ViewNode>,
    pub(super) data: ColumnData,
}

/// The values of a column.
#[derive(Debug)]
pub(super) enum ColumnData {
    /// Elements of constant size.
    Elements(Arc<ArrayReader>),
    /// Decoded text.
    Texts(Arc<Vec<String>>),
    /// Decoded text, each of which many rows may have, and rows may have none.
    Categories(Arc<Categories>),
}

/// What columns of one table have in common: the name of their dimension, if it has one, and its length.
type Dimension = (Option<String>, u64);

impl Table {
    /// Returns the table of a group: the arrays of the dimension that has the most of them, of these
    /// dimensions the longest one. `check` returns why a format has no column of such values.
    ///
    /// # Errors
    /// Why there is no column.
    pub(super) fn of(
        tree: &GroupTree,
        check: impl Fn(&ColumnData) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut tables: BTreeMap<Dimension, Vec<Column>> = BTreeMap::new();
        let (mut notes, mut text_bytes) = (Vec::new(), 0);
        for member in &tree.arrays {
            let Some(dimension) = dimension_of(&member.node) else {
                continue;
            };
            let column = column(member, &mut text_bytes);
            match column.and_then(|column| check(&column.data).map(|()| column)) {
                Ok(column) => tables.entry(dimension).or_default().push(column),
                Err(why) => notes.push(format!("{} is not in it: {why}", member.node.key())),
            }
        }
        for group in &tree.categorical {
            match categorical(group).and_then(|column| check(&column.data).map(|()| column)) {
                Ok(column) => {
                    let columns = tables.entry(group.dimension.clone()).or_default();
                    columns.push(column);
                }
                Err(why) => notes.push(format!("{} is not in it: {why}", group.node.key())),
            }
        }
        for (key, why) in &tree.left_out {
            notes.push(format!("{key} is not in it: {why}"));
        }
        // Of equal ones, `max_by_key` returns the last.
        let largest = tables
            .iter()
            .rev()
            .max_by_key(|((_, length), columns)| (columns.len(), *length));
        let Some(dimension) = largest.map(|(dimension, _)| dimension.clone()) else {
            let why = notes.into_iter().next();
            return Err(why.unwrap_or_else(|| "no array in it has one axis".into()));
        };
        let mut columns = tables.remove(&dimension).unwrap_or_default();
        notes.extend(others(&dimension, &tables));
        let order = ColumnOrder::of(tree, dimension.0.as_deref());
        columns.sort_by_cached_key(|column| (order.position(&column.name), column.name.clone()));
        notes.extend(order.groups(tree));
        Ok(Self {
            rows: dimension.1,
            columns,
            notes,
        })
    }

    /// The arrays of the columns, without those of decoded text.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Arc<ArrayReader>> {
        self.columns.iter().filter_map(|column| match &column.data {
            ColumnData::Elements(reader) => Some(reader),
            ColumnData::Texts(_) | ColumnData::Categories(_) => None,
        })
    }
}

/// Whether an array is certainly a column of a table, by its metadata alone.
pub(super) fn is_certain(node: &ViewNode) -> bool {
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

/// The dimension of an array of one axis.
fn dimension_of(node: &ViewNode) -> Option<Dimension> {
    let Node::Array(array) = node.metadata() else {
        return None;
    };
    let [length] = array.shape[..] else {
        return None;
    };
    Some((array.dimension_names.first().cloned().flatten(), length))
}

fn column(member: &GroupArray, text_bytes: &mut usize) -> Result<Column, String> {
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
        (None, Elements::Fixed(reader)) => ColumnData::Elements(Arc::clone(reader)),
        (None, Elements::Unreadable(why)) => return Err(why.clone()),
        (None, Elements::Variable(..) | Elements::None) => {
            return Err("elements of variable length that are no text".into());
        }
    };
    Ok(Column {
        name: node.name().to_owned(),
        node: Arc::clone(node),
        data,
    })
}

fn categorical(group: &CategoricalColumn) -> Result<Column, String> {
    if group.node.name().contains('\0') {
        return Err("a name with NUL".into());
    }
    Ok(Column {
        name: group.node.name().to_owned(),
        node: Arc::clone(&group.node),
        data: ColumnData::Categories(Arc::clone(group.values.as_ref().map_err(Clone::clone)?)),
    })
}

/// The note that names the columns of other tables.
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
        "its rows are along {chosen}; arrays of other dimensions are not in it: {names}"
    ))
}

/// Names in one text; `None` if there are none.
fn listed(mut names: impl Iterator<Item = String>) -> Option<String> {
    let first: Vec<String> = names.by_ref().take(MAX_NAMES).collect();
    let text = first.join(", ");
    match (text.is_empty(), names.count()) {
        (true, _) => None,
        (_, 0) => Some(text),
        (_, more) => Some(format!("{text} and {more} more")),
    }
}

/// The order of the columns: that of a dataframe of AnnData (`_index`, `column-order`), else first the
/// array with the name of the dimension. Others follow in the order of their names.
struct ColumnOrder {
    first: Vec<String>,
    is_dataframe: bool,
}

impl ColumnOrder {
    fn of(tree: &GroupTree, dimension: Option<&str>) -> Self {
        let attributes = tree.node.metadata().attributes().ok();
        let attribute = |name: &str| attributes.and_then(|members| members.get(name));
        if attribute("encoding-type").and_then(|kind| kind.as_str()) != Some("dataframe") {
            return Self {
                first: dimension.map(str::to_owned).into_iter().collect(),
                is_dataframe: false,
            };
        }
        let order = attribute("column-order").and_then(|order| order.as_array());
        let names = attribute("_index")
            .into_iter()
            .chain(order.into_iter().flatten());
        Self {
            first: names
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .collect(),
            is_dataframe: true,
        }
    }

    fn position(&self, name: &str) -> usize {
        let found = self.first.iter().position(|first| first == name);
        found.unwrap_or(self.first.len())
    }

    /// The note that names the columns of a dataframe that are groups.
    fn groups(&self, tree: &GroupTree) -> Option<String> {
        let groups = tree.groups_left_out.iter();
        let columns = groups.filter(|group| self.is_dataframe && self.first.contains(group));
        let names = listed(columns.cloned())?;
        Some(format!(
            "columns of the dataframe that are groups (with missing values, for example) are not in it: {names}"
        ))
    }
}
