//! A group in the data model of netCDF: named dimensions, variables, attributes.
//!
//! Sources: the NetCDF User's Guide ("The NetCDF Data Model"), the CF conventions (1.11), and the
//! conventions of xarray for Zarr (`_ARRAY_DIMENSIONS`, `_FillValue`).

mod attributes;
mod axis_coordinates;
mod dimensions;
mod grids;
mod unlimited;
mod variables;

use std::sync::Arc;

pub(super) use self::attributes::{MAX_NAME_BYTES, NOT_A_COORDINATE, is_name};
pub(super) use self::variables::proven_type;

use super::format::packed::StoredChunks;
use super::group::tree::GroupTree;
use crate::array::ArrayReader;
use crate::node::{Conversion, Number, Value};
use crate::store::StoreError;

/// The data model of a file: a group, and all dimensions of the file.
#[derive(Debug)]
pub(super) struct Dataset {
    /// All dimensions; groups and variables refer to them by index.
    pub(super) dimensions: Vec<Dimension>,
    /// The group itself.
    pub(super) root: Group,
    /// Dimensions whose elements have names, each with the variable of the names.
    pub(super) labels: Vec<(usize, String)>,
    /// What the file leaves out, and why.
    pub(super) notes: Vec<String>,
}

/// A named length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) name: String,
    pub(super) length: u64,
    /// Whether the dimension is unlimited in formats that support appending.
    pub(super) is_unlimited: bool,
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// The indices of the dimensions that this group declares.
    pub(super) dimensions: Vec<usize>,
    pub(super) variables: Vec<Variable>,
    pub(super) attributes: Vec<Attribute>,
    pub(super) groups: Vec<Group>,
}

/// One variable.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    /// The indices of the dimensions, slowest first.
    pub(super) dimensions: Vec<usize>,
    pub(super) item: VariableType,
    pub(super) data: Data,
    pub(super) attributes: Vec<Attribute>,
    /// The value of missing data; also the attribute `_FillValue`.
    pub(super) fill: Option<Value>,
    /// As [`GroupArray::stored`](super::group::tree::GroupArray).
    pub(super) stored: Option<Result<StoredChunks, String>>,
}

/// The type of the elements of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableType {
    /// A number, as in the array.
    Number(Number),
    /// One byte of text; the last dimension counts the bytes.
    Char,
    /// Text of variable length.
    Text,
    /// Named members, as in the array.
    Structure,
}

/// The elements of a variable.
#[derive(Debug)]
pub(super) enum Data {
    /// The elements of an array, whose chunks have this shape along the dimensions of the variable.
    Array(Arc<ArrayReader>, Vec<u64>),
    /// Encoded elements, in C order.
    Texts(Arc<Vec<String>>),
    /// The elements of an array of structures, in C order, to be encoded for the file.
    Records(Arc<Vec<u8>>, Arc<ArrayReader>),
    /// Computed numbers, in C order.
    Numbers(Arc<Vec<Value>>),
    /// Text, or structures of an array, that could not be read for this reason.
    Unread(StoreError, Option<Arc<ArrayReader>>),
}

/// An attribute: its name and value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: AttributeValue,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Texts(Vec<String>),
    /// Numbers of one type, little-endian or in the variable's byte order.
    Numbers(Number, Vec<Value>),
}

/// The maximum number of dimensions of a file; each takes memory in its header.
pub(super) const MAX_DIMENSIONS: usize = 16_384;

impl Dataset {
    /// Returns the data model of a group tree.
    ///
    /// # Errors
    /// The group tree has too many dimensions.
    pub(super) fn of(tree: &GroupTree) -> Result<Self, String> {
        let mut scopes = dimensions::Scopes::default();
        let mut notes = Vec::new();
        let mut root = variables::group(tree, String::new(), &mut scopes, &mut notes);
        axis_coordinates::add(&mut root, &mut scopes, &mut notes);
        let labels = std::mem::take(&mut scopes.labels);
        let mut dimensions = scopes.into_dimensions();
        unlimited::mark(&mut dimensions, &root);
        if dimensions.len() > MAX_DIMENSIONS {
            return Err(format!("more than {MAX_DIMENSIONS} dimensions"));
        }
        Ok(Self {
            dimensions,
            root,
            labels,
            notes,
        })
    }

    /// Names the variables with the names of elements in the attribute `coordinates` of the variables that have their
    /// dimensions (CF 1.13, 6.1 "Labels"). Not for classic files, whose text has an axis of its own: CDO takes text with
    /// two axes for coordinates of a grid, and opens no such file.
    pub(super) fn name_labels(&mut self) {
        for (dimension, labels) in &self.labels {
            axis_coordinates::name_labels(&mut self.root, *dimension, labels);
        }
    }
}

impl Variable {
    /// Returns the length of each dimension.
    pub(super) fn shape(&self, dimensions: &[Dimension]) -> Vec<u64> {
        let lengths = self.dimensions.iter().map(|number| {
            let dimension = dimensions.get(*number);
            dimension.map_or(0, |dimension| dimension.length)
        });
        lengths.collect()
    }

    /// Returns the conversion of the variable's numbers to `to`.
    pub(super) fn conversion(&self, to: Number) -> Option<Conversion> {
        match self.item {
            VariableType::Number(from) => Some(Conversion::new(from, to)),
            VariableType::Char | VariableType::Text | VariableType::Structure => None,
        }
    }
}
