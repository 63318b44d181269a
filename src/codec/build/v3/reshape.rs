//! `reshape` (zarr-extensions): a different shape for the same sequence of elements.

use serde_json::Value;

use super::{ArrayStep, Builder};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::zarr::grid::MAX_RANK;

impl Builder<'_> {
    pub(super) fn reshape(&mut self, config: Config<'_>) -> Result<(), CodecError> {
        config.only(&["shape"])?;
        let entries = config.required("shape", config.list("shape")?)?;
        let shape = shape(&self.shape, entries).map_err(|what| config.invalid(what))?;
        if let Some(name) = self.names.last_mut() {
            *name = format!("{name}({shape:?})");
        }
        self.arrays.push(ArrayStep::Reshape);
        self.shape = shape;
        Ok(())
    }
}

/// Returns the shape of the encoded array for the shape of the decoded array.
fn shape(decoded: &[u64], entries: &[Value]) -> Result<Vec<u64>, String> {
    if entries.len() > MAX_RANK {
        return Err(format!("a shape of {} axes", entries.len()));
    }
    let overflow = || format!("the shape {decoded:?} overflows 64 bits");
    let count = product(decoded).ok_or_else(overflow)?;
    let mut shape = Vec::with_capacity(entries.len());
    let (mut inferred, mut next_axis) = (None, 0);
    // For each entry with axes, the axes of the decoded array.
    let mut named = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        shape.push(match entry {
            Value::Array(axes) => {
                let (size, range) = axes_of(decoded, axes, next_axis)?;
                next_axis = range.end.max(next_axis);
                named.push((place, range));
                size
            }
            _ if entry.as_i64() == Some(-1) && inferred.is_none() => {
                inferred = Some(place);
                1
            }
            _ => entry
                .as_u64()
                .filter(|size| *size > 0)
                .ok_or_else(|| format!("the size {entry} of axis {place}"))?,
        });
    }
    let known = product(&shape).ok_or_else(overflow)?;
    if let Some(size) = inferred.and_then(|place| shape.get_mut(place)) {
        *size = match known {
            0 => 0,
            known => count / known,
        };
    }
    if product(&shape) != Some(count) {
        return Err(format!("{decoded:?} has not as many elements as {shape:?}"));
    }
    for (place, range) in named.into_iter().filter(|(_, range)| !range.is_empty()) {
        let before = product(shape.get(..place).unwrap_or_default());
        let after = product(shape.get(place + 1..).unwrap_or_default());
        if before != product(decoded.get(..range.start).unwrap_or_default())
            || after != product(decoded.get(range.end..).unwrap_or_default())
        {
            return Err(format!(
                "axis {place} of {shape:?} is not axes {range:?} of {decoded:?}"
            ));
        }
    }
    Ok(shape)
}

/// Returns the product of the lengths of the axes of the decoded array, and the range of the axes.
fn axes_of(
    decoded: &[u64],
    axes: &[Value],
    from: usize,
) -> Result<(u64, std::ops::Range<usize>), String> {
    let (mut size, mut range) = (1_u64, from..from);
    for axis in axes {
        let wrong = || format!("axis {axis} of {decoded:?} in the shape");
        let number = axis.as_u64().and_then(|axis| usize::try_from(axis).ok());
        let number = number.ok_or_else(wrong)?;
        // Axes must increase over all entries. An axis between those of an entry would make the neighbouring sizes
        // wrong, unless its length is 1.
        let skipped = decoded.get(range.end..number).unwrap_or_default();
        if number < range.end || !range.is_empty() && skipped.iter().any(|length| *length != 1) {
            return Err(wrong());
        }
        if range.is_empty() {
            range = number..number;
        }
        range.end = number + 1;
        let factor = decoded.get(number).ok_or_else(wrong)?;
        size = size.checked_mul(*factor).ok_or_else(wrong)?;
    }
    Ok((size, range))
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(decoded: &[u64], entries: Value) -> Result<Vec<u64>, String> {
        shape(decoded, entries.as_array().unwrap())
    }

    #[test]
    fn sizes_are_numbers_products_of_axes_or_the_remainder() {
        // The example of the specification.
        let decoded = [100, 50, 64, 3];
        assert_eq!(of(&decoded, json!([[0, 1], [2], 3])), Ok(vec![5000, 64, 3]));
        assert_eq!(of(&decoded, json!([-1])), Ok(vec![960_000]));
        assert_eq!(of(&decoded, json!([[0], -1, [3]])), Ok(vec![100, 3200, 3]));
        assert_eq!(of(&[], json!([])), Ok(vec![]));
        assert_eq!(of(&[], json!([1, 1])), Ok(vec![1, 1]));
        assert_eq!(of(&[4, 6], json!([[], [0], [1]])), Ok(vec![1, 4, 6]));
        assert_eq!(of(&[2, 1, 1, 3], json!([[0, 3]])), Ok(vec![6]));
    }

    #[test]
    fn shapes_that_are_not_the_same_elements_are_refused() {
        let decoded = [2, 3, 4];
        for entries in [
            json!([5, 5]),
            json!([-1, -1]),
            json!([0, 24]),
            json!([-1, 5]),
            json!([[1], [0], [2]]),
            json!([[1, 0], [2]]),
            json!([[0, 2], [1]]),
            json!([[0, 1], [1, 2]]),
            json!([[0], 2, [1], -1]),
            json!([[3], -1]),
            json!(["a"]),
            json!([2.5, -1]),
            json!([18_446_744_073_709_551_615_u64, 2, -1]),
        ] {
            assert!(of(&decoded, entries.clone()).is_err(), "{entries}");
        }
        assert!(of(&decoded, Value::Array(vec![1.into(); 65])).is_err());
    }
}
