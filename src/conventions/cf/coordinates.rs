//! The variables that belong to a variable: its coordinates (CF 1.13, 5) and their boundaries (7.1 and 7.4).

use serde_json::{Map, Value as Json};

use super::names::{BOUNDS, CLIMATOLOGY, COORDINATES};
use crate::zarr::Array;

/// Returns the names of the coordinates of an array: its dimensions, and the auxiliary coordinates that it names.
pub(crate) fn names_of(array: &Array) -> Vec<&str> {
    let dimensions = array.dimension_names.iter().flatten().map(String::as_str);
    let auxiliary = array.attribute(COORDINATES).map(words);
    dimensions.chain(auxiliary.into_iter().flatten()).collect()
}

/// Returns the names of the coordinates that a group names for all its arrays, as xarray writes them: each applies
/// to the arrays that have its dimensions.
pub(crate) fn names_of_group(attributes: &Map<String, Json>) -> Vec<&str> {
    let named = attributes.get(COORDINATES).map(words);
    named.into_iter().flatten().collect()
}

/// Returns the names of the boundaries of a coordinate.
pub(crate) fn boundaries_of(coordinate: &Array) -> Vec<&str> {
    let named = [BOUNDS, CLIMATOLOGY].into_iter();
    let named = named.filter_map(|name| coordinate.attribute(name).map(words));
    named.flatten().collect()
}

fn words(value: &Json) -> impl Iterator<Item = &str> {
    value.as_str().unwrap_or_default().split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_words_of_attributes_and_dimensions() {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [2, 3], "data_type": "int8",
            "fill_value": 0, "codecs": ["bytes"], "dimension_names": ["y", null],
            "attributes": {"coordinates": " lat  lon", "bounds": "y_bounds", "climatology": 3},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "chunk_key_encoding": "default"});
        let array = Array::from_v3(document.to_string().as_bytes()).unwrap();
        assert_eq!(names_of(&array), ["y", "lat", "lon"]);
        assert_eq!(boundaries_of(&array), ["y_bounds"]);
        let attributes = json!({"coordinates": "height"});
        assert_eq!(names_of_group(attributes.as_object().unwrap()), ["height"]);
        assert!(names_of_group(&Map::new()).is_empty());
    }
}
