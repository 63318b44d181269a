//! `transpose` and the order `F` of v2: restores C order.

use super::error::DecodeError;
use super::stage::{Decode, Size};

/// A permutation of axes, with the element size.
#[derive(Debug, Clone)]
pub(super) struct Transpose {
    /// The axes of the output, outermost first; contiguous axes are merged.
    axes: Vec<Axis>,
    /// The number of bytes per copy: 1, 2, 4, 8 or 16.
    unit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    length: usize,
    /// The number of units between neighbours in the encoded bytes.
    stride: usize,
}

/// The number of columns and rows of a tile; its source and destination fit in the first-level cache.
const TILE: usize = 32;

impl Transpose {
    /// Returns the decoder; axis `i` of the stored array is axis `order[i]` of the decoded array of this
    /// shape. `None` if the bytes are the same, or the array does not fit in memory.
    pub(super) fn new(shape: &[u64], order: &[usize], element_bytes: usize) -> Option<Self> {
        let unit = [16, 8, 4, 2, 1]
            .into_iter()
            .find(|u| element_bytes.is_multiple_of(*u))?;
        let mut axes = vec![
            Axis {
                length: 0,
                stride: 0
            };
            shape.len()
        ];
        let mut stride = element_bytes / unit;
        for axis in order.iter().rev() {
            let length = usize::try_from(*shape.get(*axis)?).ok()?;
            *axes.get_mut(*axis)? = Axis { length, stride };
            stride = stride.checked_mul(length)?;
        }
        axes.push(Axis {
            length: element_bytes / unit,
            stride: 1,
        });
        let mut merged: Vec<Axis> = Vec::new();
        for axis in axes.into_iter().filter(|axis| axis.length != 1) {
            match merged.last_mut() {
                Some(last) if last.stride == axis.stride * axis.length => {
                    *last = Axis {
                        length: last.length * axis.length,
                        stride: axis.stride,
                    };
                }
                _ => merged.push(axis),
            }
        }
        (merged.len() > 1).then_some(Self { axes: merged, unit })
    }

    /// Transposes elements of any type to C order.
    ///
    /// # Errors
    /// [`DecodeError::Internal`] if the number of elements contradicts the shape.
    pub(super) fn elements<T>(&self, encoded: Vec<T>) -> Result<Vec<T>, DecodeError> {
        let count = encoded.len();
        let mut slots: Vec<Option<T>> = encoded.into_iter().map(Some).collect();
        let mut decoded = Vec::with_capacity(count);
        let moved = self.for_each_row(0, 0, &mut |start| {
            let axis = self.axes.last()?;
            for i in 0..axis.length {
                decoded.push(slots.get_mut(start + i * axis.stride)?.take()?);
            }
            Some(())
        });
        match moved {
            Some(()) if decoded.len() == count => Ok(decoded),
            _ => Err(self.mismatch(count)),
        }
    }

    fn mismatch(&self, found: usize) -> DecodeError {
        DecodeError::internal(format!(
            "{found} elements to transpose along {:?}",
            self.axes
        ))
    }

    /// Calls `f` with the start of each row along the last axis in the encoded elements, until `f` returns
    /// `None`.
    fn for_each_row(
        &self,
        depth: usize,
        start: usize,
        f: &mut impl FnMut(usize) -> Option<()>,
    ) -> Option<()> {
        match self.axes.get(depth) {
            Some(axis) if depth + 1 < self.axes.len() => (0..axis.length)
                .try_for_each(|i| self.for_each_row(depth + 1, start + i * axis.stride, f)),
            _ => f(start),
        }
    }

    /// Transposes elements of `U` bytes; `None` if a range exceeds the buffers.
    fn run<const U: usize>(&self, src: &[u8], dst: &mut [u8]) -> Option<()> {
        let (src, dst) = (src.as_chunks::<U>().0, dst.as_chunks_mut::<U>().0);
        let (columns, outer) = self.axes.split_last()?;
        if columns.stride == 1 {
            let mut at = 0;
            return self.for_each_row(0, 0, &mut |start| {
                let to = dst.get_mut(at..at + columns.length)?;
                to.copy_from_slice(src.get(start..start + columns.length)?);
                at += columns.length;
                Some(())
            });
        }
        // Rows run along the axis with the smallest stride in the encoded elements, so that a tile reads and
        // writes whole cache lines.
        let mut others = Vec::with_capacity(outer.len());
        let mut step = columns.length;
        for axis in outer.iter().rev() {
            others.push((*axis, step));
            step *= axis.length;
        }
        others.reverse();
        let nearest =
            (0..others.len()).min_by_key(|i| others.get(*i).map(|(axis, _)| axis.stride))?;
        let (rows, row_step) = others.remove(nearest);
        let plane = Plane {
            rows: rows.length,
            row_stride: rows.stride,
            row_step,
            columns: columns.length,
            column_stride: columns.stride,
        };
        plane.copy_all(&others, (0, 0), src, dst)
    }
}

/// Two axes of a transposition; strides apply to the source, steps to the destination.
#[derive(Debug, Clone, Copy)]
struct Plane {
    rows: usize,
    row_stride: usize,
    row_step: usize,
    columns: usize,
    column_stride: usize,
}

impl Plane {
    /// Copies the planes at all positions along the other axes, which are given with their steps.
    fn copy_all<T: Copy>(
        &self,
        others: &[(Axis, usize)],
        (from, to): (usize, usize),
        src: &[T],
        dst: &mut [T],
    ) -> Option<()> {
        match others {
            [(axis, step), rest @ ..] => (0..axis.length).try_for_each(|i| {
                let place = (from + i * axis.stride, to + i * step);
                self.copy_all(rest, place, src, dst)
            }),
            [] => self.copy(src.get(from..)?, dst.get_mut(to..)?),
        }
    }

    fn copy<T: Copy>(&self, src: &[T], dst: &mut [T]) -> Option<()> {
        for row_0 in (0..self.rows).step_by(TILE) {
            let rows = row_0..self.rows.min(row_0 + TILE);
            for column_0 in (0..self.columns).step_by(TILE) {
                let width = TILE.min(self.columns - column_0);
                for row in rows.clone() {
                    let to = row * self.row_step + column_0;
                    let from = row * self.row_stride + column_0 * self.column_stride;
                    let to = dst.get_mut(to..to + width)?;
                    let from = src.get(from..)?.iter().step_by(self.column_stride);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
        Some(())
    }
}

impl Decode for Transpose {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(decoded)
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let units = self.axes.iter().map(|axis| axis.length).product::<usize>();
        let size = units * self.unit;
        if src.len() != size || dst.len() < size {
            let found = src.len();
            return Err(DecodeError::corrupt(format!(
                "{found} bytes to transpose, expected {size}"
            )));
        }
        let moved = match self.unit {
            2 => self.run::<2>(src, dst),
            4 => self.run::<4>(src, dst),
            8 => self.run::<8>(src, dst),
            16 => self.run::<16>(src, dst),
            _ => self.run::<1>(src, dst),
        };
        moved.map(|()| size).ok_or_else(|| self.mismatch(units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference implementation, one element at a time.
    fn model(shape: &[usize], order: &[usize], width: usize, src: &[u8]) -> Vec<u8> {
        let n: usize = shape.iter().product();
        let mut dst = vec![0; n * width];
        for at in 0..n {
            let mut rest = at;
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            let stored = order
                .iter()
                .fold(0, |at, axis| at * shape[*axis] + index[*axis]);
            dst[at * width..][..width].copy_from_slice(&src[stored * width..][..width]);
        }
        dst
    }

    #[test]
    fn every_permutation_and_width_matches_the_definition() {
        let shapes: [&[usize]; 5] = [
            &[3, 5],
            &[70, 33],
            &[2, 3, 4],
            &[1, 37, 2, 40],
            &[5, 1, 4, 3],
        ];
        for shape in shapes {
            let mut orders = vec![vec![]];
            for _ in shape {
                orders = orders
                    .iter()
                    .flat_map(|o: &Vec<usize>| {
                        (0..shape.len())
                            .filter(|a| !o.contains(a))
                            .map(|a| [&o[..], &[a]].concat())
                    })
                    .collect();
            }
            let wide: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
            for (order, width) in orders
                .iter()
                .flat_map(|o| [1, 2, 3, 4, 8, 12, 16].map(|w| (o, w)))
            {
                let size = shape.iter().product::<usize>() * width;
                let src: Vec<u8> = (0..size)
                    .map(|i| u8::try_from(i * 7919 % 251).unwrap())
                    .collect();
                let expected = model(shape, order, width, &src);
                let mut dst = vec![0; size];
                match Transpose::new(&wide, order, width) {
                    Some(codec) => {
                        assert_eq!(codec.decode(&src, &mut dst).unwrap(), size);
                        assert!(codec.decode(&src[1..], &mut dst).is_err());
                    }
                    None => dst.copy_from_slice(&src),
                }
                assert!(dst == expected, "{shape:?} {order:?} {width}");
            }
        }
    }

    #[test]
    fn elements_of_any_type_are_transposed() {
        let codec = Transpose::new(&[2, 3], &[1, 0], 1).unwrap();
        let moved = codec.elements(vec!["a", "d", "b", "e", "c", "f"]);
        assert_eq!(moved.unwrap(), ["a", "b", "c", "d", "e", "f"]);
        for wrong in [vec![1; 5], vec![1; 7]] {
            let error = codec.elements(wrong).unwrap_err();
            assert!(matches!(error, DecodeError::Internal(_)), "{error:?}");
        }
    }
}
