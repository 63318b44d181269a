//! The number and the sizes of arrays and groups.

use serde_json::{Map, Value, json};

use super::output::{count, size};
use super::stored::{StoredChunkCounts, ratio};
use crate::zarr::Array;

/// The totals of several nodes.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) groups: u64,
    pub(super) arrays: u64,
    /// The decoded size of all arrays in bytes; `None` if that of any array is unknown.
    size_bytes: Option<u64>,
    /// The stored size of all chunks in bytes; `None` if that of any array was not counted.
    stored_bytes: Option<u64>,
    /// The decoded size of the stored chunks in bytes.
    stored_decoded_bytes: Option<u64>,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            groups: 0,
            arrays: 0,
            size_bytes: Some(0),
            stored_bytes: Some(0),
            stored_decoded_bytes: Some(0),
        }
    }
}

impl Totals {
    /// Adds an array.
    pub(super) fn add(&mut self, array: &Array, stored: Option<&StoredChunkCounts>) {
        let sum = |total: &mut Option<u64>, more: Option<u64>| {
            *total = total
                .zip(more)
                .and_then(|(total, more)| total.checked_add(more));
        };
        let stored = stored.filter(|stored| stored.is_complete);
        self.arrays += 1;
        sum(&mut self.size_bytes, array.size_bytes());
        sum(&mut self.stored_bytes, stored.map(|stored| stored.bytes));
        let decoded = stored.and_then(|stored| stored.decoded_bytes(array));
        sum(&mut self.stored_decoded_bytes, decoded);
    }

    fn ratio(&self) -> Option<f64> {
        ratio(self.stored_decoded_bytes?, self.stored_bytes?)
    }

    /// Returns a line like `2 groups, 5 arrays, 3.7 MiB decoded, 1.0 MiB stored (ratio 3.70)`.
    pub(super) fn line(&self) -> String {
        let mut line = match self.groups {
            0 => count(self.arrays, "array"),
            groups => format!(
                "{}, {}",
                count(groups, "group"),
                count(self.arrays, "array")
            ),
        };
        if self.arrays == 0 {
            return line;
        }
        if let Some(bytes) = self.size_bytes {
            line.push_str(&format!(", {} decoded", size(bytes)));
        }
        if let Some(bytes) = self.stored_bytes {
            line.push_str(&format!(", {} stored", size(bytes)));
        }
        if let Some(ratio) = self.ratio() {
            line.push_str(&format!(" (ratio {ratio:.2})"));
        }
        line
    }

    /// Returns the totals as JSON; unknown sizes are left out.
    pub(super) fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("groups".into(), self.groups.into());
        members.insert("arrays".into(), self.arrays.into());
        let sizes = [
            ("size_bytes", self.size_bytes.map(Value::from)),
            ("stored_bytes", self.stored_bytes.map(Value::from)),
            ("ratio", self.ratio().map(|ratio| json!(ratio))),
        ];
        for (name, value) in sizes {
            if let Some(value) = value {
                members.insert(name.into(), value);
            }
        }
        members.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(data_type: &str) -> Array {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [1024],
            "data_type": data_type, "fill_value": 0, "codecs": ["bytes"],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [512]}},
            "chunk_key_encoding": "default"});
        Array::from_v3(document.to_string().as_bytes()).unwrap()
    }

    fn stored(chunks: u64, bytes: u64, is_complete: bool) -> StoredChunkCounts {
        StoredChunkCounts {
            chunks,
            bytes,
            is_complete,
            ..StoredChunkCounts::default()
        }
    }

    #[test]
    fn totals_have_the_sizes_that_are_known_of_all_arrays() {
        let mut totals = Totals::default();
        assert_eq!(totals.line(), "0 arrays");
        totals.add(&array("float64"), Some(&stored(2, 4096, true)));
        totals.groups = 2;
        totals.add(&array("float64"), Some(&stored(1, 1024, true)));
        let line = "2 groups, 2 arrays, 16.0 KiB decoded, 5.0 KiB stored (ratio 2.40)";
        assert_eq!(totals.line(), line);
        assert_eq!(
            totals.json(),
            json!({"groups": 2, "arrays": 2, "size_bytes": 16384, "stored_bytes": 5120, "ratio": 2.4})
        );
        totals.add(&array("float64"), Some(&stored(1, 1024, false)));
        assert_eq!(totals.line(), "2 groups, 3 arrays, 24.0 KiB decoded");
        totals.add(&array("unknown"), None);
        assert_eq!(totals.json(), json!({"groups": 2, "arrays": 4}));
    }
}
