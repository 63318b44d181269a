//! Elements of variable length, and their memory budget.

use serde_json::Value;

use super::error::DecodeError;

/// One element of a variable-length array.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    /// A string.
    Text(String),
    /// A byte string.
    Bytes(Vec<u8>),
    /// The items of a one-dimensional array, as stored.
    Array(Vec<u8>),
    /// Any other value of `json2` and `msgpack2`. Numbers that are not finite are the strings `NaN`, `Infinity`
    /// and `-Infinity`.
    Json(Box<Value>),
}

impl From<Value> for Element {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            value => Self::Json(Box::new(value)),
        }
    }
}

impl Element {
    /// Returns an element of a chunk with numbers that are not finite: a string that may be one of them is no text.
    pub(super) fn beside_constants(value: Value) -> Self {
        match value.as_str() {
            Some("NaN" | "Infinity" | "-Infinity") => Self::Json(Box::new(value)),
            _ => Self::from(value),
        }
    }
}

/// A memory limit for elements.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// # Errors
    /// The limit is exceeded.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.limit {
            return Err(DecodeError::Memory {
                needed: self.used,
                limit: self.limit as u64,
            });
        }
        Ok(())
    }

    /// # Errors
    /// Even `count` empty elements exceed the limit.
    pub(super) fn check(&self, count: u64) -> Result<(), DecodeError> {
        let needed = usize::try_from(count).unwrap_or(usize::MAX);
        let needed = needed.saturating_mul(size_of::<Element>());
        match needed > self.left() {
            true => Err(DecodeError::Memory {
                needed,
                limit: self.limit as u64,
            }),
            false => Ok(()),
        }
    }

    /// Returns an empty list with capacity for `count` elements.
    ///
    /// # Errors
    /// The limit is exceeded, or the system is out of memory.
    pub(super) fn list(&mut self, count: u64) -> Result<Vec<Element>, DecodeError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let needed = count.saturating_mul(size_of::<Element>());
        self.take(needed)?;
        let mut list = Vec::new();
        list.try_reserve_exact(count)
            .map_err(|_| DecodeError::Memory { needed, limit: 0 })?;
        Ok(list)
    }
}

/// Memory of a parsed JSON value per node of its text, in bytes.
pub(super) const NODE_BYTES: usize = size_of::<Value>() + 2 * size_of::<String>();

/// Returns the elements of an array that `json2` and `msgpack2` store as nested lists, in C order.
///
/// Both lists end with a numpy type and the shape; a zero-dimensional array has its element first.
pub(super) fn flatten(mut items: Vec<Value>, expected: u64) -> Result<Vec<Value>, DecodeError> {
    let shape = items.pop().and_then(|shape| {
        let axes = shape.as_array()?.iter().map(Value::as_u64);
        axes.collect::<Option<Vec<u64>>>()
    });
    let shape = shape.ok_or_else(|| DecodeError::corrupt("no shape at the end"))?;
    if !matches!(items.pop(), Some(Value::String(_))) {
        return Err(DecodeError::corrupt("no type before the shape"));
    }
    let count = shape.iter().try_fold(1u64, |n, axis| n.checked_mul(*axis));
    if count != Some(expected) {
        return Err(DecodeError::corrupt(format!(
            "shape {shape:?}, expected {expected} elements"
        )));
    }
    for _ in shape.iter().skip(1) {
        let mut inner = Vec::new();
        for item in items {
            match item {
                Value::Array(list) => inner.extend(list),
                other => {
                    return Err(DecodeError::corrupt(format!(
                        "{other} where a list was expected"
                    )));
                }
            }
        }
        items = inner;
    }
    if items.len() as u64 != expected {
        let found = items.len();
        return Err(DecodeError::corrupt(format!(
            "{found} elements, expected {expected}"
        )));
    }
    Ok(items)
}
