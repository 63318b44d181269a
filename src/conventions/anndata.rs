//! AnnData: what `encoding-type` says of groups and arrays (anndata, "On-disk format").

use serde_json::Value as Json;

use super::description::Field;
use crate::node::ViewNode;

/// The attribute that names the missing value of strings: the text `NaN` or `NA`.
pub(crate) const NA_VALUE: &str = "na-value";

/// Returns the encoding that a node declares.
fn encoding(node: &ViewNode) -> Option<&str> {
    let attributes = node.metadata().attributes().ok()?;
    attributes.get("encoding-type")?.as_str()
}

/// Returns whether a group is an AnnData object.
pub(crate) fn is_anndata(node: &ViewNode) -> bool {
    !node.is_array() && encoding(node) == Some("anndata")
}

/// Returns whether a node stands for "none".
pub(crate) fn is_none(node: &ViewNode) -> bool {
    encoding(node) == Some("null")
}

/// A column of a table that is a group of two arrays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnArrays {
    /// The name of the array with one element for each row.
    pub(crate) rows: &'static str,
    /// The name of the array with the categories, or with a mask.
    pub(crate) other: &'static str,
    /// The meaning of the arrays.
    pub(crate) kind: ColumnEncoding,
}

/// The encoding of a column that is a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ColumnEncoding {
    /// Codes, which are indices of categories; -1 is a row without a value.
    Categorical,
    /// Texts, and a mask of the rows without a value.
    NullableStrings,
    /// Numbers or booleans, and a mask of the rows without a value.
    NullableElements,
}

impl ColumnArrays {
    /// Returns the arrays of a group whose attributes declare a column; `None` for other nodes.
    pub(crate) fn of(node: &ViewNode) -> Option<Self> {
        let (rows, other, kind) = match encoding(node)? {
            _ if node.is_array() => return None,
            "categorical" => ("codes", "categories", ColumnEncoding::Categorical),
            "nullable-string-array" => ("values", "mask", ColumnEncoding::NullableStrings),
            "nullable-integer" | "nullable-boolean" => {
                ("values", "mask", ColumnEncoding::NullableElements)
            }
            _ => return None,
        };
        Some(Self { rows, other, kind })
    }
}

/// Returns what a column that is a group has beyond its values; `None` for other nodes.
pub(crate) fn column_fields(node: &ViewNode) -> Option<Vec<Field>> {
    let column = ColumnArrays::of(node)?;
    Some(match column.kind {
        ColumnEncoding::Categorical => vec![Field::Categories],
        ColumnEncoding::NullableStrings | ColumnEncoding::NullableElements => Vec::new(),
    })
}

/// Returns the column of a dataframe that is its index, and the name of the index, if it has one; `None` for other
/// groups.
pub(crate) fn dataframe_index(node: &ViewNode) -> Option<(&str, Option<&str>)> {
    if encoding(node) != Some("dataframe") {
        return None;
    }
    let index = node.metadata().attributes().ok()?.get("_index")?.as_str()?;
    // The column of an index without a name.
    Some((index, (index != "_index").then_some(index)))
}

/// Returns the names of the columns of a dataframe in their order, the index first; `None` for other groups.
pub(crate) fn dataframe_columns(node: &ViewNode) -> Option<Vec<String>> {
    if encoding(node) != Some("dataframe") {
        return None;
    }
    let attributes = node.metadata().attributes().ok()?;
    let order = attributes.get("column-order").and_then(Json::as_array);
    let index = attributes.get("_index");
    let names = index.into_iter().chain(order.into_iter().flatten());
    let names = names.filter_map(|name| name.as_str().map(str::to_owned));
    Some(names.collect())
}
