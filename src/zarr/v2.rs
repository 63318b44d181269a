//! Documents of Zarr v2: `.zarray`, `.zgroup`, `.zattrs` (v2, "Metadata", "Groups", "Attributes").
//!
//! Parsing is lenient, as in zarr-python: `order`, `filters`, `compressor` and `fill_value` may be missing,
//! and unknown members are ignored.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::ZarrFormat;
use super::array::{Array, checked_grid};
use super::chunk_key::ChunkKeys;
use super::chunk_names::ChunkNames;
use super::codec_chain::{CodecChain, CodecSpec, Order};
use super::data_type;
use super::document::{has_members, object, parse};
use super::error::{MetadataError, excerpt, json_type};
use super::fill_value::FillValue;
use super::grid::{ChunkGrid, list, sizes};
use super::node::Group;

/// Parses `.zarray` and `.zattrs`.
pub(super) fn array(zarray: &[u8], zattrs: Option<&[u8]>) -> Result<Array, MetadataError> {
    array_from(parse(zarray)?, attributes(zattrs))
}

/// Parses `.zgroup` and `.zattrs`.
pub(super) fn group(zgroup: &[u8], zattrs: Option<&[u8]>) -> Result<Group, MetadataError> {
    group_from(parse(zgroup)?, attributes(zattrs))
}

/// Parses the attributes of a node; `None` without a document.
fn attributes(zattrs: Option<&[u8]>) -> Result<Option<Value>, MetadataError> {
    zattrs.map(parse).transpose()
}

/// Returns the group of parsed documents.
pub(super) fn group_from(
    zgroup: Value,
    zattrs: Result<Option<Value>, MetadataError>,
) -> Result<Group, MetadataError> {
    check_format(&object(".zgroup", zgroup)?)?;
    Ok(Group {
        format: ZarrFormat::V2,
        attributes: attribute_map(zattrs),
        consolidated: None,
        extensions: Vec::new(),
    })
}

/// Returns the array of parsed documents.
pub(super) fn array_from(
    zarray: Value,
    zattrs: Result<Option<Value>, MetadataError>,
) -> Result<Array, MetadataError> {
    let document = object(".zarray", zarray)?;
    check_format(&document)?;
    let member = |name: &str| document.get(name).unwrap_or(&Value::Null);
    let shape = sizes("shape", member("shape"))?;
    let attributes = attribute_map(zattrs);
    let codecs = chain(&document);
    let data_type = match &codecs {
        Ok(chain) => data_type::v2::parse(member("dtype"), chain.specs()),
        // The data type depends on the codecs only for object types.
        Err(_) => data_type::v2::parse(member("dtype"), []),
    };
    let fill_value = data_type.as_ref().map_err(Clone::clone);
    let fill_value = fill_value
        .and_then(|data_type| FillValue::parse(ZarrFormat::V2, data_type, member("fill_value")));
    let grid = sizes("chunks", member("chunks"));
    let grid = grid.and_then(|chunk_shape| ChunkGrid::regular(&shape, &chunk_shape));
    Ok(Array {
        format: ZarrFormat::V2,
        dimension_names: dimension_names(&attributes, shape.len()),
        attributes,
        grid: checked_grid(grid, &data_type),
        chunk_keys: ChunkKeys::from_v2(document.get(SEPARATOR)),
        data_type,
        fill_value,
        codecs,
        extensions: Vec::new(),
        shape,
    })
}

/// The member of `.zarray` with the separator of chunk keys.
const SEPARATOR: &str = "dimension_separator";

/// Returns the chunk keys of an array with the separators `.` and `/`; `None` if `.zarray` has a separator, or
/// if both are the same, or if the document is invalid.
pub fn chunk_names_without_separator(zarray: &[u8]) -> Option<[ChunkNames; 2]> {
    if has_members(zarray, [SEPARATOR]) == [true] {
        return None;
    }
    let zarray = parse(zarray).ok()?;
    let flat = chunk_names(&zarray)?;
    let nested = flat.with_directories()?;
    Some([flat, nested])
}

/// Returns a valid `.zarray` without a separator as one with the separator `/`.
pub fn with_nested_chunks(zarray: &[u8]) -> Cow<'_, [u8]> {
    let Some(start) = zarray.iter().position(|byte| *byte == b'{') else {
        return zarray.into();
    };
    let (start, members) = zarray.split_at(start + 1);
    let separator = format!("\"{SEPARATOR}\": \"/\", ");
    [start, separator.as_bytes(), members].concat().into()
}

/// Returns the chunk keys of an array's parsed document; `None` if the chunk grid or the chunk key encoding
/// is not supported.
pub(super) fn chunk_names(zarray: &Value) -> Option<ChunkNames> {
    check_format(zarray.as_object()?).ok()?;
    let shape = sizes("shape", zarray.get("shape")?).ok()?;
    let chunk_shape = sizes("chunks", zarray.get("chunks")?).ok()?;
    let grid = ChunkGrid::regular(&shape, &chunk_shape).ok()?;
    let keys = ChunkKeys::from_v2(zarray.get(SEPARATOR)).ok()?;
    Some(ChunkNames::of_keys(keys, grid.shape()))
}

fn check_format(document: &Map<String, Value>) -> Result<(), MetadataError> {
    match document.get("zarr_format") {
        Some(format) if format.as_u64() == Some(2) => Ok(()),
        // webknossos 4 writes it as text in `.zgroup`.
        Some(Value::String(format)) if format == "2" => Ok(()),
        Some(Value::Null) | None => Err(MetadataError::invalid("zarr_format", "missing")),
        Some(other) => {
            let what = format!("zarr_format {} in a v2 document", excerpt(other));
            Err(MetadataError::unsupported(what))
        }
    }
}

fn attribute_map(
    zattrs: Result<Option<Value>, MetadataError>,
) -> Result<Map<String, Value>, MetadataError> {
    match zattrs? {
        None => Ok(Map::new()),
        Some(value) => object(".zattrs", value),
    }
}

/// The attribute in which xarray stores the names of the axes of v2 arrays.
pub(crate) const ARRAY_DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// Returns xarray's names of the axes; empty unless the list has an entry for each axis.
pub(super) fn dimension_names(
    attributes: &Result<Map<String, Value>, MetadataError>,
    rank: usize,
) -> Vec<Option<String>> {
    let names = attributes
        .as_ref()
        .ok()
        .and_then(|map| map.get(ARRAY_DIMENSIONS));
    match names {
        Some(Value::Array(names)) if names.len() == rank => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// Parses filters and compressor.
fn chain(document: &Map<String, Value>) -> Result<CodecChain, MetadataError> {
    let order = match document.get("order") {
        None | Some(Value::Null) => Order::C,
        Some(value) => match value.as_str() {
            Some("C") => Order::C,
            Some("F") => Order::F,
            _ => {
                let what = format!("{} instead of \"C\" or \"F\"", excerpt(value));
                return Err(MetadataError::invalid("order", what));
            }
        },
    };
    let filters = match document.get("filters") {
        None | Some(Value::Null) => Vec::new(),
        Some(value) => list("filters", value)?
            .iter()
            .map(|filter| CodecSpec::from_v2("filters", filter))
            .collect::<Result<_, _>>()?,
    };
    let compressor = match document.get("compressor") {
        None | Some(Value::Null) => None,
        Some(value @ Value::Object(_)) => Some(CodecSpec::from_v2("compressor", value)?),
        Some(other) => {
            let what = format!("expected an object or null, not {}", json_type(other));
            return Err(MetadataError::invalid("compressor", what));
        }
    };
    Ok(CodecChain::V2 {
        order,
        filters,
        compressor,
    })
}
