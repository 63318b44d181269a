//! Colours of numbers: indexes into a palette, over a range without outliers.

use super::encode::MAX_INDEX;

/// The percentiles of the numbers with the darkest and the brightest colour.
const DARK: usize = 2;
const BRIGHT: usize = 98;

/// Returns the numbers of the darkest and of the brightest colour; `None` without finite numbers. These are
/// two percentiles of the finite numbers, or their extremes if both are equal.
pub(super) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let mut finite: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    let last = finite.len().checked_sub(1)?;
    let mut at = |place: usize| *finite.select_nth_unstable_by(place, f64::total_cmp).1;
    let nearest = |percent: usize| (last * percent + 50) / 100;
    let (dark, bright) = (at(nearest(DARK)), at(nearest(BRIGHT)));
    Some(match dark < bright {
        true => (dark, bright),
        false => (at(0), at(last)),
    })
}

/// Returns the index of each number in the palette: 0 for numbers that are not finite.
pub(super) fn indexes(values: &[f64], range: Option<(f64, f64)>) -> Vec<u8> {
    let (dark, bright) = range.unwrap_or((0.0, 0.0));
    values
        .iter()
        .map(|value| index(*value, dark, bright))
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the indexes"
)]
fn index(value: f64, dark: f64, bright: f64) -> u8 {
    if !value.is_finite() {
        return 0;
    }
    let colours = f64::from(MAX_INDEX - 1);
    // Each number is halved, because a difference of large numbers overflows.
    let part = (value / 2.0 - dark / 2.0) / (bright / 2.0 - dark / 2.0);
    let part = if dark < bright {
        part.clamp(0.0, 1.0)
    } else {
        0.5
    };
    (1.0 + part * colours).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_numbers_do_not_change_the_range() {
        let mut values: Vec<f64> = (0..=100).map(f64::from).collect();
        values.push(f64::NAN);
        values.push(f64::INFINITY);
        values[100] = 1e300;
        let range = range(&values);
        assert_eq!(range, Some((2.0, 98.0)));
        let indexes = indexes(&values, range);
        assert_eq!(
            (indexes[0], indexes[2], indexes[50], indexes[98]),
            (1, 1, 128, 255)
        );
        assert_eq!(indexes[100..], [255, 0, 0]);
    }

    #[test]
    fn few_different_numbers_have_a_range() {
        let mask: Vec<f64> = (0..200).map(|n| f64::from(u8::from(n == 7))).collect();
        assert_eq!(range(&mask), Some((0.0, 1.0)));
        assert_eq!(range(&[3.0, f64::NAN]), Some((3.0, 3.0)));
        assert_eq!(indexes(&[3.0], Some((3.0, 3.0))), [128]);
        assert_eq!(range(&[f64::NAN]), None);
        assert_eq!(indexes(&[f64::NAN], None), [0]);
        let (least, most) = (f64::MIN, f64::MAX);
        assert_eq!(
            indexes(&[least, 0.0, most], Some((least, most))),
            [1, 128, 255]
        );
    }
}
