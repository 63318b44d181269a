//! The mapping from bytes of a decoded array to bytes of its chunks.
//!
//! In this module, a chunk is a read chunk: a chunk, or an inner chunk of a shard. The array is a
//! sequence of bytes in C order. A range of it is a sequence of runs, each of them contiguous in
//! the array and in one chunk. Axes that a chunk spans whole are merged, so that runs are as long
//! as possible. All arithmetic is in bytes, and checked once at construction.

use std::ops::ControlFlow;

use crate::zarr::grid::Axis as Edges;

/// A grid of chunks over an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The axes, outermost first; never empty. The innermost axis counts bytes.
    axes: Vec<Axis>,
    size_bytes: u64,
    chunk_bytes: u64,
    chunks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Axis {
    length: u64,
    /// The positions of the chunks.
    edges: Edges,
    /// The distance between two positions, in bytes of the array.
    array_stride: u64,
    /// The distance between two neighbouring chunks, in chunk numbers.
    grid_stride: u64,
}

/// A range of bytes that is contiguous in the array and in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The number of the chunk in C order over the grid.
    pub(super) chunk: u64,
    /// The offset of the first byte in the chunk.
    pub(super) offset: u64,
    /// The number of bytes, at least 1.
    pub(super) length: u64,
}

impl Geometry {
    /// Creates the grid of chunks of shape `chunk` over an array of `shape`, with elements of
    /// `item_bytes`. Both shapes have the same number of axes, possibly 0.
    ///
    /// `None` if a product does not fit into 64 bits or an extent of a chunk is 0.
    pub(super) fn new(shape: &[u64], chunk: &[u64], item_bytes: u64) -> Option<Self> {
        let edges: Vec<Edges> = chunk.iter().map(|edge| Edges::Regular(*edge)).collect();
        Self::over(shape, &edges, item_bytes)
    }

    /// Creates a grid of chunks of several shapes; otherwise as [`Geometry::new`].
    pub(super) fn over(shape: &[u64], edges: &[Edges], item_bytes: u64) -> Option<Self> {
        let largest: Vec<u64> = edges.iter().map(Edges::largest_edge).collect();
        if shape.len() != edges.len() || largest.contains(&0) {
            return None;
        }
        let product = |lengths: &[u64], factor| lengths.iter().try_fold(factor, checked_mul);
        let size_bytes = product(shape, item_bytes)?;
        let chunk_bytes = product(&largest, item_bytes)?;
        let mut inner = Axis::of_one_chunk(item_bytes);
        let mut chunks: u64 = 1;
        let mut axes = Vec::new();
        for (&length, edges) in shape.iter().zip(edges).rev() {
            let count = edges.chunk_count(length);
            if let Edges::Regular(chunk) = inner.edges
                && inner.length == chunk
            {
                // The chunks span the inner axes whole, so both axes are merged.
                inner.edges = edges.scaled(chunk)?;
                inner.length = chunk.checked_mul(length)?;
            } else {
                let outer = Axis {
                    length,
                    edges: edges.clone(),
                    array_stride: inner.array_stride.checked_mul(inner.length)?,
                    grid_stride: chunks,
                };
                axes.push(inner);
                inner = outer;
            }
            chunks = chunks.checked_mul(count)?;
        }
        axes.push(inner);
        axes.reverse();
        Some(Self {
            axes,
            size_bytes,
            chunk_bytes,
            chunks,
        })
    }

    /// Returns the size of the array in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the size of the largest chunk in bytes, including padding at the edges.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Returns the number of chunks.
    #[cfg(test)]
    fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Creates the grid of a single chunk.
    pub(super) fn of_one_chunk(size_bytes: u64) -> Self {
        Self {
            axes: vec![Axis::of_one_chunk(size_bytes)],
            size_bytes,
            chunk_bytes: size_bytes,
            chunks: 1,
        }
    }

    /// Returns the grid of the concatenated chunks, which must have the same shape. `None` if their
    /// bytes do not fit into 64 bits.
    pub(super) fn in_sequence(&self) -> Option<Self> {
        let size_bytes = self.chunks.checked_mul(self.chunk_bytes)?;
        let axis = Axis {
            edges: Edges::Regular(self.chunk_bytes),
            ..Axis::of_one_chunk(size_bytes)
        };
        Some(Self {
            axes: vec![axis],
            size_bytes,
            ..*self
        })
    }

    /// Returns the distance in the array between the first bytes of two rows of chunks, in bytes,
    /// for the shortest row.
    pub(super) fn outer_bytes(&self) -> u64 {
        let bytes = |axis: &Axis| axis.edges.smallest_edge().saturating_mul(axis.array_stride);
        self.axes.first().map_or(0, bytes)
    }

    /// Returns the number of array bytes that meet every chunk of a row of chunks, wherever they begin in it.
    pub(super) fn plane_bytes(&self) -> u64 {
        self.axes.first().map_or(0, |axis| axis.array_stride)
    }

    /// Returns the length of the longest run in bytes.
    pub(super) fn run_bytes(&self) -> u64 {
        self.axes
            .last()
            .map_or(0, |axis| axis.edges.largest_edge().min(axis.length))
    }

    /// Visits the runs of the bytes from `start` to `end`, in order, until `visit` breaks.
    ///
    /// Bytes beyond the end of the array are not visited.
    pub(super) fn runs<B>(
        &self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(Run) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let end = end.min(self.size_bytes);
        let mut at = start;
        while at < end {
            let (mut left, mut chunk, mut offset, mut length) = (at, 0, 0, 0);
            for axis in &self.axes {
                let position = left / axis.array_stride;
                left %= axis.array_stride;
                let Some((cell, inside, edge)) = axis.edges.place(position) else {
                    // Unreachable: the chunks cover the array. A caller detects a byte without a chunk.
                    return ControlFlow::Continue(());
                };
                // Does not overflow: [`Geometry::over`] has checked these products.
                chunk += cell * axis.grid_stride;
                offset = offset * edge + inside;
                length = (edge - inside).min(axis.length - position);
            }
            let length = length.min(end - at);
            visit(Run {
                chunk,
                offset,
                length,
            })?;
            at += length;
        }
        ControlFlow::Continue(())
    }
}

impl Axis {
    /// Returns the edges of a single chunk.
    fn of_one_chunk(size_bytes: u64) -> Self {
        Self {
            length: size_bytes,
            edges: Edges::Regular(size_bytes),
            array_stride: 1,
            grid_stride: 1,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "for try_fold over a slice"
)]
fn checked_mul(product: u64, factor: &u64) -> Option<u64> {
    product.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the chunk and offset of each element, computed from the definition.
    fn naive(shape: &[u64], chunk: &[u64], item: u64) -> Vec<(u64, u64)> {
        let mut bytes = Vec::new();
        let elements: u64 = shape.iter().product();
        for element in 0..elements {
            let (mut left, mut index, mut offset) = (element, 0, 0);
            let mut coordinates = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                coordinates[axis] = left % shape[axis];
                left /= shape[axis];
            }
            for axis in 0..shape.len() {
                index = index * shape[axis].div_ceil(chunk[axis]) + coordinates[axis] / chunk[axis];
                offset = offset * chunk[axis] + coordinates[axis] % chunk[axis];
            }
            bytes.extend((0..item).map(|byte| (index, offset * item + byte)));
        }
        bytes
    }

    fn runs(geometry: &Geometry, start: u64, end: u64) -> Vec<Run> {
        let mut found = Vec::new();
        let _ = geometry.runs(start, end, |run| {
            found.push(run);
            ControlFlow::<()>::Continue(())
        });
        found
    }

    #[test]
    fn runs_match_the_definition() {
        let cases: &[(&[u64], &[u64], u64)] = &[
            (&[], &[], 8),
            (&[7], &[3], 2),
            (&[7], &[10], 2),
            (&[5, 7], &[2, 3], 4),
            (&[5, 7], &[2, 7], 4),
            (&[5, 7], &[2, 9], 4),
            (&[5, 7], &[5, 7], 1),
            (&[4, 3, 6], &[2, 3, 6], 2),
            (&[4, 3, 6], &[2, 2, 6], 2),
            (&[4, 3, 6], &[4, 3, 4], 2),
            (&[4, 1, 6], &[3, 1, 4], 3),
            (&[2, 3, 2, 5], &[1, 2, 2, 3], 1),
        ];
        for (shape, chunk, item) in cases {
            let geometry = Geometry::new(shape, chunk, *item).unwrap();
            let expected = naive(shape, chunk, *item);
            assert_eq!(geometry.size_bytes(), expected.len() as u64);
            for start in 0..expected.len() {
                for end in [start + 1, start + 5, start + 17, expected.len()] {
                    let found: Vec<_> = runs(&geometry, start as u64, end as u64)
                        .into_iter()
                        .flat_map(|run| (0..run.length).map(move |i| (run.chunk, run.offset + i)))
                        .collect();
                    let end = end.min(expected.len());
                    assert_eq!(
                        found,
                        expected[start..end],
                        "{shape:?} {chunk:?} {start}..{end}"
                    );
                }
            }
        }
    }

    /// As `naive`, with lists of edges.
    fn naive_edges(shape: &[u64], edges: &[&[u64]], item: u64) -> Vec<(u64, u64)> {
        let mut bytes = Vec::new();
        let place = |edges: &[u64], mut at: u64| {
            let chunk = edges.iter().take_while(|edge| {
                let is_before = at >= **edge;
                at -= if is_before { **edge } else { 0 };
                is_before
            });
            (chunk.count(), at)
        };
        for element in 0..shape.iter().product() {
            let (mut left, mut index, mut offset) = (element, 0, 0);
            for (axis, edges) in edges.iter().enumerate() {
                let stride: u64 = shape[axis + 1..].iter().product();
                let (chunk, inside) = place(edges, left / stride);
                left %= stride;
                index = index * edges.len() as u64 + chunk as u64;
                offset = offset * edges[chunk] + inside;
            }
            bytes.extend((0..item).map(|byte| (index, offset * item + byte)));
        }
        bytes
    }

    #[test]
    fn runs_of_chunks_of_several_shapes_match_the_definition() {
        type Case<'a> = (&'a [u64], &'a [&'a [u64]], u64);
        let cases: &[Case<'_>] = &[
            (&[6], &[&[1, 2, 3]], 2),
            (&[6], &[&[4, 4]], 2),
            (&[6, 5], &[&[1, 2, 3], &[5]], 4),
            (&[6, 5], &[&[6], &[1, 4]], 1),
            (&[6, 5], &[&[2, 4], &[3, 4]], 4),
            (&[4, 3, 5], &[&[1, 3], &[1, 2], &[2, 2, 1]], 2),
            (&[4, 3, 5], &[&[3, 1], &[3], &[5]], 2),
            (&[4, 3, 5], &[&[4], &[2, 7], &[5]], 3),
        ];
        for (shape, edges, item) in cases {
            let axes: Vec<serde_json::Value> =
                edges.iter().map(|list| serde_json::json!(list)).collect();
            let grid = serde_json::json!({"name": "rectilinear",
                "configuration": {"kind": "inline", "chunk_shapes": axes}});
            let grid = crate::zarr::ChunkGrid::from_v3(shape, &grid).unwrap();
            let geometry = Geometry::over(shape, grid.axes(), *item).unwrap();
            let expected = naive_edges(shape, edges, *item);
            assert_eq!(geometry.chunks(), grid.chunk_count());
            for start in 0..expected.len() {
                for end in [start + 1, start + 7, expected.len()] {
                    let found: Vec<_> = runs(&geometry, start as u64, end as u64)
                        .into_iter()
                        .flat_map(|run| (0..run.length).map(move |i| (run.chunk, run.offset + i)))
                        .collect();
                    let end = end.min(expected.len());
                    assert_eq!(
                        found,
                        expected[start..end],
                        "{shape:?} {edges:?} {start}..{end}"
                    );
                }
            }
        }
    }

    #[test]
    fn chunks_that_span_the_inner_axes_give_long_runs() {
        let geometry = Geometry::new(&[100, 50, 40], &[10, 50, 40], 4).unwrap();
        assert_eq!(geometry.run_bytes(), 10 * 50 * 40 * 4);
        assert_eq!(runs(&geometry, 0, 800_000).len(), 10);
        let geometry = Geometry::new(&[100, 50, 40], &[10, 50, 41], 4).unwrap();
        assert_eq!(geometry.run_bytes(), 160);
    }

    #[test]
    fn empty_arrays_have_no_runs() {
        for shape in [&[0, 5], &[5, 0]] {
            let geometry = Geometry::new(shape, &[2, 2], 4).unwrap();
            assert_eq!((geometry.size_bytes(), geometry.chunks()), (0, 0));
            assert!(runs(&geometry, 0, 100).is_empty());
        }
    }

    #[test]
    fn geometry_that_overflows_is_refused() {
        assert!(Geometry::new(&[1 << 40, 1 << 40], &[1, 1], 1).is_none());
        assert!(Geometry::new(&[4], &[u64::MAX], 4).is_none());
        assert!(Geometry::new(&[4], &[0], 4).is_none());
        assert!(Geometry::new(&[4, 4], &[2], 4).is_none());
    }
}
