//! The document of N5: `attributes.json` (N5 specification 4.0.0, "File-system specification").
//!
//! A directory is a dataset if its document has `dimensions`, `blockSize` and `dataType`; any other directory
//! of an N5 hierarchy is a group. N5 lists the fastest axis first: `dimensions`, `blockSize` and the indices
//! of chunk keys are reversed here, so that elements are in C order. All members that are not reserved are
//! attributes.

use serde_json::{Map, Value};

use super::ZarrFormat;
use super::array::{Array, checked_grid};
use super::chunk_key::{ChunkKeys, KeyEncoding, Separator};
use super::codec_chain::{CodecChain, CodecSpec};
use super::data_type::{self, DataType};
use super::document::{has_members, object, parse};
use super::error::{MetadataError, excerpt, json_type, printable};
use super::fill_value::FillValue;
use super::grid::{ChunkGrid, sizes};
use super::node::{ATTRIBUTES_JSON, Group, Node};
use super::v2::dimension_names;

/// The member of the root's document that declares the version of N5.
const VERSION: &str = "n5";
const DIMENSIONS: &str = "dimensions";
const BLOCK_SIZE: &str = "blockSize";
const DATA_TYPE: &str = "dataType";
const COMPRESSION: &str = "compression";
/// The name of the compression in N5 1.x, without parameters.
const COMPRESSION_TYPE: &str = "compressionType";

/// The attribute with the names of the axes.
const AXES: &str = "axes";

/// The members of a dataset that are not attributes.
const RESERVED: [&str; 6] = [
    VERSION,
    DIMENSIONS,
    BLOCK_SIZE,
    DATA_TYPE,
    COMPRESSION,
    COMPRESSION_TYPE,
];

/// The data types of elements of constant size, and their names in v2: values are big-endian.
const DATA_TYPES: [(&str, &str); 10] = [
    ("uint8", "|u1"),
    ("uint16", ">u2"),
    ("uint32", ">u4"),
    ("uint64", ">u8"),
    ("int8", "|i1"),
    ("int16", ">i2"),
    ("int32", ">i4"),
    ("int64", ">i8"),
    ("float32", ">f4"),
    ("float64", ">f8"),
];

/// The chunk keys of all datasets.
const KEYS: ChunkKeys = ChunkKeys {
    encoding: KeyEncoding::N5,
    separator: Separator::Slash,
};

/// Members of the document of a group whose datasets are the levels of one image: those of n5-viewer and
/// Paintera, and that of BigDataViewer.
const MULTISCALE: [&str; 3] = ["pixelResolution", "multiScale", "downsamplingFactors"];

/// Returns whether a document makes its directory an N5 hierarchy: it has the version of N5, or is the
/// document of a dataset or of a multiscale image. A damaged document with these members counts too, since it
/// proves no other format.
pub fn is_n5_root(attributes_json: &[u8]) -> bool {
    let members = [VERSION, DIMENSIONS, BLOCK_SIZE, DATA_TYPE];
    let [is_versioned, dataset @ ..] = has_members(attributes_json, members);
    let is_multiscale = || has_members(attributes_json, MULTISCALE).contains(&true);
    is_versioned || dataset == [true; 3] || is_multiscale()
}

/// Returns whether a parsed document is that of a dataset.
pub fn is_n5_dataset(document: &Value) -> bool {
    document.as_object().is_some_and(is_dataset)
}

fn is_dataset(document: &Map<String, Value>) -> bool {
    let members = [DIMENSIONS, BLOCK_SIZE, DATA_TYPE];
    members.iter().all(|name| document.contains_key(*name))
}

/// Parses `attributes.json` of a directory of an N5 hierarchy.
pub(super) fn node(attributes_json: &[u8]) -> Result<Node, MetadataError> {
    let document = object(ATTRIBUTES_JSON, parse(attributes_json)?)?;
    match is_dataset(&document) {
        true => array(document).map(|array| Node::Array(Box::new(array))),
        false => Ok(Node::Group(group(document))),
    }
}

fn group(mut document: Map<String, Value>) -> Group {
    document.shift_remove(VERSION);
    Group {
        format: ZarrFormat::N5,
        attributes: Ok(document),
        consolidated: None,
        extensions: Vec::new(),
    }
}

fn array(mut document: Map<String, Value>) -> Result<Array, MetadataError> {
    let member = |name: &str| document.get(name).unwrap_or(&Value::Null);
    let shape = reversed(DIMENSIONS, member(DIMENSIONS))?;
    let grid = reversed(BLOCK_SIZE, member(BLOCK_SIZE));
    let grid = grid.and_then(|chunk_shape| ChunkGrid::regular(&shape, &chunk_shape));
    let data_type = data_type(member(DATA_TYPE));
    let fill_value = data_type.as_ref().map_err(Clone::clone);
    let fill_value = fill_value.map(|data_type| match data_type.size_bytes() {
        Some(size_bytes) => FillValue::Fixed(vec![0; size_bytes]),
        None => FillValue::Undefined,
    });
    let codecs = compression(&document).map(|compression| CodecChain::N5 { compression });
    document.retain(|name, _| !RESERVED.contains(&name.as_str()));
    let attributes = Ok(document);
    Ok(Array {
        format: ZarrFormat::N5,
        dimension_names: names_of_axes(&attributes, shape.len()),
        attributes,
        grid: checked_grid(grid, &data_type),
        chunk_keys: Ok(KEYS),
        data_type,
        fill_value,
        codecs,
        extensions: Vec::new(),
        shape,
    })
}

/// Returns the names of the axes: those of TensorStore and Paintera (`axes`, the fastest first), else those of xarray.
fn names_of_axes(
    attributes: &Result<Map<String, Value>, MetadataError>,
    rank: usize,
) -> Vec<Option<String>> {
    let own = attributes.as_ref().ok().and_then(|map| map.get(AXES));
    let Some(axes) = own
        .and_then(Value::as_array)
        .filter(|axes| axes.len() == rank)
    else {
        return dimension_names(attributes, rank);
    };
    // TensorStore writes an empty text for an axis without a name.
    let name = |axis: &Value| Some(axis.as_str()?.to_owned()).filter(|name| !name.is_empty());
    let names: Vec<Option<String>> = axes.iter().rev().map(name).collect();
    match axes.iter().all(Value::is_string) && names.iter().any(Option::is_some) {
        true => names,
        false => dimension_names(attributes, rank),
    }
}

/// Returns the sizes along each axis, the slowest first.
fn reversed(field: &str, value: &Value) -> Result<Vec<u64>, MetadataError> {
    let mut sizes = sizes(field, value)?;
    sizes.reverse();
    Ok(sizes)
}

fn data_type(value: &Value) -> Result<DataType, MetadataError> {
    let Some(name) = value.as_str() else {
        let what = format!("expected a string, not {}", json_type(value));
        return Err(MetadataError::invalid(DATA_TYPE, what));
    };
    match DATA_TYPES.iter().find(|(own, _)| *own == name) {
        Some((_, v2)) => data_type::v2::parse(&Value::from(*v2), []),
        None if name == "object" => Err(MetadataError::unsupported(
            "data type object of N5, whose elements are serialized objects of Java,",
        )),
        None => {
            let what = format!("data type {} of N5", printable(name));
            Err(MetadataError::unsupported(what))
        }
    }
}

/// Returns the compression, by its name in N5; `None` for `raw`.
fn compression(document: &Map<String, Value>) -> Result<Option<CodecSpec>, MetadataError> {
    let present = |name: &str| document.get(name).filter(|value| !value.is_null());
    let (name, configuration) = match (present(COMPRESSION), present(COMPRESSION_TYPE)) {
        (Some(Value::Object(compression)), _) => {
            let mut configuration = compression.clone();
            match configuration.shift_remove("type") {
                Some(Value::String(name)) => (name, configuration),
                _ => {
                    let what = "no type that is a string";
                    return Err(MetadataError::invalid(COMPRESSION, what));
                }
            }
        }
        (Some(other), _) => {
            let what = format!("expected an object, not {}", json_type(other));
            return Err(MetadataError::invalid(COMPRESSION, what));
        }
        (None, Some(Value::String(name))) => (name.clone(), Map::new()),
        (None, Some(other)) => {
            let what = format!("{} instead of a name", excerpt(other));
            return Err(MetadataError::invalid(COMPRESSION_TYPE, what));
        }
        (None, None) => return Err(MetadataError::invalid(COMPRESSION, "missing")),
    };
    Ok((name != "raw").then_some(CodecSpec {
        name,
        configuration,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::chunk_names::ChunkEntry;
    use serde_json::json;

    fn dataset(changes: Value) -> Value {
        let mut document = json!({
            "dimensions": [30, 20], "blockSize": [13, 9], "dataType": "int16",
            "compression": {"type": "gzip", "level": -1, "useZlib": true}, "units": "K",
        });
        let members = document.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value.as_str() {
                Some("DROP") => _ = members.shift_remove(name),
                _ => _ = members.insert(name.clone(), value.clone()),
            }
        }
        document
    }

    fn array(changes: Value) -> Array {
        match node(dataset(changes).to_string().as_bytes()).unwrap() {
            Node::Array(array) => *array,
            Node::Group(group) => panic!("{group:?}"),
        }
    }

    #[test]
    fn a_dataset_is_an_array_with_reversed_axes() {
        let array = array(json!({"_ARRAY_DIMENSIONS": ["y", "x"]}));
        let parts = array.decodable().unwrap();
        assert_eq!(
            (array.format, &array.shape[..]),
            (ZarrFormat::N5, &[20, 30][..])
        );
        assert_eq!(parts.grid.regular_chunk_shape(), Some(vec![9, 13]));
        assert_eq!(parts.chunk_keys.encode(&[1, 2]), "2/1");
        assert_eq!(parts.data_type.to_string(), ">i2");
        assert_eq!(parts.fill_value, &FillValue::Fixed(vec![0; 2]));
        let CodecChain::N5 { compression } = parts.codecs else {
            panic!("{parts:?}");
        };
        let compression = compression.as_ref().unwrap();
        assert_eq!(compression.name, "gzip");
        assert_eq!(
            Value::from(compression.configuration.clone()),
            json!({"level": -1, "useZlib": true})
        );
        let names: Vec<&String> = array.attributes.as_ref().unwrap().keys().collect();
        assert_eq!(names, ["units", "_ARRAY_DIMENSIONS"]);
        assert_eq!(array.dimension_names, [Some("y".into()), Some("x".into())]);
    }

    #[test]
    fn axes_are_named_by_their_attribute_the_fastest_first() {
        let names = |axes: Value| array(json!({"axes": axes})).dimension_names;
        let named = |names: [Option<&str>; 2]| names.map(|name| name.map(str::to_owned)).to_vec();
        assert_eq!(names(json!(["x", "y"])), named([Some("y"), Some("x")]));
        assert_eq!(names(json!(["", "y"])), named([Some("y"), None]));
        for other in [json!(["x"]), json!(["", ""]), json!([1, 2]), json!("xy")] {
            assert!(names(other).is_empty());
        }
    }

    #[test]
    fn all_data_types_of_constant_size_are_big_endian() {
        for (name, v2) in DATA_TYPES {
            let found = array(json!({"dataType": name})).data_type.unwrap();
            assert_eq!(found.to_string(), v2);
        }
    }

    #[test]
    fn compression_is_an_object_or_a_name_of_n5_1() {
        let of = |changes| compression(dataset(changes).as_object().unwrap());
        assert_eq!(of(json!({"compression": {"type": "raw"}})), Ok(None));
        let old = json!({"compression": "DROP", "compressionType": "bzip2"});
        assert_eq!(of(old).unwrap().unwrap().name, "bzip2");
        let old = json!({"compression": null, "compressionType": "raw"});
        assert_eq!(of(old), Ok(None));
        let both = json!({"compressionType": "bzip2"});
        assert_eq!(of(both).unwrap().unwrap().name, "gzip");
    }

    #[test]
    fn an_axis_of_length_0_has_blocks_of_any_size() {
        let changes = json!({"dimensions": [4, 0], "blockSize": [4, 0]});
        let Node::Array(array) = node(dataset(changes).to_string().as_bytes()).unwrap() else {
            panic!("a group");
        };
        assert_eq!(array.grid.unwrap().regular_chunk_shape(), Some(vec![1, 4]));
    }

    #[test]
    fn fields_that_are_wrong_fail_alone_and_are_named() {
        let cases = [
            (
                json!({"dataType": "object"}),
                "data type object of N5, whose elements are serialized objects of Java, is not \
                 supported",
            ),
            (
                json!({"dataType": "string"}),
                "data type string of N5 is not supported",
            ),
            (
                json!({"dataType": 1}),
                "dataType: expected a string, not a number",
            ),
            (
                json!({"blockSize": [1]}),
                "chunk grid: 1 axes for an array of 2 axes",
            ),
            (
                json!({"blockSize": [0, 1]}),
                "chunk grid: the chunk shape is 0 along axis 1",
            ),
            (
                json!({"blockSize": "x"}),
                "blockSize: expected a list, not a string",
            ),
            (
                json!({"compression": {}}),
                "compression: no type that is a string",
            ),
            (
                json!({"compression": "gzip"}),
                "compression: expected an object, not a string",
            ),
            (json!({"compression": "DROP"}), "compression: missing"),
            (
                json!({"compression": "DROP", "compressionType": 1}),
                "compressionType: 1 instead of a name",
            ),
            (
                json!({"dimensions": [1u64 << 63, 1], "blockSize": [1u64 << 63, 1]}),
                "chunk grid: the number of bytes of the array (9223372036854775808 x 2) is more \
                 than 2^64 - 1",
            ),
        ];
        for (changes, expected) in cases {
            let array = array(changes);
            assert_eq!(array.decodable().unwrap_err().to_string(), expected);
            assert!(array.attributes.is_ok());
        }
        for (text, expected) in [
            ("[]", "attributes.json: expected an object, not a list"),
            (
                r#"{"dimensions":[1.5],"blockSize":[1],"dataType":"int8"}"#,
                "dimensions: 1.5 is not a size from 0 to 2^64 - 1",
            ),
        ] {
            assert_eq!(node(text.as_bytes()).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_root_is_a_dataset_or_has_the_version() {
        let dataset = dataset(json!({})).to_string();
        for (text, expected) in [
            (&dataset[..], true),
            (r#"{"n5":"4.0.0"}"#, true),
            (
                r#"{"scales":[[1,1],[2,2]],"pixelResolution":{"unit":"nm"}}"#,
                true,
            ),
            (
                r#"{"downsamplingFactors":[[1,1]],"dataType":"uint8"}"#,
                true,
            ),
            (r#"{"multiScale":true}"#, true),
            (r#"{"scales":[[1,1],[2,2]]}"#, false),
            (r#"{"dimensions":[1],"dataType":"int8"}"#, false),
            ("{}", false),
            (r#"["n5"]"#, false),
            (r#"{"a":"n5","b":{"n5":1},"c":["n5",{"n5":2}]}"#, false),
            (r#"{"a":"\"n5\":","n5x":1,"b":"n5"}"#, false),
            (r#"{"a":[NaN,{"b":"}"}], "n5" : 1}"#, true),
            (r#"{"n5":"#, true),
            ("", false),
        ] {
            assert_eq!(is_n5_root(text.as_bytes()), expected, "{text}");
        }
        let group = node(br#"{"n5":"4.0.0","title":"x","blockSize":[1]}"#).unwrap();
        let names: Vec<&String> = group.attributes().unwrap().keys().collect();
        assert_eq!(names, ["title", "blockSize"]);
        assert!(group.as_group().is_some());
    }

    #[test]
    fn chunk_names_are_those_of_the_reversed_grid() {
        let array = array(json!({"dimensions": [30, 20, 5], "blockSize": [13, 9, 5]}));
        let names = crate::zarr::ChunkNames::of_array(&array).unwrap();
        assert_eq!(names.find_path(b"2/1/0"), Some(ChunkEntry::Chunk(5)));
        assert_eq!(names.find_path(b"0/2/2"), None);
    }
}
