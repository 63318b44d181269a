//! A group as the data model of netCDF sees it: named dimensions, variables, attributes.
//!
//! Sources: the NetCDF User's Guide ("The NetCDF Data Model"), the CF conventions (1.11), and the
//! conventions of xarray for Zarr (`_ARRAY_DIMENSIONS`, `_FillValue`).

mod attributes;
mod dimensions;
mod grids;
mod variables;

use std::sync::Arc;

pub(super) use self::attributes::{MAX_NAME_BYTES, NOT_A_COORDINATE};
pub(super) use self::variables::certain_item;

use super::branch::GroupTree;
use super::number::{Conversion, Number, Value};
use crate::array::ArrayReader;

/// A group with its dimensions, and all dimensions of the file.
#[derive(Debug)]
pub(super) struct Dataset {
    /// All dimensions; everything else names them by their numbers.
    pub(super) dimensions: Vec<Dimension>,
    /// The group itself.
    pub(super) root: Group,
    /// What could not be taken over, and why.
    pub(super) notes: Vec<String>,
}

/// A name for a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) name: String,
    pub(super) length: u64,
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Those that are declared in this group.
    pub(super) dimensions: Vec<usize>,
    pub(super) variables: Vec<Variable>,
    pub(super) attributes: Vec<Attribute>,
    pub(super) groups: Vec<Group>,
}

/// One variable.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    /// Its dimensions, slowest first.
    pub(super) dimensions: Vec<usize>,
    pub(super) item: Item,
    pub(super) data: Data,
    pub(super) attributes: Vec<Attribute>,
    /// What stands for a missing value; also in the attributes, as `_FillValue`.
    pub(super) fill: Option<Value>,
}

/// What one element of a variable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// A number, as it is in the array.
    Number(Number),
    /// One byte of text: those of a text are along the last dimension.
    Char,
    /// Text of any length.
    Text,
}

/// Where the elements of a variable are.
#[derive(Debug)]
pub(super) enum Data {
    /// In an array. Its pieces have this shape, one extent for each dimension of the variable.
    Array(Arc<ArrayReader>, Vec<u64>),
    /// Here, in C order.
    Texts(Arc<Vec<String>>),
    /// Numbers that are computed, in C order.
    Numbers(Arc<Vec<Value>>),
}

/// A name and a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: Attr,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Attr {
    Text(String),
    Texts(Vec<String>),
    /// Numbers of one kind, little-endian or of the variable's own byte order.
    Numbers(Number, Vec<Value>),
}

/// Dimensions of one file: each takes some memory in its header.
pub(super) const MAX_DIMENSIONS: usize = 16_384;

impl Dataset {
    /// The data model of a group and all that is below it.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub(super) fn of(branch: &GroupTree) -> Result<Self, String> {
        let mut scopes = dimensions::Scopes::default();
        let mut notes = Vec::new();
        let root = variables::group(branch, String::new(), &mut scopes, &mut notes);
        let dimensions = scopes.into_dimensions();
        if dimensions.len() > MAX_DIMENSIONS {
            return Err(format!("more than {MAX_DIMENSIONS} dimensions"));
        }
        Ok(Self {
            dimensions,
            root,
            notes,
        })
    }
}

impl Variable {
    /// Elements along each dimension.
    pub(super) fn shape(&self, dimensions: &[Dimension]) -> Vec<u64> {
        let lengths = self.dimensions.iter().map(|number| {
            let dimension = dimensions.get(*number);
            dimension.map_or(0, |dimension| dimension.length)
        });
        lengths.collect()
    }

    /// How its numbers become these.
    pub(super) fn conversion(&self, to: Number) -> Option<Conversion> {
        match self.item {
            Item::Number(from) => Some(Conversion { from, to }),
            Item::Char | Item::Text => None,
        }
    }
}
