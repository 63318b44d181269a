//! Chunk grids (v2 `chunks`; v3 core, "Chunk grids"; zarr-extensions, `chunk-grids/rectilinear`).
//!
//! A grid is validated on creation: no product of its sizes overflows a `u64`.

use std::iter::repeat;

use serde_json::Value;

use super::codec_chain::named_configuration;
use super::error::{MetadataError, excerpt, json_type, printable};

mod axis;

pub use axis::{Axis, Run};

/// The maximum number of axes, which is numpy's limit.
pub const MAX_RANK: usize = 64;

/// The chunk grid of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkGrid {
    array_shape: Vec<u64>,
    axes: Vec<Axis>,
    grid_shape: Vec<u64>,
    chunk_count: u64,
    element_count: u64,
    largest_chunk_elements: u64,
}

impl ChunkGrid {
    /// Returns a regular grid.
    ///
    /// # Errors
    /// The ranks differ or exceed [`MAX_RANK`], an edge is 0 along an axis that has elements, or a product
    /// exceeds `u64::MAX`: elements of the array, elements of a chunk, or chunks of the grid.
    pub fn regular(shape: &[u64], chunk_shape: &[u64]) -> Result<Self, MetadataError> {
        let axes = chunk_shape.iter().map(|edge| Axis::Regular(*edge));
        Self::new(shape, axes.collect())
    }

    /// Returns a grid with one axis description for each axis of the array.
    fn new(shape: &[u64], mut axes: Vec<Axis>) -> Result<Self, MetadataError> {
        let invalid = |what: String| MetadataError::invalid("chunk grid", what);
        if shape.len() != axes.len() {
            let (chunk, array) = (axes.len(), shape.len());
            return Err(invalid(format!(
                "{chunk} axes for an array of {array} axes"
            )));
        }
        if shape.len() > MAX_RANK {
            let what = format!("an array of {} axes (the limit is {MAX_RANK})", shape.len());
            return Err(MetadataError::unsupported(what));
        }
        replace_unused_edges(shape, &mut axes);
        if let Some(axis) = axes.iter().position(|axis| axis.largest_edge() == 0) {
            return Err(invalid(format!("the chunk shape is 0 along axis {axis}")));
        }
        let overflow = |name: &str, sizes: &[u64]| {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            MetadataError::overflow("chunk grid", &format!("{name} ({})", sizes.join(" x ")))
        };
        let element_count = product(shape.iter().copied())
            .ok_or_else(|| overflow("the number of elements", shape))?;
        let edges: Vec<u64> = axes.iter().map(Axis::largest_edge).collect();
        let largest_chunk_elements = product(edges.iter().copied())
            .ok_or_else(|| overflow("the number of elements of a chunk", &edges))?;
        let counts: Vec<u64> = shape
            .iter()
            .zip(&axes)
            .map(|(extent, axis)| axis.chunk_count(*extent))
            .collect();
        let chunk_count = product(counts.iter().copied())
            .ok_or_else(|| overflow("the number of chunks", &counts))?;
        Ok(Self {
            array_shape: shape.to_vec(),
            axes,
            grid_shape: counts,
            chunk_count,
            element_count,
            largest_chunk_elements,
        })
    }

    /// Parses a v3 `chunk_grid` for an array of `shape`.
    ///
    /// # Errors
    /// As [`ChunkGrid::regular`]; an unknown grid is unsupported.
    pub fn from_v3(shape: &[u64], value: &Value) -> Result<Self, MetadataError> {
        let (name, configuration) = named_configuration("chunk_grid", value)?;
        let member = |member: &str| {
            configuration
                .and_then(|configuration| configuration.get(member))
                .unwrap_or(&Value::Null)
        };
        match name {
            "regular" => {
                let chunk_shape = sizes("chunk_grid", member("chunk_shape"))?;
                Self::regular(shape, &chunk_shape)
            }
            "rectilinear" => {
                if let Some(kind) = member("kind").as_str().filter(|kind| *kind != "inline") {
                    let what = format!("chunk grid rectilinear of kind {}", excerpt(&kind.into()));
                    return Err(MetadataError::unsupported(what));
                }
                let axes = list("chunk_grid", member("chunk_shapes"))?;
                let extents = shape.iter().map(|extent| Some(*extent)).chain(repeat(None));
                let axes = axes.iter().zip(extents);
                let axes = axes.map(|(axis, extent)| Axis::from_rectilinear(axis, extent));
                let axes = axes.collect::<Result<Vec<_>, _>>()?;
                let mut grid = Self::new(shape, axes)?;
                grid.check_covered()?;
                grid.axes = grid.axes.into_iter().map(Axis::simplified).collect();
                Ok(grid)
            }
            _ => Err(MetadataError::unsupported(format!(
                "chunk grid {}",
                printable(name)
            ))),
        }
    }

    /// Rejects edges whose sum is less than the length of the array.
    fn check_covered(&self) -> Result<(), MetadataError> {
        for (i, (extent, axis)) in self.array_shape.iter().zip(&self.axes).enumerate() {
            if let Axis::Runs(runs) = axis {
                let covered = runs.last().map_or(0, Run::end);
                if covered < *extent {
                    let what =
                        format!("the edges along axis {i} sum to {covered} of {extent} elements");
                    return Err(MetadataError::invalid("chunk_grid", what));
                }
            }
        }
        Ok(())
    }

    /// Returns the shape of the array, in elements.
    pub fn array_shape(&self) -> &[u64] {
        &self.array_shape
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.array_shape.len()
    }

    /// Returns the chunks along each axis.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns whether both grids have the same rank, and the chunks that both have are at the same places and have
    /// the same shapes.
    pub fn has_chunks_like(&self, other: &Self) -> bool {
        let axes = self.axes.iter().zip(&other.axes);
        let counts = self.grid_shape.iter().zip(&other.grid_shape);
        let mut axes = axes.zip(counts.map(|(count, other)| *count.min(other)));
        self.axes.len() == other.axes.len()
            && axes.all(|((axis, other), count)| axis.starts_like(other, count))
    }

    /// Returns the number of chunks along each axis.
    pub fn shape(&self) -> &[u64] {
        &self.grid_shape
    }

    /// Returns the number of chunks; 1 for an array without axes, 0 for an array without elements.
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// Returns the number of elements of the array.
    pub fn element_count(&self) -> u64 {
        self.element_count
    }

    /// Returns the number of elements of the largest chunk.
    pub fn largest_chunk_elements(&self) -> u64 {
        self.largest_chunk_elements
    }

    /// Returns the length of the longest chunk along each axis, in elements.
    pub fn largest_chunk_shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::largest_edge).collect()
    }

    /// Returns the shape of the chunks, if all chunks have the same shape.
    pub fn regular_chunk_shape(&self) -> Option<Vec<u64>> {
        let edge = |axis: &Axis| match axis {
            Axis::Regular(edge) => Some(*edge),
            Axis::Runs(_) => None,
        };
        self.axes.iter().map(edge).collect()
    }

    /// Returns the shape of a chunk, including elements outside of the array; `None` if the chunk is not in
    /// the grid.
    pub fn chunk_shape(&self, index: &[u64]) -> Option<Vec<u64>> {
        self.spans(index, |_, edge, _| edge)
    }

    /// Returns the index of the first element of a chunk; `None` if the chunk is not in the grid.
    pub fn chunk_origin(&self, index: &[u64]) -> Option<Vec<u64>> {
        self.spans(index, |start, _, _| start)
    }

    /// Returns the shape of the part of a chunk within the array; `None` if the chunk is not in the grid.
    pub fn chunk_extent(&self, index: &[u64]) -> Option<Vec<u64>> {
        self.spans(index, |start, edge, end| {
            edge.min(end.saturating_sub(start))
        })
    }

    /// Applies `of` to start, edge and the array's length along each axis.
    fn spans(&self, index: &[u64], of: impl Fn(u64, u64, u64) -> u64) -> Option<Vec<u64>> {
        if !self.contains(index) {
            return None;
        }
        let axes = self.axes.iter().zip(index).zip(&self.array_shape);
        axes.map(|((axis, index), extent)| {
            let (start, edge) = axis.span(*index)?;
            Some(of(start, edge, *extent))
        })
        .collect()
    }

    /// Returns whether a chunk is in the grid.
    pub fn contains(&self, index: &[u64]) -> bool {
        index.len() == self.grid_shape.len()
            && index.iter().zip(&self.grid_shape).all(|(i, n)| i < n)
    }

    /// Returns the chunk of an element, and the element's index in the chunk; `None` outside of the array.
    pub fn locate(&self, element: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
        if element.len() != self.array_shape.len() {
            return None;
        }
        let axes = self.axes.iter().zip(element).zip(&self.array_shape);
        axes.map(|((axis, at), extent)| (at < extent).then(|| axis.locate(*at))?)
            .collect()
    }

    /// Returns the linear index of a chunk in C order; `None` if the chunk is not in the grid.
    pub fn linear(&self, index: &[u64]) -> Option<u64> {
        if !self.contains(index) {
            return None;
        }
        let step = |linear: u64, (i, n): (&u64, &u64)| linear.checked_mul(*n)?.checked_add(*i);
        index.iter().zip(&self.grid_shape).try_fold(0, step)
    }

    /// Returns the chunk at a linear index in C order; `None` after the last chunk.
    pub fn index(&self, linear: u64) -> Option<Vec<u64>> {
        if linear >= self.chunk_count {
            return None;
        }
        let mut rest = linear;
        let mut index: Vec<u64> = self
            .grid_shape
            .iter()
            .rev()
            .map(|n| {
                let i = rest % n;
                rest /= n;
                i
            })
            .collect();
        index.reverse();
        Some(index)
    }
}

/// Edges of a chunk without elements of the array are used up to this number of elements, for the items and
/// codecs of which the number of bytes cannot overflow either.
const MAX_UNUSED_ELEMENTS: u64 = 1 << 40;

/// Replaces edges along axes of length 0 by 1 if they are 0 or so large that sizes could overflow. No chunk
/// exists along these axes, so that any edge is valid: zarr-python writes `chunks: [0, 4]` for `shape: [0, 4]`.
fn replace_unused_edges(shape: &[u64], axes: &mut [Axis]) {
    let edges = axes.iter().map(|axis| axis.largest_edge().max(1));
    let is_large = product(edges).is_none_or(|elements| elements > MAX_UNUSED_ELEMENTS);
    for (extent, axis) in shape.iter().zip(axes) {
        if *extent == 0 && (is_large || axis.largest_edge() == 0) {
            *axis = Axis::Regular(1);
        }
    }
}

/// Returns the product of sizes; 0 if a size is 0, even if the others overflow.
pub(super) fn product(sizes: impl Iterator<Item = u64> + Clone) -> Option<u64> {
    if sizes.clone().any(|size| size == 0) {
        return Some(0);
    }
    sizes.into_iter().try_fold(1, u64::checked_mul)
}

/// Parses a list of sizes.
pub(super) fn sizes(field: &str, value: &Value) -> Result<Vec<u64>, MetadataError> {
    let size = |value: &Value| {
        value.as_u64().ok_or_else(|| {
            let what = format!("{} is not a size from 0 to 2^64 - 1", excerpt(value));
            MetadataError::invalid(field, what)
        })
    };
    list(field, value)?.iter().map(size).collect()
}

pub(super) fn list<'a>(field: &str, value: &'a Value) -> Result<&'a [Value], MetadataError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| {
        let what = format!("expected a list, not {}", json_type(value));
        MetadataError::invalid(field, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rectilinear(shape: &[u64], edges: Value) -> Result<ChunkGrid, MetadataError> {
        let configuration = json!({"kind": "inline", "chunk_shapes": edges});
        let value = json!({"name": "rectilinear", "configuration": configuration});
        ChunkGrid::from_v3(shape, &value)
    }

    fn message(result: Result<ChunkGrid, MetadataError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_regular_grid_counts_locates_and_clips_its_chunks() {
        let grid = ChunkGrid::regular(&[5, 7], &[2, 3]).unwrap();
        assert_eq!(grid.shape(), [3, 3]);
        assert_eq!((grid.chunk_count(), grid.element_count()), (9, 35));
        assert_eq!(grid.largest_chunk_elements(), 6);
        assert_eq!(grid.chunk_shape(&[2, 2]), Some(vec![2, 3]));
        assert_eq!(grid.chunk_origin(&[2, 2]), Some(vec![4, 6]));
        assert_eq!(grid.chunk_extent(&[2, 2]), Some(vec![1, 1]));
        assert_eq!(grid.chunk_extent(&[0, 0]), Some(vec![2, 3]));
        assert_eq!(grid.locate(&[4, 6]), Some((vec![2, 2], vec![0, 0])));
        assert_eq!(grid.locate(&[3, 5]), Some((vec![1, 1], vec![1, 2])));
        assert_eq!(grid.regular_chunk_shape(), Some(vec![2, 3]));
        for outside in [&[3, 0][..], &[0, 3], &[0], &[0, 0, 0]] {
            assert_eq!(grid.chunk_shape(outside), None);
            assert_eq!(grid.linear(outside), None);
        }
        assert_eq!(grid.locate(&[5, 0]), None);
        assert_eq!(grid.locate(&[0]), None);
    }

    #[test]
    fn linear_positions_and_indices_are_inverse() {
        let grid = ChunkGrid::regular(&[5, 7, 4], &[2, 3, 1]).unwrap();
        for linear in 0..grid.chunk_count() {
            let index = grid.index(linear).unwrap();
            assert_eq!(grid.linear(&index), Some(linear));
        }
        assert_eq!(grid.index(1), Some(vec![0, 0, 1]));
        assert_eq!(grid.index(4), Some(vec![0, 1, 0]));
        assert_eq!(grid.index(36), None);
    }

    #[test]
    fn an_array_without_axes_has_one_chunk_and_one_without_elements_none() {
        let scalar = ChunkGrid::regular(&[], &[]).unwrap();
        assert_eq!((scalar.chunk_count(), scalar.element_count()), (1, 1));
        assert_eq!(scalar.index(0), Some(vec![]));
        assert_eq!(scalar.linear(&[]), Some(0));
        assert_eq!(scalar.locate(&[]), Some((vec![], vec![])));
        let empty = ChunkGrid::regular(&[0, u64::MAX, 5], &[2, 1, 2]).unwrap();
        assert_eq!((empty.chunk_count(), empty.element_count()), (0, 0));
        assert_eq!(empty.shape(), [0, u64::MAX, 3]);
        assert_eq!(empty.index(0), None);
    }

    #[test]
    fn sizes_that_overflow_a_u64_are_rejected_by_name() {
        let big = 1 << 40;
        let found = message(ChunkGrid::regular(&[big, big], &[1, 1]));
        assert!(
            found.contains("the number of elements (1099511627776 x 1099511627776)"),
            "{found}"
        );
        let found = message(ChunkGrid::regular(&[8, 8], &[u64::MAX, 2]));
        assert!(
            found.contains("elements of a chunk (18446744073709551615 x 2)"),
            "{found}"
        );
        let found = message(ChunkGrid::regular(&[4, 4], &[2, 0]));
        assert_eq!(found, "chunk grid: the chunk shape is 0 along axis 1");
        let found = message(ChunkGrid::regular(&[4], &[2, 1]));
        assert_eq!(found, "chunk grid: 2 axes for an array of 1 axes");
        let found = message(ChunkGrid::regular(&[1; 1000], &[1; 1000]));
        assert_eq!(
            found,
            "an array of 1000 axes (the limit is 64) is not supported"
        );
        assert!(ChunkGrid::regular(&[1; 64], &[1; 64]).is_ok());
    }

    #[test]
    fn an_axis_of_length_0_has_chunks_of_any_edge() {
        for edges in [[0, 4], [1, 4], [7, 4], [u64::MAX, 4], [1 << 62, 4]] {
            let grid = ChunkGrid::regular(&[0, 4], &edges).unwrap();
            assert_eq!((grid.chunk_count(), grid.element_count()), (0, 0));
            assert_eq!(grid.shape(), [0, 1]);
            let expected = if edges[0] == 7 { 7 } else { 1 };
            assert_eq!(grid.regular_chunk_shape(), Some(vec![expected, 4]));
        }
        let found = message(ChunkGrid::regular(&[0, 4], &[0, 0]));
        assert_eq!(found, "chunk grid: the chunk shape is 0 along axis 1");
        assert!(ChunkGrid::regular(&[0, 4, 4], &[0, u64::MAX, 2]).is_err());
        for edges in [
            json!([0, 4]),
            json!([[0], 4]),
            json!([[[0, 3], 0, [5, 0]], [4]]),
            json!([[], 4]),
        ] {
            let grid = rectilinear(&[0, 4], edges.clone()).unwrap();
            assert_eq!(grid.regular_chunk_shape(), Some(vec![1, 4]), "{edges}");
        }
        for edges in [
            json!([4, 0]),
            json!([4, [4, 0]]),
            json!([4, [[0, 4]]]),
            json!(["a", 4]),
            json!([[-1], 4]),
        ] {
            assert!(rectilinear(&[0, 4], edges.clone()).is_err(), "{edges}");
        }
    }

    #[test]
    fn chunks_near_the_largest_u64_do_not_overflow() {
        let grid = ChunkGrid::regular(&[u64::MAX], &[1 << 63]).unwrap();
        assert_eq!(grid.shape(), [2]);
        assert_eq!(grid.chunk_origin(&[1]), Some(vec![1 << 63]));
        assert_eq!(grid.chunk_extent(&[1]), Some(vec![(1 << 63) - 1]));
        let one = ChunkGrid::regular(&[3], &[1 << 40]).unwrap();
        assert_eq!(one.chunk_extent(&[0]), Some(vec![3]));
    }

    #[test]
    fn rectilinear_edges_are_numbers_pairs_or_one_number() {
        let edges = json!([[[2, 3]], [1, [2, 1], 3], [[1, 3], 3], [6], 4]);
        let grid = rectilinear(&[6, 6, 6, 6, 6], edges).unwrap();
        assert_eq!(grid.shape(), [3, 3, 4, 1, 2]);
        assert_eq!(
            grid.chunk_shape(&[1, 1, 3, 0, 1]),
            Some(vec![2, 2, 3, 6, 4])
        );
        assert_eq!(
            grid.chunk_origin(&[1, 1, 3, 0, 1]),
            Some(vec![2, 1, 3, 0, 4])
        );
        assert_eq!(
            grid.chunk_extent(&[1, 1, 3, 0, 1]),
            Some(vec![2, 2, 3, 6, 2])
        );
        assert_eq!(grid.largest_chunk_elements(), 2 * 3 * 3 * 6 * 4);
        assert_eq!(grid.regular_chunk_shape(), None);
        for at in 0..6 {
            let (index, inside) = grid.locate(&[at; 5]).unwrap();
            let origin = grid.chunk_origin(&index).unwrap();
            let sums: Vec<u64> = origin.iter().zip(&inside).map(|(a, b)| a + b).collect();
            assert_eq!(sums, [at; 5]);
        }
    }

    #[test]
    fn rectilinear_edges_may_reach_over_the_end_but_not_stop_before_it() {
        let over = rectilinear(&[5], json!([[2, 2, 2, 2]])).unwrap();
        assert_eq!(over.shape(), [3]);
        assert_eq!(over.chunk_extent(&[2]), Some(vec![1]));
        // Chunks beyond the array do not count, whatever their edges are.
        let beyond = rectilinear(&[5, 4], json!([[2, [1, 3], 1000], [[2, 2], [9, 9]]])).unwrap();
        assert_eq!(beyond.shape(), [4, 2]);
        assert_eq!(beyond.largest_chunk_shape(), [2, 2]);
        assert_eq!(
            rectilinear(&[4], json!([[[2, 2], 9]]))
                .unwrap()
                .regular_chunk_shape(),
            Some(vec![2])
        );
        let short = message(rectilinear(&[5], json!([[2, 2]])));
        assert_eq!(
            short,
            "chunk_grid: the edges along axis 0 sum to 4 of 5 elements"
        );
        assert_eq!(rectilinear(&[0], json!([[]])).unwrap().chunk_count(), 0);
        assert!(rectilinear(&[1], json!([[]])).is_err());
    }

    #[test]
    fn hostile_rectilinear_edges_are_refused_without_expanding_them() {
        let huge = rectilinear(&[u64::MAX], json!([[[1, u64::MAX]]])).unwrap();
        assert_eq!(huge.chunk_count(), u64::MAX);
        assert_eq!(huge.chunk_origin(&[1 << 60]), Some(vec![1 << 60]));
        for edges in [
            json!([[[2, u64::MAX]]]),
            json!([[[1, u64::MAX], 1]]),
            json!([[0]]),
            json!([[[1, 0]]]),
            json!([[[1, 2, 3]]]),
            json!([["a"]]),
            json!([0]),
            json!([-1]),
            json!("x"),
            json!([[1.5]]),
        ] {
            assert!(rectilinear(&[4], edges.clone()).is_err(), "{edges}");
        }
    }

    #[test]
    fn an_unknown_grid_is_named() {
        let grid = ChunkGrid::from_v3(&[4], &json!({"name": "spiral", "configuration": {}}));
        assert_eq!(message(grid), "chunk grid spiral is not supported");
        assert!(ChunkGrid::from_v3(&[4], &json!("regular")).is_err());
        assert!(ChunkGrid::from_v3(&[4], &json!(4)).is_err());
        let negative = json!({"name": "regular", "configuration": {"chunk_shape": [-1]}});
        let found = message(ChunkGrid::from_v3(&[4], &negative));
        assert_eq!(found, "chunk_grid: -1 is not a size from 0 to 2^64 - 1");
    }
}
