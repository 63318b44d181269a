//! The plane of an array that a picture shows, and the ranges of elements that contain its samples.

use crate::array::Selection;

/// The maximum number of pixels along each side of a picture.
pub(super) const MAX_SIDE: u64 = 1024;
/// The shorter side of a long plane keeps this many pixels, if it has them.
const MIN_SIDE: u64 = 64;
/// The maximum size of a range that is read at once.
const MAX_RANGE_BYTES: u64 = 4 << 20;
/// The maximum decoded size of the chunks of a plane, and their maximum number. All of them are decoded:
/// without some chunks, the picture would be wrong.
const MAX_DECODED_BYTES: u64 = 1 << 30;
const MAX_CHUNKS: u64 = 65_536;

/// An axis of the plane: every `step`th element, starting with the first, is a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampledAxis {
    /// The axis of the array.
    pub(super) axis: usize,
    pub(super) length: u64,
    pub(super) step: u64,
}

impl SampledAxis {
    /// Returns the side with all elements of an axis.
    pub(super) fn whole(axis: usize, length: u64) -> Self {
        Self {
            axis,
            length,
            step: 1,
        }
    }

    /// Returns the number of samples along the axis.
    pub(super) fn samples(self) -> u64 {
        self.length.div_ceil(self.step.max(1))
    }
}

/// The plane at index 0 of all other axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plane {
    pub(super) rows: SampledAxis,
    pub(super) columns: SampledAxis,
    /// The axis of colour channels, if the pixels are colours.
    pub(super) channels: Option<SampledAxis>,
}

/// The layout of the elements: chunk by chunk, or row-major over the whole array.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementLayout<'a> {
    pub(super) shape: &'a [u64],
    /// The shape of the chunks that are decoded one by one, if all have the same shape.
    pub(super) chunk: Option<&'a [u64]>,
    /// The shape of the largest chunk.
    pub(super) largest_chunk: &'a [u64],
    pub(super) element_bytes: u64,
}

/// Consecutive samples along a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) struct SampleRun {
    /// The index of the first sample in the picture.
    pub(in crate::view) first: u64,
    pub(in crate::view) count: u64,
    /// Number of bytes from one sample to the next.
    pub(in crate::view) stride: u64,
}

impl SampleRun {
    /// Returns the number of bytes from the first sample to the last.
    fn length(self) -> u64 {
        self.count.saturating_sub(1).saturating_mul(self.stride)
    }

    /// Returns both halves, and the number of bytes from the first to the second.
    fn halves(self) -> (Self, Self, u64) {
        let left = self.count.div_ceil(2);
        let right = Self {
            first: self.first + left,
            count: self.count - left,
            ..self
        };
        let distance = left.saturating_mul(self.stride);
        (
            Self {
                count: left,
                ..self
            },
            right,
            distance,
        )
    }
}

/// A range of the elements that contains samples: rows, columns and channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) struct Block {
    pub(in crate::view) extent: Selection,
    pub(in crate::view) offset: u64,
    pub(in crate::view) runs: [SampleRun; 3],
}

impl Plane {
    /// Returns the same plane with steps that limit its samples to the size of a picture.
    pub(super) fn reduced(mut self) -> Self {
        let longest = self.rows.length.max(self.columns.length);
        let step = longest.div_ceil(MAX_SIDE).max(1);
        for side in [&mut self.rows, &mut self.columns] {
            side.step = step.min((side.length / MIN_SIDE).max(1));
            // Each side still has at most the maximum number of pixels.
            side.step = side.step.max(side.length.div_ceil(MAX_SIDE));
        }
        self
    }

    /// Returns the number of samples along the longer side.
    pub(super) fn longest(&self) -> u64 {
        self.rows.samples().max(self.columns.samples())
    }

    /// Returns rows, columns and channels.
    fn sides(&self) -> [SampledAxis; 3] {
        // An axis with one element has one sample.
        let none = SampledAxis {
            axis: usize::MAX,
            length: 1,
            step: 1,
        };
        [self.rows, self.columns, self.channels.unwrap_or(none)]
    }

    /// Checks that the chunks to decode are within the limits.
    ///
    /// # Errors
    /// Returns which limit they exceed.
    pub(super) fn check(&self, stored: ElementLayout<'_>) -> Result<(), String> {
        let (mut chunks, mut bytes) = (1_u64, stored.element_bytes);
        for (axis, length) in stored.shape.iter().enumerate() {
            let size = stored.largest_chunk.get(axis).copied().unwrap_or(1).max(1);
            let side = self.sides().into_iter().find(|side| side.axis == axis);
            let touched = side.map_or(1, |side| length.div_ceil(size).min(side.samples()));
            chunks = chunks.saturating_mul(touched);
            bytes = bytes.saturating_mul(touched.saturating_mul(size));
        }
        if bytes > MAX_DECODED_BYTES || chunks > MAX_CHUNKS {
            return Err(format!(
                "{chunks} chunks with {bytes} bytes would have to be decoded; {MAX_CHUNKS} chunks and \
                 {MAX_DECODED_BYTES} bytes are the limits, and there is no coarser level"
            ));
        }
        Ok(())
    }

    /// Returns the blocks of all samples, chunk by chunk. `None` if an offset overflows.
    pub(super) fn blocks(&self, stored: ElementLayout<'_>) -> Option<Vec<Block>> {
        let (extent, unit) = match stored.chunk {
            Some(chunk) => (Selection::ChunkMajor, chunk),
            None => (Selection::RowMajor, stored.shape),
        };
        let grid: Vec<u64> = (stored.shape.iter().zip(unit))
            .map(|(length, side)| length.div_ceil((*side).max(1)))
            .collect();
        let unit_bytes = unit
            .iter()
            .try_fold(stored.element_bytes, |n, side| n.checked_mul(*side))?;
        let steps = strides(unit, stored.element_bytes)?;
        let unit_steps = strides(&grid, unit_bytes)?;
        let parts = self.sides().map(|side| {
            let at = |all: &[u64]| all.get(side.axis).copied();
            let all = at(unit).zip(at(&steps)).zip(at(&unit_steps));
            let ((unit, step), unit_step) = all.unwrap_or(((1, 0), 0));
            parts(side, unit, step, unit_step)
        });
        let [rows, columns, channels] = &parts;
        let mut blocks = Vec::new();
        for (row_start, row) in rows {
            for (column_start, column) in columns {
                for (channel_start, channel) in channels {
                    let offset = row_start
                        .checked_add(*column_start)?
                        .checked_add(*channel_start)?;
                    let runs = [*row, *column, *channel];
                    let block = Block {
                        extent,
                        offset,
                        runs,
                    };
                    block.split(stored.element_bytes, &mut blocks);
                }
            }
        }
        Some(blocks)
    }
}

/// Returns the number of bytes from one element to the next along each axis, in C order.
fn strides(shape: &[u64], element_bytes: u64) -> Option<Vec<u64>> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = element_bytes;
    for side in shape.iter().rev() {
        strides.push(stride);
        stride = stride.checked_mul(*side)?;
    }
    strides.reverse();
    Some(strides)
}

/// Returns the samples of a side, split by chunk, with the offset of the first sample in each. `unit` is the
/// side of a chunk; `step` and `unit_step` are the bytes between elements and between chunks.
fn parts(side: SampledAxis, unit: u64, step: u64, unit_step: u64) -> Vec<(u64, SampleRun)> {
    let (unit, stride) = (unit.max(1), side.step.max(1));
    let mut parts = Vec::new();
    let mut first = 0;
    while first < side.samples() {
        let at = first * stride;
        // Samples before the end of the chunk.
        let end = (at / unit + 1).saturating_mul(unit).min(side.length);
        let count = (end - at).div_ceil(stride);
        let offset = (at / unit).saturating_mul(unit_step);
        let offset = offset.saturating_add((at % unit).saturating_mul(step));
        let run = SampleRun {
            first,
            count,
            stride: stride.saturating_mul(step),
        };
        parts.push((offset, run));
        first += count;
    }
    parts
}

impl Block {
    /// Returns the number of bytes from the start of the first sample to the end of the last.
    pub(in crate::view) fn size_bytes(&self, element_bytes: u64) -> u64 {
        let lengths = self.runs.iter().map(|run| run.length());
        lengths.fold(element_bytes, u64::saturating_add)
    }

    /// Appends the block, split into parts that are short enough.
    fn split(self, element_bytes: u64, blocks: &mut Vec<Self>) {
        let mut parts = vec![self];
        while let Some(block) = parts.pop() {
            let longest =
                (0..block.runs.len()).max_by_key(|run| block.runs.get(*run).map(|r| r.length()));
            let run = longest.and_then(|place| Some((place, *block.runs.get(place)?)));
            let is_short = block.size_bytes(element_bytes) <= MAX_RANGE_BYTES;
            let Some((place, run)) = run.filter(|(_, run)| !is_short && run.count > 1) else {
                blocks.push(block);
                continue;
            };
            let (left, right, distance) = run.halves();
            let (mut one, mut other) = (block, block);
            one.runs = replaced(block.runs, place, left);
            other.runs = replaced(block.runs, place, right);
            other.offset = block.offset.saturating_add(distance);
            parts.push(other);
            parts.push(one);
        }
    }

    /// Returns the index of each sample in the picture (row, column, channel), and its offset in the block.
    pub(in crate::view) fn samples(&self) -> impl Iterator<Item = ([u64; 3], u64)> + use<> {
        let [rows, columns, channels] = self.runs;
        let of = |run: SampleRun| (0..run.count).map(move |n| (run.first + n, n * run.stride));
        of(rows).flat_map(move |(row, down)| {
            of(columns).flat_map(move |(column, across)| {
                of(channels)
                    .map(move |(channel, inside)| ([row, column, channel], down + across + inside))
            })
        })
    }
}

fn replaced(mut runs: [SampleRun; 3], place: usize, run: SampleRun) -> [SampleRun; 3] {
    if let Some(target) = runs.get_mut(place) {
        *target = run;
    }
    runs
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the arrays of the tests are small"
)]
mod tests {
    use super::*;

    /// Renders the picture of an array in which each element is its index in C order.
    fn picture(plane: &Plane, shape: &[u64], chunk: Option<&[u64]>) -> Vec<u32> {
        let count = |shape: &[u64]| shape.iter().product::<u64>();
        let at = |place: &[u64]| {
            place
                .iter()
                .zip(shape)
                .fold(0, |n, (at, side)| n * side + at)
        };
        // The bytes in the order of the extent.
        let unit = chunk.unwrap_or(shape);
        let grid: Vec<u64> = shape
            .iter()
            .zip(unit)
            .map(|(n, side)| n.div_ceil(*side))
            .collect();
        let places = |shape: &[u64]| {
            let shape = shape.to_vec();
            (0..count(&shape)).map(move |mut n| {
                let mut place: Vec<u64> = shape
                    .iter()
                    .rev()
                    .map(|side| {
                        let at = n % side;
                        n /= side;
                        at
                    })
                    .collect();
                place.reverse();
                place
            })
        };
        let mut bytes = Vec::new();
        for corner in places(&grid) {
            for inside in places(unit) {
                let place: Vec<u64> = (0..shape.len())
                    .map(|axis| corner[axis] * unit[axis] + inside[axis])
                    .collect();
                let is_inside = place.iter().zip(shape).all(|(at, side)| at < side);
                let value = if is_inside {
                    at(&place) as u32
                } else {
                    u32::MAX
                };
                bytes.extend(value.to_le_bytes());
            }
        }
        let stored = ElementLayout {
            shape,
            chunk,
            largest_chunk: unit,
            element_bytes: 4,
        };
        let channels = plane.channels.map_or(1, SampledAxis::samples);
        let mut picture =
            vec![u32::MAX; (plane.rows.samples() * plane.columns.samples() * channels) as usize];
        for block in plane.blocks(stored).unwrap() {
            assert!(block.size_bytes(4) <= MAX_RANGE_BYTES.max(4));
            for ([row, column, channel], offset) in block.samples() {
                let start = (block.offset + offset) as usize;
                let value = u32::from_le_bytes(bytes[start..start + 4].try_into().unwrap());
                let pixel = (row * plane.columns.samples() + column) * channels + channel;
                picture[pixel as usize] = value;
            }
        }
        picture
    }

    fn plane(
        rows: (usize, u64, u64),
        columns: (usize, u64, u64),
        channels: Option<(usize, u64)>,
    ) -> Plane {
        let side = |(axis, length, step)| SampledAxis { axis, length, step };
        Plane {
            rows: side(rows),
            columns: side(columns),
            channels: channels.map(|(axis, length)| SampledAxis::whole(axis, length)),
        }
    }

    #[test]
    fn samples_are_equally_spaced_elements_of_the_first_plane() {
        for (shape, plane) in [
            (vec![7, 11], plane((0, 7, 1), (1, 11, 1), None)),
            (vec![7, 11], plane((0, 7, 3), (1, 11, 2), None)),
            (vec![2, 7, 11], plane((1, 7, 2), (2, 11, 5), None)),
            (vec![7, 11, 3], plane((0, 7, 2), (1, 11, 2), Some((2, 3)))),
            (vec![3, 7, 11], plane((1, 7, 2), (2, 11, 2), Some((0, 3)))),
            (vec![7, 11, 5], plane((0, 7, 1), (1, 11, 4), None)),
            (vec![1100, 1000], plane((0, 1100, 70), (1, 1000, 30), None)),
        ] {
            let mut expected = Vec::new();
            for row in 0..plane.rows.samples() {
                for column in 0..plane.columns.samples() {
                    for channel in 0..plane.channels.map_or(1, SampledAxis::samples) {
                        let mut place = vec![0; shape.len()];
                        place[plane.rows.axis] = row * plane.rows.step;
                        place[plane.columns.axis] = column * plane.columns.step;
                        if let Some(channels) = plane.channels {
                            place[channels.axis] = channel;
                        }
                        let number = place
                            .iter()
                            .zip(&shape)
                            .fold(0, |n, (at, side)| n * side + at);
                        expected.push(number as u32);
                    }
                }
            }
            let rank = shape.len();
            for chunk in [
                None,
                Some(vec![1; rank]),
                Some(vec![4; rank]),
                Some(vec![16; rank]),
            ] {
                assert_eq!(
                    picture(&plane, &shape, chunk.as_deref()),
                    expected,
                    "{shape:?} {chunk:?}"
                );
            }
        }
    }

    #[test]
    fn long_ranges_are_read_in_parts() {
        let plane = plane((0, 4096, 32), (1, 1 << 20, 8192), None);
        let stored = |chunk| ElementLayout {
            shape: &[4096, 1 << 20],
            chunk,
            largest_chunk: &[4096, 1 << 20],
            element_bytes: 8,
        };
        let blocks = plane.blocks(stored(None)).unwrap();
        let samples: u64 = blocks
            .iter()
            .map(|block| block.samples().count() as u64)
            .sum();
        assert_eq!(samples, 1 << 14);
        assert!(
            blocks
                .iter()
                .all(|block| block.size_bytes(8) <= MAX_RANGE_BYTES)
        );
        assert!(
            plane
                .check(stored(None))
                .unwrap_err()
                .contains("no coarser level")
        );
    }

    #[test]
    fn images_are_small_and_retain_their_short_side() {
        let reduced = |rows, columns| {
            let plane = plane((0, rows, 1), (1, columns, 1), None).reduced();
            (plane.rows.samples(), plane.columns.samples())
        };
        assert_eq!(reduced(1024, 3), (1024, 3));
        assert_eq!(reduced(1025, 1025), (513, 513));
        assert_eq!(reduced(10_980, 5490), (999, 500));
        assert_eq!(reduced(1 << 40, 10), (1024, 10));
        assert_eq!(reduced(100, 1 << 20), (100, 1024));
        assert_eq!(reduced(1, 1), (1, 1));
    }
}
