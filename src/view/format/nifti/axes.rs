//! The axes of a NIfTI file: x, y, z, time, then others. An axis that the array lacks has length 1.

use std::ops::Range;

use crate::conventions::description::{Axis, AxisKind};
use crate::conventions::nifti_zarr::is_axis_of_header;
use crate::view::file::layout::{ArrayExtent, MovedAxis, Segment};

/// The axes of the file, the fastest first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Axes {
    pub(super) lengths: Vec<u64>,
    /// For each axis of the file, the axis of the array.
    pub(super) sources: Vec<Option<usize>>,
    /// Numbers of blocks along the axes that stay first, that move inwards, and past which these move.
    moved: Option<[u64; 3]>,
}

/// The maximum number of axes of a file.
const MAX_AXES: usize = 7;

impl Axes {
    /// Returns whether the axes of the file are those of a header beside the array, in its order.
    pub(super) fn are_of_header(&self, axes: &[Axis]) -> bool {
        let mut sources = self.sources.iter().enumerate();
        sources.all(|(place, source)| {
            let axis = source.and_then(|source| axes.get(source));
            axis.is_none_or(|axis| is_axis_of_header(place, axis))
        })
    }

    /// Assigns the axes by their roles: the last axes, at most three, are the spatial axes of the image; of the
    /// others, time is the fastest. An axis z before time or channels is a spatial axis, if it can be moved.
    /// If the file cannot have that many axes, or the last axis is not spatial, the order of all axes is reversed.
    pub(super) fn of(shape: &[u64], axes: &[Axis]) -> Self {
        let is_spatial = |axis: &Axis| matches!(axis.kind, AxisKind::Space | AxisKind::Unknown);
        let spatial = axes
            .iter()
            .rev()
            .take(3)
            .take_while(|axis| is_spatial(axis));
        let leading = shape.len() - spatial.count().min(shape.len());
        let roles: Vec<AxisKind> = axes.iter().take(leading).map(|axis| axis.kind).collect();
        // Without a time axis, the last axis before the spatial axes is time if it has no other role.
        let time = roles.iter().position(|role| *role == AxisKind::Time);
        let time = time.or_else(|| match roles.last() {
            Some(AxisKind::Unknown | AxisKind::Space) => Some(leading - 1),
            _ => None,
        });
        // The depth is not next to the other spatial axes.
        let is_depth = |axis: &usize| {
            let name = axes.get(*axis).and_then(|axis| axis.name.as_deref());
            leading + 2 == shape.len() && name.is_some_and(|name| name.eq_ignore_ascii_case("z"))
        };
        let depth = (0..leading).find(is_depth).filter(|depth| {
            Some(*depth) != time && rotation(&slowest_first(leading, time, Some(*depth))).is_some()
        });
        let order = slowest_first(leading, time, depth);
        let others = order.iter().rev().copied();
        let others = others.filter(|axis| Some(*axis) != time && Some(*axis) != depth);
        let mut sources: Vec<Option<usize>> = (leading..shape.len()).rev().map(Some).collect();
        if leading > 0 {
            sources.resize(2.max(sources.len()), None);
            if depth.is_some() {
                sources.push(depth);
            }
            sources.resize(3, None);
            sources.push(time);
            sources.extend(others.map(Some));
        }
        if sources.len() > MAX_AXES || leading == shape.len() {
            return Self {
                lengths: shape.iter().rev().copied().collect(),
                sources: (0..shape.len()).rev().map(Some).collect(),
                moved: None,
            };
        }
        let length = |axis: &Option<usize>| axis.and_then(|axis| shape.get(axis)).copied();
        let product = |axes: &[u64]| axes.iter().fold(1, |n: u64, axis| n.saturating_mul(*axis));
        let moved = rotation(&order).filter(|[_, _, inner]| !inner.is_empty());
        let moved = moved.map(|axes| axes.map(|axes| product(shape.get(axes).unwrap_or_default())));
        Self {
            lengths: sources
                .iter()
                .map(|axis| length(axis).unwrap_or(1))
                .collect(),
            sources,
            moved,
        }
    }

    /// Returns the elements in the order of the file.
    pub(super) fn segment(&self, extent: ArrayExtent) -> Segment {
        match self.moved {
            Some([outer, moved, inner]) => Segment::Moved(MovedAxis {
                extent,
                outer,
                moved,
                inner,
            }),
            None => Segment::Array(extent),
        }
    }
}

/// Returns the axes before the spatial axes in the order of the file, the slowest first.
fn slowest_first(leading: usize, time: Option<usize>, depth: Option<usize>) -> Vec<usize> {
    let others = (0..leading).filter(|axis| Some(*axis) != time && Some(*axis) != depth);
    others.chain(time).chain(depth).collect()
}

/// Returns the axes that stay first, those that move inwards, and those past which they move, if one such move
/// brings the axes into this order.
fn rotation(order: &[usize]) -> Option<[Range<usize>; 3]> {
    let (first, behind) = match order.iter().enumerate().find(|(at, axis)| at != *axis) {
        Some((at, axis)) => (at, *axis),
        None => return Some([0..0, 0..0, 0..0]),
    };
    let passed = order.iter().skip(first).zip(behind..);
    let end = behind + passed.take_while(|(axis, at)| *axis == at).count();
    let moved = (0..first).chain(behind..end).chain(first..behind);
    let is_order = moved.chain(end..order.len()).eq(order.iter().copied());
    is_order.then_some([0..first, first..behind, behind..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(shape: &[u64], roles: &str) -> (Vec<u64>, Option<[u64; 3]>) {
        let axes: Vec<Axis> = (roles.chars())
            .map(|role| Axis {
                kind: match role {
                    't' => AxisKind::Time,
                    'c' => AxisKind::Channel,
                    's' | 'z' => AxisKind::Space,
                    _ => AxisKind::Unknown,
                },
                name: Some(role.to_string()),
                ..Axis::default()
            })
            .collect();
        let found = Axes::of(shape, &axes);
        (found.lengths, found.moved)
    }

    #[test]
    fn time_is_the_fourth_axis_and_channels_the_fifth() {
        for (shape, roles, lengths, moved) in [
            (&[4, 5][..], "ss", &[5, 4][..], None),
            (&[4, 5, 6], "??", &[6, 5, 4], None),
            (&[3, 4, 5], "tss", &[5, 4, 1, 3], None),
            (&[3, 4, 5], "css", &[5, 4, 1, 1, 3], None),
            (&[2, 4, 5, 6], "????", &[6, 5, 4, 2], None),
            (&[2, 3, 4, 5, 6], "tcsss", &[6, 5, 4, 2, 3], Some([1, 2, 3])),
            (&[2, 3, 4, 5, 6], "ctsss", &[6, 5, 4, 3, 2], None),
            (
                &[2, 3, 7, 5, 6],
                "stcss",
                &[6, 5, 1, 3, 7, 2],
                Some([2, 3, 7]),
            ),
            (&[4, 5, 3], "ssc", &[3, 5, 4], None),
            (&[7, 2, 5, 6], "ztss", &[6, 5, 7, 2], Some([1, 7, 2])),
            (&[7, 3, 5, 6], "zcss", &[6, 5, 7, 1, 3], Some([1, 7, 3])),
            (
                &[2, 7, 3, 5, 6],
                "tzcss",
                &[6, 5, 7, 2, 3],
                Some([1, 14, 3]),
            ),
            (&[3, 7, 2, 5, 6], "cztss", &[6, 5, 7, 2, 3], Some([3, 7, 2])),
            (&[3, 2, 7, 5, 6], "ctzss", &[6, 5, 7, 2, 3], None),
            // Two moves: the axis stays outside.
            (
                &[7, 2, 3, 5, 6],
                "ztcss",
                &[6, 5, 1, 2, 3, 7],
                Some([7, 2, 3]),
            ),
            (
                &[1, 2, 3, 4, 5, 6, 7],
                "cccccss",
                &[7, 6, 5, 4, 3, 2, 1],
                None,
            ),
        ] {
            let roles = match roles.len() == shape.len() {
                true => roles.to_owned(),
                false => "?".repeat(shape.len()),
            };
            assert_eq!(axes(shape, &roles), (lengths.to_vec(), moved), "{roles}");
        }
    }
}
