//! The document of Zarr v3: `zarr.json` (v3 core, "Array metadata", "Group metadata").

use serde_json::{Map, Value};

use super::array::{Array, checked_grid};
use super::chunk_key::ChunkKeys;
use super::chunk_names::ChunkNames;
use super::codec_chain::{CodecChain, named_configuration};
use super::consolidated::Consolidated;
use super::data_type::{self, Scalar};
use super::document::{memory_bytes_without, object, parse, parse_without};
use super::error::{MetadataError, Unsupported, excerpt, json_type, printable};
use super::fill_value::FillValue;
use super::grid::{ChunkGrid, list, sizes};
use super::node::{Group, Node};
use super::{ZarrFormat, unused_edges};

/// The known members of an array's document; other members need `must_understand: false`.
const ARRAY_MEMBERS: [&str; 12] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
    // Some writers copy this member from the group's document.
    "consolidated_metadata",
];

/// The known members of a group's document; other members need `must_understand: false`.
const GROUP_MEMBERS: [&str; 4] = [
    "zarr_format",
    "node_type",
    "attributes",
    "consolidated_metadata",
];

/// The member of a group's document with copies of the documents below the group.
const CONSOLIDATED_METADATA: &str = "consolidated_metadata";

/// Parses `zarr.json`.
pub(super) fn node(zarr_json: &[u8]) -> Result<Node, MetadataError> {
    node_from(parse(zarr_json)?)
}

/// As [`node`], without the consolidated metadata of a group.
pub(super) fn own_node(zarr_json: &[u8]) -> Result<Node, MetadataError> {
    node_from(parse_without(zarr_json, CONSOLIDATED_METADATA)?)
}

/// Returns the maximum memory of [`own_node`] in bytes.
pub(super) fn own_memory_bytes(zarr_json: &[u8]) -> usize {
    memory_bytes_without(zarr_json, CONSOLIDATED_METADATA)
}

/// Parses the `zarr.json` of an array.
pub(super) fn array(zarr_json: &[u8]) -> Result<Array, MetadataError> {
    match node(zarr_json)? {
        Node::Array(array) => Ok(*array),
        Node::Group(_) => Err(MetadataError::invalid("node_type", "a group, not an array")),
    }
}

/// Returns the node of a parsed document.
pub(super) fn node_from(zarr_json: Value) -> Result<Node, MetadataError> {
    let mut document = object("zarr.json", zarr_json)?;
    match document.get("zarr_format") {
        Some(format) if format.as_u64() == Some(3) => {}
        Some(Value::Null) | None => return Err(MetadataError::invalid("zarr_format", "missing")),
        Some(other) => {
            let what = format!("zarr_format {} in zarr.json", excerpt(other));
            return Err(MetadataError::unsupported(what));
        }
    }
    let node_type = document.get("node_type").unwrap_or(&Value::Null);
    match node_type.as_str() {
        Some("array") => array_from(document).map(|array| Node::Array(Box::new(array))),
        Some("group") => {
            let consolidated = document.remove("consolidated_metadata");
            Ok(Node::Group(Group {
                format: ZarrFormat::V3,
                extensions: unknown_extensions(&document, &GROUP_MEMBERS),
                attributes: attributes(&mut document),
                consolidated: consolidated.and_then(Consolidated::from_v3),
            }))
        }
        _ => {
            let what = format!("{} instead of \"array\" or \"group\"", excerpt(node_type));
            Err(MetadataError::invalid("node_type", what))
        }
    }
}

/// Returns whether a parsed document is that of an array.
pub(super) fn is_array(zarr_json: &Value) -> bool {
    zarr_json.get("node_type").and_then(Value::as_str) == Some("array")
}

/// Returns the chunk keys of an array's parsed document; `None` if the chunk grid or the chunk key encoding
/// is not supported.
pub(super) fn chunk_names(zarr_json: &Value) -> Option<ChunkNames> {
    let is_v3 = zarr_json.get("zarr_format").and_then(Value::as_u64) == Some(3);
    if !is_v3 || !is_array(zarr_json) {
        return None;
    }
    let shape = sizes("shape", zarr_json.get("shape")?).ok()?;
    let grid = ChunkGrid::from_v3(&shape, zarr_json.get("chunk_grid")?).ok()?;
    let keys = ChunkKeys::from_v3(zarr_json.get("chunk_key_encoding")?, shape.len()).ok()?;
    Some(ChunkNames::of_keys(keys, grid.shape()))
}

fn array_from(mut document: Map<String, Value>) -> Result<Array, MetadataError> {
    let attributes = attributes(&mut document);
    let mut extensions = unknown_extensions(&document, &ARRAY_MEMBERS);
    let member = |name: &str| document.get(name).unwrap_or(&Value::Null);
    let required = |name: &str| {
        let missing = || MetadataError::invalid(name, "missing");
        document.get(name).ok_or_else(missing)
    };
    let shape = sizes("shape", required("shape")?)?;
    extensions.extend(storage_transformers(member("storage_transformers"))?);
    let data_type = required("data_type").and_then(data_type::v3::parse);
    let grid = required("chunk_grid").and_then(|value| ChunkGrid::from_v3(&shape, value));
    let fill_value = match &data_type {
        Err(error) => Err(error.clone()),
        Ok(data_type) => required("fill_value").and_then(|value| {
            let fill_value = FillValue::parse(ZarrFormat::V3, data_type, value)?;
            let is_big = value.is_string() && has_big_endian_bytes(member("codecs"), 0);
            Ok(match data_type.fixed().filter(|_| is_big) {
                Some(fixed) if matches!(fixed.scalar, Scalar::Struct(_)) => {
                    fill_value.with_swapped_words(fixed)
                }
                _ => fill_value,
            })
        }),
    };
    let mut codecs = required("codecs").and_then(CodecChain::from_v3);
    if let (Ok(grid), Ok(codecs)) = (&grid, &mut codecs) {
        unused_edges::replace(codecs, grid);
    }
    Ok(Array {
        format: ZarrFormat::V3,
        dimension_names: dimension_names(member("dimension_names"), shape.len())?,
        attributes,
        grid: checked_grid(grid, &data_type),
        chunk_keys: required("chunk_key_encoding")
            .and_then(|value| ChunkKeys::from_v3(value, shape.len())),
        data_type,
        fill_value,
        codecs,
        extensions,
        shape,
    })
}

/// The number of shards within shards in which [`has_big_endian_bytes`] looks.
const MAX_SHARD_DEPTH: usize = 8;

/// Returns whether the `bytes` codec of a chain, or of the inner chunks of its shards, is big-endian. The bytes of
/// structures in base64 have the same order (zarr-extensions, `structured`).
fn has_big_endian_bytes(codecs: &Value, depth: usize) -> bool {
    let Some(codecs) = codecs.as_array().filter(|_| depth <= MAX_SHARD_DEPTH) else {
        return false;
    };
    codecs
        .iter()
        .any(|codec| match named_configuration("codecs", codec) {
            Ok(("bytes" | "endian", Some(configuration))) => {
                configuration.get("endian").and_then(Value::as_str) == Some("big")
            }
            Ok(("sharding_indexed", Some(configuration))) => configuration
                .get("codecs")
                .is_some_and(|inner| has_big_endian_bytes(inner, depth + 1)),
            _ => false,
        })
}

/// Removes the attributes from a document and returns them.
fn attributes(document: &mut Map<String, Value>) -> Result<Map<String, Value>, MetadataError> {
    match document.remove("attributes") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(value) => object("attributes", value),
    }
}

/// Returns extension members without `must_understand: false` (v3 core, "Extension points").
fn unknown_extensions(document: &Map<String, Value>, known: &[&str]) -> Vec<Unsupported> {
    let unknown = |(name, value): &(&String, &Value)| {
        !known.contains(&name.as_str()) && must_understand(value)
    };
    document
        .iter()
        .filter(unknown)
        .map(|(name, _)| Unsupported {
            what: format!("must_understand extension {}", printable(name)),
        })
        .collect()
}

fn must_understand(value: &Value) -> bool {
    value.get("must_understand") != Some(&Value::Bool(false))
}

/// Returns the unsupported storage transformers: all, except those that may be ignored.
fn storage_transformers(value: &Value) -> Result<Vec<Unsupported>, MetadataError> {
    let field = "storage_transformers";
    if value.is_null() {
        return Ok(Vec::new());
    }
    let transformers = list(field, value)?
        .iter()
        .filter(|value| must_understand(value));
    transformers
        .map(|value| {
            let (name, _) = named_configuration(field, value)?;
            let what = format!("storage transformer {}", printable(name));
            Ok(Unsupported { what })
        })
        .collect()
}

/// Parses a name or null for each axis.
fn dimension_names(value: &Value, rank: usize) -> Result<Vec<Option<String>>, MetadataError> {
    let field = "dimension_names";
    if value.is_null() {
        return Ok(Vec::new());
    }
    let names = list(field, value)?;
    if names.len() != rank {
        let what = format!("{} names for an array of {rank} axes", names.len());
        return Err(MetadataError::invalid(field, what));
    }
    let name = |value: &Value| match value {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Some(name.clone())),
        other => {
            let what = format!("expected a string or null, not {}", json_type(other));
            Err(MetadataError::invalid(field, what))
        }
    };
    names.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_of_a_structure_in_base64_have_the_order_of_the_codec() {
        let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
        let shards = |codec: &Value| json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": [codec]}});
        // 1 and 2 as int16, and the byte 3.
        for (codecs, expected) in [
            (json!([little]), [1, 0, 2, 0, 3]),
            (json!(["bytes"]), [1, 0, 2, 0, 3]),
            (json!([big, "crc32c"]), [0, 1, 0, 2, 3]),
            (json!([shards(&big)]), [0, 1, 0, 2, 3]),
            (json!([shards(&shards(&little))]), [1, 0, 2, 0, 3]),
        ] {
            let document = json!({"zarr_format": 3, "node_type": "array", "shape": [2],
                "data_type": {"name": "structured", "configuration": {"fields": [
                    ["a", "int16"],
                    ["b", {"name": "structured", "configuration": {"fields": [["c", "int16"], ["d", "int8"]]}}]]}},
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
                "chunk_key_encoding": "default", "fill_value": "AQACAAM=", "codecs": codecs});
            let array = array(document.to_string().as_bytes()).unwrap();
            let fill = FillValue::Fixed(expected.to_vec());
            assert_eq!(array.fill_value, Ok(fill), "{codecs}");
        }
    }
}
