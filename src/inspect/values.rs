//! The first and the last value of one-dimensional arrays, such as coordinates.
//!
//! At most two small chunks of each array are read, within a time limit for all arrays. A failure
//! becomes a note of its array.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json, json};

use super::describe::{number_json, number_text};
use super::node;
use super::output::size;
use crate::array::{ArrayReader, Engine, Selection};
use crate::conventions::cf::attributes::unpacked;
use crate::conventions::cf::time::TimeUnits;
use crate::conventions::cf::{is_declared_coordinate, time_units};
use crate::node::{Number, Value};
use crate::runtime::timeout;
use crate::store::{Key, Store, map_concurrent};
use crate::units::FOREVER;
use crate::zarr::{Array, DataType};

/// The largest number of arrays whose values are read.
const MAX_ARRAYS: usize = 64;
/// The largest decoded size of a chunk that is read, in bytes.
const MAX_CHUNK_BYTES: u64 = 4 << 20;
/// The time limit for all arrays.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The first and the last value of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EndValues {
    first: Value,
    last: Value,
    size_bytes: usize,
    time_units: Option<TimeUnits>,
}

/// The values of an array, or the reason why they could not be read.
pub(super) type ReadValues = Result<EndValues, String>;

impl EndValues {
    fn texts(&self) -> [String; 2] {
        [self.first, self.last].map(|value| {
            let date = self.time_units.and_then(|units| units.date(value));
            match date {
                Some(date) => date.trim_end_matches("T00:00:00").to_owned(),
                None => number_text(value, Some(self.size_bytes)),
            }
        })
    }

    /// Returns `first to last`, or one value if both are the same.
    pub(super) fn text(&self) -> String {
        let [first, last] = self.texts();
        match first == last {
            true => first,
            false => format!("{first} to {last}"),
        }
    }

    /// Returns the numbers and, for times, the dates.
    pub(super) fn json(&self) -> Json {
        let number = |value| number_json(value, Some(self.size_bytes));
        let mut members = Map::new();
        members.insert("first".into(), number(self.first));
        members.insert("last".into(), number(self.last));
        let date = |value| self.time_units.and_then(|units| units.date(value));
        if let (Some(first), Some(last)) = (date(self.first), date(self.last)) {
            members.insert("first_date".into(), json!(first));
            members.insert("last_date".into(), json!(last));
        }
        members.into()
    }
}

/// Returns whether an array has the coordinates of a dimension: it is one-dimensional with the
/// dimension's name, or a CF attribute declares it.
pub(super) fn is_coordinate(name: &str, array: &Array) -> bool {
    let is_named = matches!(&array.dimension_names[..], [Some(own)] if own == name);
    array.rank() == 1 && (is_named || is_declared_coordinate(array))
}

/// Reads the first and the last value of arrays; `None` for an array without numbers or beyond the limit.
pub(super) async fn read_ends(
    store: &Arc<dyn Store>,
    engine: &Arc<Engine>,
    arrays: Vec<(Key, &Array)>,
) -> Vec<Option<ReadValues>> {
    let deadline = Instant::now() + TIME_LIMIT;
    let arrays = arrays.into_iter().enumerate();
    map_concurrent(arrays, |(position, (key, array))| async move {
        let number = number_of(array).filter(|_| position < MAX_ARRAYS)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let read = timeout(left, read_array(store, engine, key, array, number)).await;
        let late = || format!("the values were not read within {TIME_LIMIT:?}");
        Some(read.unwrap_or_else(|| Err(late())))
    })
    .await
}

/// Returns the number type of a one-dimensional array that is not empty.
fn number_of(array: &Array) -> Option<Number> {
    let DataType::Fixed(fixed) = array.data_type.as_ref().ok()? else {
        return None;
    };
    match (&array.shape[..], Number::of(fixed)?) {
        ([length], (number, 1)) if *length > 0 => Some(number),
        _ => None,
    }
}

async fn read_array(
    store: &Arc<dyn Store>,
    engine: &Arc<Engine>,
    key: Key,
    array: &Array,
    number: Number,
) -> ReadValues {
    let pipeline = node::pipeline(array).map_err(|reason| reason.to_string())?;
    let reason = |error| node::cause(&key, &error);
    let reader = ArrayReader::open(
        Arc::clone(store),
        key.clone(),
        array,
        Arc::new(pipeline),
        Arc::clone(engine),
        FOREVER,
        None,
    );
    let reader = Arc::new(reader.map_err(reason)?);
    let chunk_bytes = reader.read_chunk_bytes();
    if chunk_bytes > MAX_CHUNK_BYTES {
        return Err(format!(
            "the values were not read: a chunk has {}, the limit is {}",
            size(chunk_bytes),
            size(MAX_CHUNK_BYTES)
        ));
    }
    let length = number.size_bytes;
    let mut values = Vec::new();
    for offset in [0, reader.size_bytes().saturating_sub(length as u64)] {
        let data = reader.read(Selection::RowMajor, offset, length, None).await;
        let data = data.map_err(reason)?;
        let bytes = data.bytes(&[]).map_err(reason)?;
        values.push(number.read(bytes).ok_or("the values could not be read")?);
    }
    let [first, last] = values[..] else {
        return Err("the values could not be read".into());
    };
    Ok(EndValues {
        first: unpacked(array, first).unwrap_or(first),
        last: unpacked(array, last).unwrap_or(last),
        size_bytes: match unpacked(array, first) {
            Some(_) => 8,
            None => length,
        },
        time_units: time_units(array),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::engine;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn array(data_type: &str, shape: Json, chunk: u64, attributes: Json) -> Array {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape,
            "data_type": data_type, "fill_value": 7,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "dimension_names": ["time"], "attributes": attributes,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
            "chunk_key_encoding": "default"});
        Array::from_v3(document.to_string().as_bytes()).unwrap()
    }

    fn ends(array: &Array) -> Option<ReadValues> {
        let chunk = |numbers: [i32; 2]| numbers.map(i32::to_le_bytes).concat();
        let values = [("a/c/0", chunk([10, 20])), ("a/c/3", chunk([50, 59]))];
        let store = MemoryStore::new(
            values.map(|(name, bytes)| (Key::new(name.as_bytes()).unwrap(), bytes)),
        );
        let store: Arc<dyn Store> = Arc::new(store);
        let engine = Arc::new(engine(64 << 20).unwrap());
        let key = Key::new(b"a").unwrap();
        block_on(read_ends(&store, &engine, vec![(key, array)])).remove(0)
    }

    #[test]
    fn the_ends_of_an_array_are_numbers_or_dates() {
        let plain = array("int32", json!([8]), 2, json!({}));
        let read = ends(&plain).unwrap().unwrap();
        assert_eq!(read.text(), "10 to 59");
        assert_eq!(read.json(), json!({"first": 10, "last": 59}));
        // An absent chunk consists of fill values.
        let absent = array("int32", json!([6]), 2, json!({}));
        assert_eq!(ends(&absent).unwrap().unwrap().text(), "10 to 7");
        let time = array(
            "int32",
            json!([8]),
            2,
            json!({"units": "days since 2001-01-01"}),
        );
        let read = ends(&time).unwrap().unwrap();
        assert_eq!(read.text(), "2001-01-11 to 2001-03-01");
        assert_eq!(read.json()["first_date"], "2001-01-11T00:00:00");
        let packed = array(
            "int32",
            json!([1]),
            2,
            json!({"scale_factor": 0.5, "add_offset": -1}),
        );
        assert_eq!(ends(&packed).unwrap().unwrap().text(), "4");
        assert!(is_coordinate("time", &plain) && !is_coordinate("other", &plain));
        assert!(is_coordinate("other", &time));
    }

    #[test]
    fn values_that_are_not_read_are_none_or_a_note() {
        assert_eq!(ends(&array("int32", json!([0]), 2, json!({}))), None);
        assert_eq!(ends(&array("complex64", json!([2]), 2, json!({}))), None);
        let large = array("int32", json!([8 << 20]), 8 << 20, json!({}));
        let note = ends(&large).unwrap().unwrap_err();
        assert!(note.contains("a chunk has 32.0 MiB"), "{note}");
        // The chunk has another size than the metadata say.
        let torn = array("int64", json!([2]), 2, json!({}));
        assert!(ends(&torn).unwrap().is_err());
    }
}
