//! Times of which some are missing ("not a time", NaT): in a table, these rows have no value.
//!
//! Source: "Datetimes and Timedeltas" in the reference of NumPy.

use super::content::ContentError;
use super::group_column::NullableElements;
use super::node::ViewNode;
use super::nodes::Nodes;
use super::number::{Number, Value};
use crate::zarr::{Fixed, Scalar};

/// The maximum number of decoded rows of one column.
const MAX_ROWS: u64 = 1 << 20;

impl Nodes {
    /// Returns the elements of an array with one axis if they are times of which some are missing; `None` for
    /// other arrays, and for long ones.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn missing_times(
        &self,
        node: &ViewNode,
    ) -> Result<Option<NullableElements>, ContentError> {
        let shape = node.metadata().as_array().map(|array| &array.shape[..]);
        let (Some(&[rows]), Some(reader)) = (shape, node.reader()) else {
            return Ok(None);
        };
        let data_type = reader.chunks().data_type().clone();
        let is_time = matches!(
            data_type.scalar,
            Scalar::DateTime { .. } | Scalar::TimeDelta { .. }
        );
        let most = MAX_ROWS.min(self.engine().memory_limit_bytes() / 256);
        if !is_time || rows > most {
            return Ok(None);
        }
        let elements = match self.all_bytes(node).await {
            // A read of the rows that a broken chunk has fails, and no other one.
            Err(ContentError::Failed(error)) if error.is_lasting() => return Ok(None),
            elements => elements?,
        };
        let values = mask(&data_type, &elements)
            .map(|mask| NullableElements::new(data_type, elements, mask))
            .filter(NullableElements::has_nulls);
        Ok(values)
    }
}

/// Returns one byte for each time: 1 if it is missing, else 0.
fn mask(data_type: &Fixed, elements: &[u8]) -> Option<Vec<u8>> {
    let (number, _) = Number::of(data_type)?;
    let is_missing = |element: &[u8]| match Number::read(number, element)? {
        Value::Int(count) => Some(u8::from(count == i128::from(i64::MIN))),
        Value::Float(_) => None,
    };
    let elements = elements.chunks_exact(number.size_bytes.max(1));
    elements.map(is_missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::ByteOrder;
    use crate::zarr::data_type::{TimeBase, TimeUnit};

    #[test]
    fn the_smallest_count_in_the_byte_order_of_the_type_is_missing() {
        let times = |order| {
            let unit = TimeUnit {
                count: 1,
                base: TimeBase::Second,
            };
            Fixed {
                scalar: Scalar::DateTime { order, unit },
                size_bytes: 8,
            }
        };
        let counts = [0, i64::MIN, 128, i64::MIN + 1];
        let little: Vec<u8> = counts.into_iter().flat_map(i64::to_le_bytes).collect();
        let big: Vec<u8> = counts.into_iter().flat_map(i64::to_be_bytes).collect();
        let expected = Some(vec![0, 1, 0, 0]);
        assert_eq!(mask(&times(ByteOrder::Little), &little), expected);
        assert_eq!(mask(&times(ByteOrder::Big), &big), expected);
    }
}
