//! The metadata of an array.
//!
//! A document is an array if it is JSON with a format version and a shape. Other fields may fail separately:
//! with an unknown data type, shape and attributes remain available. The error is the reason why elements
//! cannot be read. [`Array::decodable`] returns all fields or the first error.

use serde_json::{Map, Value};

use super::chunk_key::ChunkKeys;
use super::codec_chain::CodecChain;
use super::data_type::DataType;
use super::error::{MetadataError, Unsupported};
use super::fill_value::FillValue;
use super::grid::{ChunkGrid, product};
use super::{ZarrFormat, v2, v3};

/// One array.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The version of the metadata.
    pub format: ZarrFormat,
    /// Number of elements along each axis; empty for a scalar.
    pub shape: Vec<u64>,
    /// The attributes.
    pub attributes: Result<Map<String, Value>, MetadataError>,
    /// The name of each axis, if it has one: from `dimension_names` in v3, from xarray's attribute
    /// `_ARRAY_DIMENSIONS` in v2. Empty if no axis has a name.
    pub dimension_names: Vec<Option<String>>,
    /// The data type.
    pub data_type: Result<DataType, MetadataError>,
    /// The chunk grid. For a data type of constant size, the sizes in bytes of the largest chunk and of the
    /// array also fit in a `u64`.
    pub grid: Result<ChunkGrid, MetadataError>,
    /// The chunk key encoding.
    pub chunk_keys: Result<ChunkKeys, MetadataError>,
    /// The fill value.
    pub fill_value: Result<FillValue, MetadataError>,
    /// The codec chain, which may contain unknown codecs.
    pub codecs: Result<CodecChain, MetadataError>,
    /// Unsupported extensions that must be understood: members without `must_understand: false`, and storage
    /// transformers.
    pub extensions: Vec<Unsupported>,
}

/// The fields that are needed to find and decode chunks.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the fields of `Array`")]
pub struct Decodable<'a> {
    pub data_type: &'a DataType,
    pub grid: &'a ChunkGrid,
    pub chunk_keys: &'a ChunkKeys,
    pub fill_value: &'a FillValue,
    pub codecs: &'a CodecChain,
}

impl Array {
    /// Parses a v2 array: `.zarray`, and `.zattrs` if it exists.
    ///
    /// # Errors
    /// The document is not JSON, its `zarr_format` is not 2, or it has no shape. Other errors are in fields.
    pub fn from_v2(zarray: &[u8], zattrs: Option<&[u8]>) -> Result<Self, MetadataError> {
        v2::array(zarray, zattrs)
    }

    /// Parses a v3 array: `zarr.json`.
    ///
    /// # Errors
    /// The document is not JSON, not `zarr_format` 3, no array, or has no shape. Other errors are in fields.
    pub fn from_v3(zarr_json: &[u8]) -> Result<Self, MetadataError> {
        v3::array(zarr_json)
    }

    /// Returns the fields that are needed to read elements.
    ///
    /// # Errors
    /// The first error of a field.
    pub fn decodable(&self) -> Result<Decodable<'_>, MetadataError> {
        match self.problems().next() {
            Some(problem) => Err(problem),
            None => Ok(Decodable {
                data_type: self.data_type.as_ref().map_err(Clone::clone)?,
                grid: self.grid.as_ref().map_err(Clone::clone)?,
                chunk_keys: self.chunk_keys.as_ref().map_err(Clone::clone)?,
                fill_value: self.fill_value.as_ref().map_err(Clone::clone)?,
                codecs: self.codecs.as_ref().map_err(Clone::clone)?,
            }),
        }
    }

    /// Returns the errors of all fields. An error of the data type is not repeated for the fill value.
    pub fn problems(&self) -> impl Iterator<Item = MetadataError> + '_ {
        let extensions = self.extensions.iter().cloned().map(MetadataError::from);
        let data_type = self.data_type.as_ref().err();
        let fill_value = self.fill_value.as_ref().err();
        let parts = [
            data_type,
            self.grid.as_ref().err(),
            self.chunk_keys.as_ref().err(),
            fill_value.filter(|_| data_type.is_none()),
            self.codecs.as_ref().err(),
        ];
        extensions.chain(parts.into_iter().flatten().cloned())
    }

    /// Returns whether the same bytes are the same chunks of both arrays, which may differ in shape and attributes.
    pub fn has_chunks_like(&self, other: &Self) -> bool {
        let has_same_places = match (&self.grid, &other.grid) {
            (Ok(grid), Ok(other)) => grid.has_chunks_like(other),
            (grid, other) => grid == other,
        };
        has_same_places
            && self.format == other.format
            && self.data_type == other.data_type
            && self.chunk_keys == other.chunk_keys
            && self.fill_value == other.fill_value
            && self.codecs == other.codecs
            && self.extensions == other.extensions
    }

    /// Returns the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&Value> {
        self.attributes.as_ref().ok()?.get(name)
    }

    /// Returns why `_ARRAY_DIMENSIONS` does not name the axes, if it should; v3 arrays with such `dimension_names` are
    /// invalid.
    pub fn ignored_dimension_names(&self) -> Option<String> {
        let declared = self
            .attribute(super::v2::ARRAY_DIMENSIONS)
            .filter(|names| !names.is_null())?;
        let rank = self.rank();
        let why = match declared.as_array() {
            _ if self.format == ZarrFormat::V3 => return None,
            None => "is no list".to_owned(),
            Some(names) if names.len() != rank => {
                format!("has {} names, the array has {rank} axes", names.len())
            }
            Some(names) => {
                let other = names
                    .iter()
                    .find(|name| !name.is_string() && !name.is_null())?;
                return Some(format!(
                    "the name {other} in _ARRAY_DIMENSIONS is no text: ignored"
                ));
            }
        };
        Some(format!(
            "_ARRAY_DIMENSIONS {why}: ignored, the axes have no names"
        ))
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements; `None` if it exceeds a `u64`.
    pub fn element_count(&self) -> Option<u64> {
        product(self.shape.iter().copied())
    }

    /// Returns the size of all elements in bytes; `None` if elements have no constant size, the data type is
    /// unknown, or the size exceeds a `u64`.
    pub fn size_bytes(&self) -> Option<u64> {
        let size = self.data_type.as_ref().ok()?.size_bytes()?;
        self.element_count()?.checked_mul(u64::try_from(size).ok()?)
    }

    /// Returns the size of the largest decoded chunk in bytes; `None` if elements have no constant size, or
    /// the grid or the data type is unknown.
    pub fn largest_chunk_bytes(&self) -> Option<u64> {
        let size = self.data_type.as_ref().ok()?.size_bytes()?;
        let elements = self.grid.as_ref().ok()?.largest_chunk_elements();
        elements.checked_mul(u64::try_from(size).ok()?)
    }
}

/// Returns the grid, if its sizes in bytes also fit in a `u64`.
pub(super) fn checked_grid(
    grid: Result<ChunkGrid, MetadataError>,
    data_type: &Result<DataType, MetadataError>,
) -> Result<ChunkGrid, MetadataError> {
    let grid = grid?;
    let size = data_type.as_ref().ok().and_then(DataType::size_bytes);
    let Some(size) = size.and_then(|size| u64::try_from(size).ok()) else {
        return Ok(grid);
    };
    for (name, elements) in [
        ("the array", grid.element_count()),
        ("a chunk", grid.largest_chunk_elements()),
    ] {
        if elements.checked_mul(size).is_none() {
            let product = format!("the number of bytes of {name} ({elements} x {size})");
            return Err(MetadataError::overflow("chunk grid", &product));
        }
    }
    Ok(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::codec_chain::Order;
    use crate::zarr::data_type::v2::fixed;
    use serde_json::json;

    fn v2(changes: Value) -> Result<Array, MetadataError> {
        let mut document = json!({
            "zarr_format": 2, "shape": [20, 30], "chunks": [9, 13], "dtype": "<i4", "order": "C",
            "compressor": {"id": "zlib", "level": 1}, "filters": [{"id": "delta", "dtype": "<i4"}],
            "fill_value": -1
        });
        change(&mut document, changes);
        Array::from_v2(document.to_string().as_bytes(), None)
    }

    fn v3(changes: Value) -> Result<Array, MetadataError> {
        let mut document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [20, 30], "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [9, 13]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": -1, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {"units": "K"}
        });
        change(&mut document, changes);
        Array::from_v3(document.to_string().as_bytes())
    }

    /// Sets members; those that become `"DROP"` are removed.
    fn change(document: &mut Value, changes: Value) {
        let members = document.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value.as_str() {
                Some("DROP") => _ = members.remove(name),
                _ => _ = members.insert(name.clone(), value.clone()),
            }
        }
    }

    fn problem(array: Result<Array, MetadataError>) -> String {
        let array = array.unwrap();
        let problem = array.decodable().unwrap_err();
        assert!(array.problems().any(|other| other == problem));
        assert_eq!(array.shape.len(), array.rank());
        problem.to_string()
    }

    #[test]
    fn names_of_axes_that_do_not_fit_are_ignored_with_the_reason() {
        let ignored = |names: &str| {
            let zarray = br#"{"zarr_format":2,"shape":[4,6],"chunks":[2,2],"dtype":"<f4","order":"C","fill_value":0,"compressor":null,"filters":null}"#;
            let zattrs = format!(r#"{{"_ARRAY_DIMENSIONS":{names}}}"#);
            let array = Array::from_v2(zarray, Some(zattrs.as_bytes())).unwrap();
            array.ignored_dimension_names()
        };
        for (names, expected) in [
            (r#"["y"]"#, "has 1 names, the array has 2 axes"),
            (r#"["y", 5]"#, "the name 5 in"),
            (r#""y x""#, "is no list"),
        ] {
            let why = ignored(names).unwrap();
            assert!(why.contains(expected), "{why}");
        }
        for names in [r#"["y", "x"]"#, r#"["y", null]"#, "null"] {
            assert_eq!(ignored(names), None);
        }
    }

    #[test]
    fn a_v2_array_has_all_its_parts() {
        let array = v2(json!({"order": "F", "dimension_separator": "/"})).unwrap();
        let parts = array.decodable().unwrap();
        assert_eq!(array.shape, [20, 30]);
        assert_eq!(
            parts.data_type,
            &DataType::Fixed(fixed(&"<i4".into()).unwrap())
        );
        assert_eq!(parts.grid.shape(), [3, 3]);
        assert_eq!(parts.chunk_keys.encode(&[1, 2]), "1/2");
        assert_eq!(parts.fill_value, &FillValue::Fixed(vec![0xff; 4]));
        assert_eq!(
            (array.element_count(), array.size_bytes()),
            (Some(600), Some(2400))
        );
        assert_eq!(array.largest_chunk_bytes(), Some(9 * 13 * 4));
        let names: Vec<&str> = parts
            .codecs
            .specs()
            .map(|spec| spec.name.as_str())
            .collect();
        assert_eq!(names, ["delta", "zlib"]);
        let CodecChain::V2 {
            order,
            filters,
            compressor,
        } = parts.codecs
        else {
            panic!("{parts:?}");
        };
        assert_eq!((*order, filters.len()), (Order::F, 1));
        let configuration = &compressor.as_ref().unwrap().configuration;
        assert_eq!(Value::from(configuration.clone()), json!({"level": 1}));
    }

    #[test]
    fn a_v3_array_has_all_its_parts() {
        let array = v3(json!({"dimension_names": ["y", null]})).unwrap();
        let parts = array.decodable().unwrap();
        assert_eq!(parts.chunk_keys.encode(&[1, 2]), "c/1/2");
        assert_eq!(parts.fill_value, &FillValue::Fixed(vec![0xff; 4]));
        assert_eq!(array.dimension_names, [Some("y".to_owned()), None]);
        assert_eq!(array.attribute("units"), Some(&"K".into()));
        assert_eq!(array.size_bytes(), Some(2400));
        assert_eq!(parts.codecs.specs().count(), 1);
    }

    #[test]
    fn v2_members_that_other_writers_leave_out_have_defaults() {
        for name in [
            "order",
            "filters",
            "compressor",
            "fill_value",
            "dimension_separator",
        ] {
            for missing in [json!("DROP"), json!(null)] {
                let array = v2(json!({name: missing})).unwrap();
                assert!(array.decodable().is_ok(), "{name}: {missing}");
            }
        }
        let array = v2(json!({"filters": [], "fill_value": null, "x_vendor": {"a": 1}})).unwrap();
        assert_eq!(array.decodable().unwrap().fill_value, &FillValue::Undefined);
    }

    #[test]
    fn v3_members_may_be_bare_names_and_extensions_may_be_ignorable() {
        let array = v3(json!({
            "codecs": ["bytes"], "chunk_key_encoding": "v2", "attributes": "DROP",
            "storage_transformers": [{"name": "x", "must_understand": false}],
            "vendor": {"must_understand": false, "x": 1}, "dimension_names": null
        }));
        let array = array.unwrap();
        assert_eq!(array.decodable().unwrap().chunk_keys.encode(&[1, 2]), "1.2");
        assert_eq!(array.attributes, Ok(Map::new()));
    }

    #[test]
    fn unsupported_fields_are_named_and_the_others_are_read() {
        let cases = [
            (
                v2(json!({"dtype": "<q4"})),
                "data type <q4 is not supported",
            ),
            (
                v2(json!({"dtype": "|O"})),
                "data type |O without an object codec is not supported",
            ),
            (
                v2(json!({"dtype": "|O", "filters": [{"id": "pickle"}]})),
                "object codec pickle is not supported",
            ),
            (
                v3(json!({"data_type": "foo"})),
                "data type foo is not supported",
            ),
            (
                v3(json!({"chunk_grid": {"name": "bar"}})),
                "chunk grid bar is not supported",
            ),
            (
                v3(json!({"chunk_key_encoding": "fan"})),
                "chunk key encoding fan is not supported",
            ),
            (
                v3(json!({"vendor": {"must_understand": true}})),
                "must_understand extension vendor is not supported",
            ),
            (
                v3(json!({"vendor": 1})),
                "must_understand extension vendor is not supported",
            ),
            (
                v3(json!({"storage_transformers": ["x"]})),
                "storage transformer x is not supported",
            ),
        ];
        for (array, expected) in cases {
            let found = array.clone().unwrap();
            assert_eq!(found.shape, [20, 30]);
            assert!(found.attributes.is_ok() && found.codecs.is_ok());
            assert_eq!(found.problems().count(), 1);
            assert_eq!(problem(array), expected);
        }
        let unknown = v3(json!({"codecs": [{"name": "magic"}]})).unwrap();
        assert!(
            unknown.decodable().is_ok(),
            "whether a codec is known is not decided here"
        );
    }

    #[test]
    fn fields_that_violate_the_specification_fail_alone() {
        let cases = [
            (
                v2(json!({"chunks": [9]})),
                "chunk grid: 1 axes for an array of 2 axes",
            ),
            (
                v2(json!({"chunks": [9, 0]})),
                "chunk grid: the chunk shape is 0 along axis 1",
            ),
            (
                v2(json!({"chunks": "DROP"})),
                "chunks: expected a list, not null",
            ),
            (
                v2(json!({"dtype": "DROP"})),
                "dtype: expected a string or a list, not null",
            ),
            (
                v2(json!({"order": "K"})),
                "order: \"K\" instead of \"C\" or \"F\"",
            ),
            (
                v2(json!({"filters": {}})),
                "filters: expected a list, not an object",
            ),
            (
                v2(json!({"filters": [{}]})),
                "filters: no id that is a string",
            ),
            (
                v2(json!({"compressor": "zlib"})),
                "compressor: expected an object or null, not a string",
            ),
            (
                v2(json!({"dimension_separator": "-"})),
                "dimension_separator: a separator \"-\" instead of \".\" or \"/\"",
            ),
            (
                v2(json!({"fill_value": 1.5})),
                "fill_value: 1.5 is not a value of <i4",
            ),
            (v3(json!({"fill_value": "DROP"})), "fill_value: missing"),
            (v3(json!({"codecs": []})), "codecs: no array-to-bytes codec"),
            (
                v3(json!({"codecs": [1]})),
                "codecs: expected a name or an object, not a number",
            ),
            (v3(json!({"codecs": "DROP"})), "codecs: missing"),
            (v3(json!({"chunk_grid": "DROP"})), "chunk_grid: missing"),
            (
                v3(json!({"chunk_key_encoding": "DROP"})),
                "chunk_key_encoding: missing",
            ),
            (v3(json!({"data_type": "DROP"})), "data_type: missing"),
        ];
        for (array, expected) in cases {
            assert_eq!(problem(array), expected);
        }
        let broken = v3(json!({"attributes": [1]})).unwrap();
        assert!(broken.attributes.is_err() && broken.decodable().is_ok());
    }

    #[test]
    fn documents_of_other_nodes_are_rejected() {
        let cases = [
            (
                v2(json!({"zarr_format": 3})),
                "zarr_format 3 in a v2 document is not supported",
            ),
            (v2(json!({"zarr_format": "DROP"})), "zarr_format: missing"),
            (
                v2(json!({"shape": "DROP"})),
                "shape: expected a list, not null",
            ),
            (
                v2(json!({"shape": [1.5, 2]})),
                "shape: 1.5 is not a size from 0 to 2^64 - 1",
            ),
            (
                v2(json!({"shape": [-1, 2]})),
                "shape: -1 is not a size from 0 to 2^64 - 1",
            ),
            (
                v3(json!({"zarr_format": 4})),
                "zarr_format 4 in zarr.json is not supported",
            ),
            (v3(json!({"zarr_format": "DROP"})), "zarr_format: missing"),
            (
                v3(json!({"node_type": "table"})),
                "node_type: \"table\" instead of \"array\" or \"group\"",
            ),
            (
                v3(json!({"node_type": "DROP"})),
                "node_type: null instead of \"array\" or \"group\"",
            ),
            (
                v3(json!({"node_type": "group", "shape": "DROP"})),
                "node_type: a group, not an array",
            ),
            (v3(json!({"shape": "DROP"})), "shape: missing"),
            (
                v3(json!({"dimension_names": ["x"]})),
                "dimension_names: 1 names for an array of 2 axes",
            ),
            (
                v3(json!({"dimension_names": [1, 2]})),
                "dimension_names: expected a string or null, not a number",
            ),
            (
                Array::from_v2(b"[]", None),
                ".zarray: expected an object, not a list",
            ),
            (
                Array::from_v3(b"1"),
                "zarr.json: expected an object, not a number",
            ),
        ];
        for (array, expected) in cases {
            assert_eq!(array.unwrap_err().to_string(), expected);
        }
        let huge = Array::from_v2(
            br#"{"zarr_format": 2, "shape": [18446744073709551616]}"#,
            None,
        );
        assert!(
            huge.unwrap_err()
                .to_string()
                .contains("18446744073709551616 is not a size")
        );
    }

    #[test]
    fn sizes_that_overflow_a_u64_are_named() {
        let big = json!([1u64 << 32, 1u64 << 31]);
        let array = v2(json!({"shape": big, "chunks": [1, 1]}));
        let expected = "chunk grid: the number of bytes of the array (9223372036854775808 x 4) is more than 2^64 - 1";
        assert_eq!(array.as_ref().unwrap().size_bytes(), None);
        assert_eq!(problem(array), expected);
        let array = v2(json!({"chunks": big}));
        let expected = "chunk grid: the number of bytes of a chunk (9223372036854775808 x 4) is more than 2^64 - 1";
        assert_eq!(problem(array), expected);
        let array = v3(json!({"shape": [u64::MAX, 2]}));
        assert!(problem(array).contains("the number of elements (18446744073709551615 x 2)"));
        let ones = vec![1; 1000];
        let array = v2(json!({"shape": ones, "chunks": ones}));
        assert_eq!(
            problem(array),
            "an array of 1000 axes (the limit is 64) is not supported"
        );
    }

    #[test]
    fn an_array_larger_than_any_file_is_still_an_array() {
        let shape = json!([1u64 << 31, 1u64 << 30]);
        let array = v2(json!({"shape": shape, "chunks": [1u64 << 20, 1u64 << 20]})).unwrap();
        assert_eq!(array.size_bytes(), Some(1 << 63));
        assert_eq!(array.largest_chunk_bytes(), Some(1 << 42));
        assert!(array.decodable().is_ok());
    }

    #[test]
    fn scalars_and_arrays_without_elements_work() {
        let scalar = v2(json!({"shape": [], "chunks": []})).unwrap();
        assert_eq!(
            (scalar.element_count(), scalar.size_bytes()),
            (Some(1), Some(4))
        );
        let parts = scalar.decodable().unwrap();
        assert_eq!(
            (parts.grid.chunk_count(), parts.chunk_keys.encode(&[])),
            (1, "0".to_owned())
        );
        let empty = v2(json!({"shape": [0, 5]})).unwrap();
        assert_eq!(empty.size_bytes(), Some(0));
        assert_eq!(empty.decodable().unwrap().grid.chunk_count(), 0);
    }

    #[test]
    fn attributes_keep_their_numbers_and_xarray_names_the_axes() {
        let zarray =
            br#"{"zarr_format":2,"shape":[2,2],"chunks":[2,2],"dtype":"<f4","fill_value":NaN}"#;
        let zattrs = br#"{"_ARRAY_DIMENSIONS":["y","x"],"big":9007199254740993,"huge":1e400,"_FillValue":NaN}"#;
        let array = Array::from_v2(zarray, Some(zattrs)).unwrap();
        assert_eq!(
            array.dimension_names,
            [Some("y".to_owned()), Some("x".to_owned())]
        );
        assert_eq!(
            array.attribute("big").map(Value::to_string).as_deref(),
            Some("9007199254740993")
        );
        assert_eq!(
            array
                .attribute("huge")
                .map(|huge| huge.to_string().replace('+', ""))
                .as_deref(),
            Some("1e400")
        );
        assert_eq!(array.attribute("_FillValue"), Some(&"NaN".into()));
        for other in [
            &br#"{"_ARRAY_DIMENSIONS":["y"]}"#[..],
            br#"{"_ARRAY_DIMENSIONS":"yx"}"#,
        ] {
            let array = Array::from_v2(zarray, Some(other)).unwrap();
            assert!(array.dimension_names.is_empty());
        }
        let broken = Array::from_v2(zarray, Some(b"{")).unwrap();
        assert!(broken.attributes.is_err() && broken.decodable().is_ok());
    }
}
