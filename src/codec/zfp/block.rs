//! Blocks of 4, 16, 64 or 256 values: coefficients, the inverse transform, and the common exponent.

use super::bits::BitReader;
use super::params::Params;
use super::planes;
use super::value::{Float, Int};

/// The values of a block, the fastest axis last: `W` groups of `R` values.
pub(super) type Block<T, const R: usize, const W: usize> = [[T; R]; W];

/// A type of values that a stream can have.
pub(super) trait Value: Copy + Default {
    /// Reads all bits of the next block.
    fn read<const R: usize, const W: usize>(
        bits: &mut BitReader<'_>,
        params: &Params,
    ) -> Block<Self, R, W>;
}

macro_rules! value {
    ($type:ty, $read:ident) => {
        impl Value for $type {
            fn read<const R: usize, const W: usize>(
                bits: &mut BitReader<'_>,
                params: &Params,
            ) -> Block<Self, R, W> {
                let start = bits.position();
                let block = $read(bits, params);
                let used = bits.position() - start;
                bits.skip_to_least(used, params.min_bits);
                block
            }
        }
    };
}

value!(i32, integers);
value!(i64, integers);
value!(f32, floats);
value!(f64, floats);

fn integers<I: Int, const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    params: &Params,
) -> Block<I, R, W> {
    match params.is_reversible() {
        true => exact(bits, params.max_bits),
        false => rounded(bits, params.max_bits, params.max_precision),
    }
}

fn floats<F: Float, const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    params: &Params,
) -> Block<F, R, W> {
    if !bits.bit() {
        return [[F::default(); R]; W];
    }
    // As in the library, a budget below the bits that are always present means no limit.
    let budget = params.max_bits.wrapping_sub(1);
    if !params.is_reversible() {
        let exponent = exponent::<F>(bits);
        let budget = budget.wrapping_sub(F::EXPONENT_BITS);
        let precision = precision::<R, W>(exponent, params);
        return scale(rounded(bits, budget, precision), exponent);
    }
    let budget = budget.wrapping_sub(1);
    if bits.bit() {
        let block: Block<F::Int, R, W> = exact(bits, budget);
        return block.map(|group| group.map(F::from_ordered));
    }
    let exponent = exponent::<F>(bits);
    let block = exact(bits, budget.wrapping_sub(F::EXPONENT_BITS));
    match exponent == -bias::<F>() {
        true => [[F::default(); R]; W],
        false => scale(block, exponent),
    }
}

fn bias<F: Float>() -> i32 {
    (1 << (F::EXPONENT_BITS - 1)) - 1
}

fn exponent<F: Float>(bits: &mut BitReader<'_>) -> i32 {
    bits.read_u32(F::EXPONENT_BITS).cast_signed() - bias::<F>()
}

/// Returns the number of bit planes of a block of floats.
fn precision<const R: usize, const W: usize>(exponent: i32, params: &Params) -> u32 {
    let axes = (R * W).ilog2().cast_signed() / 2;
    let planes = exponent
        .saturating_sub(params.min_exponent)
        .saturating_add(2 * axes + 2);
    params.max_precision.min(planes.max(0).unsigned_abs())
}

/// Converts integers with a common exponent to floats.
fn scale<F: Float, const R: usize, const W: usize>(
    block: Block<F::Int, R, W>,
    exponent: i32,
) -> Block<F, R, W> {
    let scale = F::power_of_two(exponent - (F::Int::WIDTH.cast_signed() - 2));
    block.map(|group| group.map(|int| scale.times(int)))
}

/// Reads integers in the modes that lose precision.
fn rounded<I: Int, const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    budget: u32,
    precision: u32,
) -> Block<I, R, W> {
    let mut block = ordered(planes::read(bits, budget, I::WIDTH, precision));
    transform(&mut block, |[mut x, mut y, mut z, mut w]: [I; 4]| {
        y = y.plus(w.half());
        w = w.minus(y.half());
        y = y.plus(w);
        w = w.minus(y.minus(w));
        z = z.plus(x);
        x = x.minus(z.minus(x));
        y = y.plus(z);
        z = z.minus(y.minus(z));
        w = w.plus(x);
        x = x.minus(w.minus(x));
        [x, y, z, w]
    });
    block
}

/// Reads integers in the reversible mode.
fn exact<I: Int, const R: usize, const W: usize>(
    bits: &mut BitReader<'_>,
    budget: u32,
) -> Block<I, R, W> {
    let precision = bits.read_u32(I::PRECISION_BITS) + 1;
    let budget = budget.wrapping_sub(I::PRECISION_BITS);
    let mut block = ordered(planes::read(bits, budget, I::WIDTH, precision));
    transform(&mut block, |[x, mut y, mut z, mut w]: [I; 4]| {
        w = w.plus(z);
        z = z.plus(y);
        w = w.plus(z);
        y = y.plus(x);
        z = z.plus(y);
        w = w.plus(z);
        [x, y, z, w]
    });
    block
}

/// Returns the coefficients as integers at their positions in the block.
fn ordered<I: Int, const R: usize, const W: usize>(
    coefficients: planes::Coefficients<R, W>,
) -> Block<I, R, W> {
    let mut block = [[I::default(); R]; W];
    let places: &[u8] = match R * W {
        4 => &[0, 1, 2, 3],
        16 => &super::order::PLACES_2,
        64 => &super::order::PLACES_3,
        _ => &super::order::PLACES_4,
    };
    let to = block.as_flattened_mut();
    for (number, place) in coefficients.as_flattened().iter().zip(places) {
        if let Some(to) = to.get_mut(usize::from(*place)) {
            *to = I::from_negabinary(*number);
        }
    }
    block
}

/// Applies a transform of four values along each axis, the slowest axis first.
fn transform<I: Int, const R: usize, const W: usize>(
    block: &mut Block<I, R, W>,
    lift: impl Fn([I; 4]) -> [I; 4],
) {
    let values = block.as_flattened_mut();
    let mut stride = values.len() / 4;
    while stride > 0 {
        for lines in values.chunks_exact_mut(4 * stride) {
            let (low, high) = lines.split_at_mut(2 * stride);
            let ((x, y), (z, w)) = (low.split_at_mut(stride), high.split_at_mut(stride));
            for (((x, y), z), w) in x.iter_mut().zip(y).zip(z).zip(w) {
                [*x, *y, *z, *w] = lift([*x, *y, *z, *w]);
            }
        }
        stride /= 4;
    }
}
