//! The coefficients of a block: bit planes from the highest to the lowest. Each plane has a group-tested
//! run-length code for the coefficients that were zero in all planes above.

use super::bits::BitReader;

/// The coefficients of a block in the order of the stream, as negabinary numbers: `W` groups of `R`
/// coefficients, with `R` at most 64.
pub(super) type Coefficients<const R: usize, const W: usize> = [[u64; R]; W];

/// Reads the coefficients of a block.
///
/// The numbers have `width` bits, of which at most the `precision` highest are read. `budget` is the number
/// of bits that the block has left.
pub(super) fn read<const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    mut budget: u32,
    width: u32,
    precision: u32,
) -> Coefficients<R, W> {
    let mut rows = [[0; R]; W];
    let (mut active, mut ones) = (0, 0);
    for k in (width.saturating_sub(precision)..width).rev() {
        if budget == 0 {
            break;
        }
        let plane = read_plane::<R, W>(bits, &mut budget, &mut active);
        let (row, lane) = (k as usize % R, k as usize / R * R);
        for (rows, word) in rows.iter_mut().zip(plane) {
            if let Some(row) = rows.get_mut(row) {
                *row |= word << lane;
            }
        }
        ones += active;
    }
    // A few bits of a large block are moved faster one by one.
    match R == 64 && ones < 512 {
        true => rows.map(|rows| scatter(&rows)),
        false => {
            rows.iter_mut().for_each(transpose);
            rows
        }
    }
}

/// Reads one plane. The first `active` coefficients have one bit each; the others are tested in groups.
fn read_plane<const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    budget: &mut u32,
    active: &mut u32,
) -> [u64; W] {
    let mut plane = [0; W];
    let last = u32::try_from(R * W - 1).unwrap_or(u32::MAX);
    let mut plain = (*active).min(*budget);
    *budget -= plain;
    for word in &mut plane {
        if plain == 0 {
            break;
        }
        let width = plain.min(64);
        *word = bits.read(width);
        plain -= width;
    }
    while *budget > 0 && *active <= last {
        *budget -= 1;
        if !bits.bit() {
            break;
        }
        // The last coefficient has no bit of its own: the test implies it.
        let (zeros, found) = bits.zeros((*budget).min(last - *active));
        *budget -= zeros + u32::from(found);
        *active += zeros;
        if let Some(word) = plane.get_mut((*active / 64) as usize) {
            *word |= 1 << (*active % 64);
        }
        *active += 1;
    }
    plane
}

/// Transposes the `64 / R` square bit matrices that the lanes of `R` bits form: bit `c` of lane `l` of row
/// `r` becomes bit `r` of lane `l` of row `c`.
///
/// Plane `k` is lane `k / R` of row `k % R`, so row `c` becomes coefficient `c`.
fn transpose<const R: usize>(rows: &mut [u64; R]) {
    let mut half = R / 2;
    while half > 0 {
        // Selects the lower half of each group of `2 * half` bits.
        let mask = u64::MAX / ((1 << half) + 1);
        for rows in rows.chunks_exact_mut(2 * half) {
            let (low, high) = rows.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                let swap = ((*low >> half) ^ *high) & mask;
                *high ^= swap;
                *low ^= swap << half;
            }
        }
        half /= 2;
    }
}

/// As [`transpose`], by setting single bits in zeroed columns.
fn scatter<const R: usize>(rows: &[u64; R]) -> [u64; R] {
    let mut columns = [0; R];
    for (r, row) in rows.iter().enumerate() {
        let mut left = *row;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            if let Some(column) = columns.get_mut(at % R) {
                *column |= 1 << (at / R * R + r);
            }
            left &= left - 1;
        }
    }
    columns
}
