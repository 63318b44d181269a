//! One axis of a chunk grid.

use serde_json::Value;

use super::list;
use crate::zarr::error::{MetadataError, excerpt};

/// The chunks along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// All chunks have this edge; the last chunk may extend beyond the array.
    Regular(u64),
    /// Chunks with different edges.
    Runs(Vec<Run>),
}

/// Consecutive chunks of the same edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The index of the first chunk.
    index: u64,
    /// The index of the first element of the first chunk.
    start: u64,
    /// Number of elements of each chunk along the axis, at least 1.
    edge: u64,
    /// The number of chunks, at least 1.
    count: u64,
}

impl Axis {
    /// Parses one axis of a rectilinear grid: an edge for all chunks, or a list of edges and of pairs of an
    /// edge and its number of repetitions. The chunks beyond `extent` elements are left out; along an axis of
    /// length 0, edges may be 0.
    pub(super) fn from_rectilinear(
        value: &Value,
        extent: Option<u64>,
    ) -> Result<Self, MetadataError> {
        let invalid = |value: &Value| {
            let what = format!("edges of rectilinear chunks: {}", excerpt(value));
            MetadataError::invalid("chunk_grid", what)
        };
        let positive = |value: &Value| value.as_u64().filter(|n| *n > 0 || extent == Some(0));
        if value.is_number() {
            return positive(value)
                .map(Self::Regular)
                .ok_or_else(|| invalid(value));
        }
        let mut runs: Vec<Run> = Vec::new();
        for entry in list("chunk_grid", value)? {
            let pair = match entry.as_array().map(Vec::as_slice) {
                None => positive(entry).map(|edge| (edge, 1)),
                Some([edge, count]) => positive(edge).zip(positive(count)),
                Some(_) => None,
            };
            let (edge, count) = pair.ok_or_else(|| invalid(entry))?;
            let (index, start) = runs
                .last()
                .map_or((0, 0), |run| (run.index + run.count, run.end()));
            // The ends of all runs fit in a `u64`, so `Run::end` is exact.
            let fits = edge
                .checked_mul(count)
                .and_then(|length| length.checked_add(start))
                .and(index.checked_add(count));
            if fits.is_none() {
                return Err(MetadataError::overflow(
                    "chunk_grid",
                    "the sum of the edges",
                ));
            }
            match runs.last_mut() {
                Some(last) if last.edge == edge => last.count += count,
                _ => runs.push(Run {
                    index,
                    start,
                    edge,
                    count,
                }),
            }
        }
        let axis = Self::Runs(runs);
        Ok(match extent {
            // A run may have edge 0 here.
            Some(0) => Self::Regular(1),
            Some(extent) => axis.within(extent),
            None => axis,
        })
    }

    /// Returns the length of the longest chunk, in elements.
    pub fn largest_edge(&self) -> u64 {
        match self {
            Self::Regular(edge) => *edge,
            // An axis without elements needs no edges.
            Self::Runs(runs) => runs.iter().map(|run| run.edge).max().unwrap_or(1),
        }
    }

    /// Returns the length of the shortest chunk, in elements.
    pub fn smallest_edge(&self) -> u64 {
        match self {
            Self::Regular(edge) => *edge,
            Self::Runs(runs) => runs.iter().map(|run| run.edge).min().unwrap_or(1),
        }
    }

    /// Returns the axis with each element replaced by `factor` elements; `None` on overflow.
    pub fn scaled(&self, factor: u64) -> Option<Self> {
        let scaled = |run: &Run| {
            run.end().checked_mul(factor)?;
            Some(Run {
                start: run.start * factor,
                edge: run.edge * factor,
                ..*run
            })
        };
        Some(match self {
            Self::Regular(edge) => Self::Regular(edge.checked_mul(factor)?),
            Self::Runs(runs) => Self::Runs(runs.iter().map(scaled).collect::<Option<_>>()?),
        })
    }

    /// Returns the axis as [`Axis::Regular`], if all chunks have the same edge.
    pub(super) fn simplified(self) -> Self {
        match &self {
            Self::Runs(runs) => match runs[..] {
                [run] => Self::Regular(run.edge),
                _ => self,
            },
            Self::Regular(_) => self,
        }
    }

    /// Returns the axis without the chunks beyond `extent` elements.
    fn within(self, extent: u64) -> Self {
        let Self::Runs(mut runs) = self else {
            return self;
        };
        runs.retain(|run| run.start < extent);
        if let Some(last) = runs.last_mut() {
            let covering = (extent - last.start).div_ceil(last.edge);
            last.count = last.count.min(covering);
        }
        Self::Runs(runs)
    }

    /// Returns the number of chunks that cover `extent` elements.
    pub fn chunk_count(&self, extent: u64) -> u64 {
        match (self, extent.checked_sub(1)) {
            (_, None) => 0,
            (Self::Regular(edge), _) => extent.div_ceil(*edge),
            (Self::Runs(_), Some(last)) => self.locate(last).map_or(0, |(index, _)| index + 1),
        }
    }

    /// Returns the start and the edge of a chunk that is in the grid.
    pub(super) fn span(&self, index: u64) -> Option<(u64, u64)> {
        match self {
            Self::Regular(edge) => Some((index.checked_mul(*edge)?, *edge)),
            Self::Runs(runs) => {
                let after = runs.partition_point(|run| run.index <= index);
                let run = runs.get(after.checked_sub(1)?)?;
                let ahead = index - run.index;
                (ahead < run.count).then_some((run.start + ahead * run.edge, run.edge))
            }
        }
    }

    /// Returns whether the first `count` chunks of both axes have the same starts and edges.
    pub(super) fn starts_like(&self, other: &Self, count: u64) -> bool {
        // The edges change only at these chunks.
        let changes = [self, other].into_iter().flat_map(|axis| match axis {
            Self::Regular(_) => &[],
            Self::Runs(runs) => &runs[..],
        });
        let mut compared = std::iter::once(0).chain(changes.map(|run| run.index));
        compared.all(|index| index >= count || self.span(index) == other.span(index))
    }

    /// Returns the chunk of an element and the element's index in the chunk.
    pub(super) fn locate(&self, element: u64) -> Option<(u64, u64)> {
        let (chunk, inside, _) = self.place(element)?;
        Some((chunk, inside))
    }

    /// Returns the chunk of an element, the element's index in the chunk, and the length of the chunk.
    pub fn place(&self, element: u64) -> Option<(u64, u64, u64)> {
        match self {
            Self::Regular(edge) => Some((element / edge, element % edge, *edge)),
            Self::Runs(runs) => {
                let after = runs.partition_point(|run| run.start <= element);
                let run = runs.get(after.checked_sub(1)?)?;
                let ahead = element - run.start;
                let index = run.index + ahead / run.edge;
                (element < run.end()).then_some((index, ahead % run.edge, run.edge))
            }
        }
    }
}

impl Run {
    /// Returns the number of elements of each chunk along the axis.
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the index of the element after the last one.
    pub(super) fn end(&self) -> u64 {
        self.start + self.edge * self.count
    }
}
