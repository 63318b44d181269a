//! Selects unlimited dimensions, along which programs append to files and concatenate them.
//!
//! Zarr has no unlimited dimensions: any array can grow. As in most files of climate models, the unlimited
//! dimension is the one with the name `time`.

use super::{Dimension, Group, Variable};

/// The name of an unlimited dimension.
const NAME: &str = "time";
/// The maximum number of elements in a row along the dimension. A row then fits in a chunk of HDF5, whatever
/// its type is.
const MAX_ROW_ELEMENTS: u64 = u32::MAX as u64 / 16;

/// Marks the unlimited dimensions of a group and of the groups below it. At least one variable has such a
/// dimension, and it is the first dimension of each of them.
pub(super) fn mark(dimensions: &mut [Dimension], root: &Group) {
    let mut uses = vec![DimensionUse::None; dimensions.len()];
    look(root, dimensions, &mut uses);
    for (dimension, found) in dimensions.iter_mut().zip(uses) {
        dimension.is_unlimited = dimension.name == NAME && found == DimensionUse::First;
    }
}

/// How variables use a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DimensionUse {
    None,
    First,
    Otherwise,
}

fn look(group: &Group, dimensions: &[Dimension], uses: &mut [DimensionUse]) {
    for variable in &group.variables {
        let is_short = has_short_rows(variable, dimensions);
        for (axis, dimension) in variable.dimensions.iter().enumerate() {
            if let Some(found) = uses.get_mut(*dimension) {
                *found = match *found {
                    DimensionUse::None | DimensionUse::First if axis == 0 && is_short => {
                        DimensionUse::First
                    }
                    _ => DimensionUse::Otherwise,
                };
            }
        }
    }
    for group in &group.groups {
        look(group, dimensions, uses);
    }
}

fn has_short_rows(variable: &Variable, dimensions: &[Dimension]) -> bool {
    let shape = variable.shape(dimensions);
    let row = shape.iter().skip(1);
    let elements = row.fold(1_u64, |n, length| n.saturating_mul(*length));
    elements <= MAX_ROW_ELEMENTS
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::view::dataset::{Data, VariableType};

    fn is_unlimited(lengths: &[(&str, u64)], variables: &[&[usize]]) -> Vec<bool> {
        let dimension = |(name, length): &(&str, u64)| Dimension {
            name: (*name).to_owned(),
            length: *length,
            is_unlimited: false,
        };
        let variable = |dimensions: &&[usize]| Variable {
            name: "a".into(),
            dimensions: dimensions.to_vec(),
            item: VariableType::Text,
            data: Data::Texts(Arc::default()),
            attributes: Vec::new(),
            fill: None,
            stored: None,
        };
        let group = |variables: &[&[usize]], groups| Group {
            name: String::new(),
            dimensions: Vec::new(),
            variables: variables.iter().map(variable).collect(),
            attributes: Vec::new(),
            groups,
        };
        let (first, rest) = variables.split_at(variables.len() / 2);
        let root = group(first, vec![group(rest, Vec::new())]);
        let mut dimensions: Vec<Dimension> = lengths.iter().map(dimension).collect();
        mark(&mut dimensions, &root);
        let marks = dimensions.iter().map(|dimension| dimension.is_unlimited);
        marks.collect()
    }

    #[test]
    fn time_is_unlimited_where_it_is_the_first_dimension_of_all_variables() {
        let lengths = [("time", 3), ("y", 2), ("time", 0), ("time", 5)];
        let unlimited = [true, false, true, false];
        assert_eq!(
            is_unlimited(&lengths, &[&[0, 1], &[0], &[2], &[1]]),
            unlimited
        );
        let not = [false; 4];
        assert_eq!(is_unlimited(&lengths, &[&[0], &[1, 0]]), not);
        assert_eq!(is_unlimited(&lengths, &[&[1]]), not);
        let long = [("time", 3), ("y", 1 << 29)];
        assert_eq!(is_unlimited(&long, &[&[0, 1], &[0]]), [false; 2]);
    }
}
