//! Decodes all blocks of an array into its bytes.

use super::bits::BitReader;
use super::block::{Block, Value};
use super::params::Params;
use crate::codec::error::DecodeError;

/// Decodes the blocks at `bits` into all of `dst`, with elements of `S` bytes in C order.
///
/// `shape` has at most four axes, the slowest first, and as many elements as `dst`.
///
/// # Errors
/// [`DecodeError::Corrupt`] if the bits end too early, [`DecodeError::Internal`] if `dst` has a wrong size.
pub(super) fn decode<T: Value, const S: usize>(
    bits: &mut BitReader<'_>,
    params: &Params,
    shape: &[u64],
    dst: &mut [u8],
    to_bytes: impl Fn(T) -> [u8; S],
) -> Result<(), DecodeError> {
    let mut axes = [1; 4];
    for (to, from) in axes.iter_mut().rev().zip(shape.iter().rev()) {
        *to = usize::try_from(*from).unwrap_or(usize::MAX);
    }
    let field = Field { params, axes };
    let elements = dst.as_chunks_mut::<S>().0;
    let count = axes.iter().try_fold(1usize, |n, axis| n.checked_mul(*axis));
    if shape.len() > 4 || count != Some(elements.len()) {
        let found = elements.len();
        return Err(DecodeError::internal(format!(
            "{found} elements, {shape:?}"
        )));
    }
    match shape.len() {
        0 | 1 => field.blocks::<T, S, 4, 1>(bits, elements, to_bytes),
        2 => field.blocks::<T, S, 16, 1>(bits, elements, to_bytes),
        3 => field.blocks::<T, S, 64, 1>(bits, elements, to_bytes),
        _ => field.blocks::<T, S, 64, 4>(bits, elements, to_bytes),
    }
}

struct Field<'a> {
    params: &'a Params,
    /// The length of each axis, the slowest first; 1 for missing axes.
    axes: [usize; 4],
}

impl Field<'_> {
    fn blocks<T: Value, const S: usize, const R: usize, const W: usize>(
        &self,
        bits: &mut BitReader<'_>,
        elements: &mut [[u8; S]],
        to_bytes: impl Fn(T) -> [u8; S],
    ) -> Result<(), DecodeError> {
        let [w, z, y, x] = self.axes;
        for w in (0..w).step_by(4) {
            for z in (0..z).step_by(4) {
                for y in (0..y).step_by(4) {
                    for x in (0..x).step_by(4) {
                        let block = T::read::<R, W>(bits, self.params);
                        if bits.overrun_bits() > 0 {
                            let what = format!("ends within the block at {:?}", [w, z, y, x]);
                            return Err(DecodeError::corrupt(what));
                        }
                        self.store(&block, [w, z, y, x], elements, &to_bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores the part of a block that lies within the array.
    fn store<T: Value, const S: usize, const R: usize, const W: usize>(
        &self,
        block: &Block<T, R, W>,
        origin: [usize; 4],
        elements: &mut [[u8; S]],
        to_bytes: impl Fn(T) -> [u8; S],
    ) {
        let [_, planes, rows, columns] = self.axes;
        let [w, z, y, x] = origin;
        let used: [usize; 4] = std::array::from_fn(|axis| (self.axes[axis] - origin[axis]).min(4));
        let width = used[3];
        for (n, row) in block.as_flattened().chunks_exact(4).enumerate() {
            let [dw, dz, dy] = [n / 16, n / 4 % 4, n % 4];
            if dw >= used[0] || dz >= used[1] || dy >= used[2] {
                continue;
            }
            let start = (((w + dw) * planes + z + dz) * rows + y + dy) * columns + x;
            for (to, from) in elements.iter_mut().skip(start).take(width).zip(row) {
                *to = to_bytes(*from);
            }
        }
    }
}
