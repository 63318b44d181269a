//! Rows without a value in a table: times that are "not a time" (NaT), and numbers that mark missing elements.
//!
//! Source: "Datetimes and Timedeltas" in the reference of NumPy.

use crate::conventions::column::NullableElements;
use crate::node::{ContentError, Number, Value, ViewNode};
use crate::view::file::nodes::Nodes;
use crate::zarr::{Fixed, Scalar};

/// The maximum number of decoded rows of one column.
const MAX_ROWS: u64 = 1 << 20;

/// The elements of a column if some rows have no value; or why this is not known.
pub(in crate::view) type NullRows = Result<Option<NullableElements>, String>;

impl Nodes {
    /// Returns the elements of an array with one axis if some of them are `missing` or no times; `None` for other
    /// arrays, and for long ones of times.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn null_rows(
        &self,
        node: &ViewNode,
        missing: &[Value],
    ) -> Result<NullRows, ContentError> {
        let shape = node.metadata().as_array().map(|array| &array.shape[..]);
        let (Some(&[rows]), Some(reader)) = (shape, node.reader()) else {
            return Ok(Ok(None));
        };
        let data_type = reader.chunks().data_type().clone();
        let is_time = is_time(&data_type);
        let unknown = |why: String| match is_time {
            true => Ok(Ok(None)),
            false => Ok(Err(why)),
        };
        let most = MAX_ROWS.min(self.engine().memory_limit_bytes() / 256);
        if !is_time && missing.is_empty() {
            return Ok(Ok(None));
        }
        if rows > most {
            return unknown(format!("more than {most} rows"));
        }
        let elements = match self.all_bytes(node).await {
            // A read of the rows that a broken chunk has fails, and no other one.
            Err(ContentError::Failed(error)) if error.is_lasting() => {
                return unknown(error.to_string());
            }
            elements => elements?,
        };
        let values = mask(&data_type, &elements, missing)
            .map(|mask| NullableElements::new(data_type, elements, mask))
            .filter(NullableElements::has_nulls);
        Ok(Ok(values))
    }
}

fn is_time(data_type: &Fixed) -> bool {
    matches!(
        data_type.scalar,
        Scalar::DateTime { .. } | Scalar::TimeDelta { .. }
    )
}

/// Returns one byte for each element: 1 if it is missing, else 0.
fn mask(data_type: &Fixed, elements: &[u8], missing: &[Value]) -> Option<Vec<u8>> {
    let (number, _) = Number::of(data_type)?;
    let nat = is_time(data_type).then_some(Value::Int(i64::MIN.into()));
    let is_missing = |element: &[u8]| {
        let value = Number::read(number, element)?;
        Some(u8::from(nat == Some(value) || missing.contains(&value)))
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
        assert_eq!(mask(&times(ByteOrder::Little), &little, &[]), expected);
        assert_eq!(mask(&times(ByteOrder::Big), &big, &[]), expected);
    }

    #[test]
    fn numbers_that_mark_missing_elements_have_no_value() {
        let shorts = Fixed {
            scalar: Scalar::Int(ByteOrder::Big),
            size_bytes: 2,
        };
        let numbers = [5_i16, -9999, 0, -9999].map(i16::to_be_bytes).concat();
        let missing = [Value::Int(-9999), Value::Int(0)];
        assert_eq!(mask(&shorts, &numbers, &missing), Some(vec![0, 1, 1, 1]));
        let floats = Fixed {
            scalar: Scalar::Float(ByteOrder::Little),
            size_bytes: 4,
        };
        let numbers = [0.1_f32, -0.0, f32::NAN].map(f32::to_le_bytes).concat();
        assert_eq!(
            mask(&floats, &numbers, &[Value::Float(0.0)]),
            Some(vec![0, 1, 0])
        );
    }
}
