//! Translation of a single node: its documents, and the keys of its chunks in the store.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::n5::N5Decoder;
use super::shards::{SHARDING, Shards};
use super::text::{self, TextDecoder};
use super::{Target, codecs, fill, fill_mask, n5, types};
use crate::codec::Pipeline;
use crate::store::Key;
use crate::zarr::chunk_key::{ChunkKeys, KeyEncoding, Separator};
use crate::zarr::chunk_names::ChunkNames;
use crate::zarr::{
    ARRAY_DIMENSIONS, Array, ChunkGrid, CodecChain, FillValue, Group, Node, Order, Scalar,
    ZarrFormat,
};

/// The result of translating a node.
#[derive(Debug)]
pub(super) enum Translation {
    /// The node and all nodes below it are unchanged.
    Same,
    /// A group, with its documents if they change.
    Group(Option<JsonDocuments>),
    /// An array with other documents, and possibly other chunk keys.
    Array(JsonDocuments, Box<TranslatedChunks>),
    /// A directory without documents.
    Directory,
    /// The target version cannot express the node, for this reason.
    Unsupported(String),
}

/// The documents of a node by their names.
pub(super) type JsonDocuments = Vec<(&'static str, Value)>;

/// The names of an array's chunks, and their location in the store.
#[derive(Debug)]
pub(super) struct TranslatedChunks {
    /// The names in the translation.
    pub(super) names: Arc<ChunkNames>,
    pub(super) keys: ChunkKeys,
    /// The chunk grid of the translation.
    pub(super) grid: ChunkGrid,
    /// The chunk key encoding of the store.
    pub(super) source_keys: ChunkKeys,
    /// The shards of the store, if their inner chunks become chunks.
    pub(super) shards: Option<Arc<Shards>>,
    /// If each chunk is a Zstandard frame, the content size in bytes that its header must have.
    pub(super) frame_content_bytes: Option<u64>,
    /// The decoder of the chunks, if the translated chunks are decoded.
    pub(super) decoder: Option<N5Decoder>,
    /// The decoder of objects that are text, if the translated chunks are encoded strings.
    pub(super) text: Option<Arc<TextDecoder>>,
    /// Other documents, which are right if no chunk is absent; `None` if the documents are right in any case.
    pub(super) complete: Option<JsonDocuments>,
    /// Which elements xarray masks in the store and not in the translation.
    pub(super) lost_mask: Option<String>,
    /// Whether the documents are right only if no chunk is absent.
    pub(super) is_complete: bool,
}

impl TranslatedChunks {
    fn new(array: &Array, keys: ChunkKeys, shards: Option<Shards>) -> Result<Self, String> {
        let source_keys = array
            .chunk_keys
            .clone()
            .map_err(|error| error.to_string())?;
        let grid = match &shards {
            Some(shards) => ChunkGrid::regular(&array.shape, shards.chunk_shape())
                .map_err(|error| error.to_string())?,
            None => array.grid.clone().map_err(|error| error.to_string())?,
        };
        Ok(Self {
            names: Arc::new(ChunkNames::of_keys(keys.clone(), grid.shape())),
            keys,
            grid,
            source_keys,
            shards: shards.map(Arc::new),
            frame_content_bytes: None,
            decoder: None,
            text: None,
            complete: None,
            lost_mask: None,
            is_complete: false,
        })
    }
}

impl TranslatedChunks {
    /// Returns the store key of a translated chunk, and the numbers of the nested inner chunks that lead to the chunk.
    pub(super) fn source_key(&self, array: &Key, chunk: u64) -> Option<(Key, Vec<u64>)> {
        let index = self.grid.index(chunk)?;
        let (index, numbers) = match &self.shards {
            Some(shards) => shards.locate(&index),
            None => (index, Vec::new()),
        };
        let below = Key::new(self.source_keys.encode(&index).as_bytes()).ok()?;
        Some((array.join_key(&below), numbers))
    }
}

/// Translates a node. `raw` is its `zarr.json`, or else its `.zarray`, if it has either; `is_text` is the result of
/// [`text::is_text`].
pub(super) fn translate(
    target: Target,
    node: &Node,
    raw: Option<&Value>,
    is_text: bool,
) -> Translation {
    let translated = match (target, node, node.format()) {
        (Target::V2, Node::Group(_), ZarrFormat::V2)
        | (Target::V3, Node::Group(_), ZarrFormat::V3)
        | (
            Target::Unsharded,
            Node::Group(Group {
                consolidated: None, ..
            }),
            ZarrFormat::V3,
        ) => Ok(Translation::Group(None)),
        (Target::Unsharded, Node::Group(_), ZarrFormat::V3) => Ok(without_consolidated(raw)),
        (Target::V2, Node::Array(array), ZarrFormat::V2)
        | (Target::V3, Node::Array(array), ZarrFormat::V3) => own_version(array, raw),
        (Target::Unsharded, _, ZarrFormat::V2 | ZarrFormat::N5) => {
            Err("it is not of version 3".into())
        }
        (Target::Unsharded, Node::Array(array), ZarrFormat::V3) => unsharded(array, raw),
        (Target::V2, Node::Group(group), ZarrFormat::V3 | ZarrFormat::N5) => group_to_v2(group),
        (Target::V3, Node::Group(group), ZarrFormat::V2 | ZarrFormat::N5) => group_to_v3(group),
        (Target::V2, Node::Array(array), ZarrFormat::V3) => array_to_v2(array),
        (Target::V3, Node::Array(array), ZarrFormat::V2) if is_text => text::to_v3(array),
        (Target::V3, Node::Array(array), ZarrFormat::V2) => array_to_v3(array),
        (Target::V2, Node::Array(array), ZarrFormat::N5) => n5::to_v2(array),
        (Target::V3, Node::Array(array), ZarrFormat::N5) => n5::to_v3(array),
    };
    translated.unwrap_or_else(Translation::Unsupported)
}

fn group_to_v2(group: &Group) -> Result<Translation, String> {
    let attributes = attributes(&group.attributes)?;
    if let Some(unknown) = group.extensions.first() {
        return Err(unknown.to_string());
    }
    let mut texts = vec![(".zgroup", json!({"zarr_format": 2}))];
    if !attributes.is_empty() {
        texts.push((".zattrs", attributes.into()));
    }
    Ok(Translation::Group(Some(texts)))
}

fn group_to_v3(group: &Group) -> Result<Translation, String> {
    let attributes = attributes(&group.attributes)?;
    let document = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    Ok(Translation::Group(Some(vec![("zarr.json", document)])))
}

pub(super) fn attributes<E: std::fmt::Display>(
    attributes: &Result<Map<String, Value>, E>,
) -> Result<Map<String, Value>, String> {
    match attributes {
        Ok(attributes) => Ok(attributes.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the document of a group without its consolidated metadata, which describe sharded arrays.
fn without_consolidated(raw: Option<&Value>) -> Translation {
    let mut document = raw.cloned().unwrap_or_default();
    if let Some(members) = document.as_object_mut() {
        members.shift_remove("consolidated_metadata");
    }
    Translation::Group(Some(vec![("zarr.json", document)]))
}

/// Translates a directory without documents below the root. v3 groups need a document, and
/// zarr-python requires one in consolidated metadata of v2 too.
pub(super) fn implicit_group(target: Target) -> Translation {
    Translation::Group(Some(vec![match target {
        Target::V2 => (".zgroup", json!({"zarr_format": 2})),
        Target::V3 | Target::Unsharded => {
            let document = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
            ("zarr.json", document)
        }
    }]))
}

/// Translates an array of the target version: unchanged, unless the form of its `fill_value`
/// violates the specification.
fn own_version(array: &Array, raw: Option<&Value>) -> Result<Translation, String> {
    let keys = array.chunk_keys.clone();
    let (Some(fill_value), Ok(keys), Ok(attributes)) =
        (standard_fill_value(array, raw), keys, &array.attributes)
    else {
        return Ok(Translation::Same);
    };
    let mut document = raw.cloned().unwrap_or_default();
    let members = document.as_object_mut().ok_or("no document")?;
    members.insert(FILL_VALUE.into(), fill_value);
    with_documents(array, keys, document, attributes)
}

/// Translates the documents of a version 1 array, which have other names in the store.
///
/// # Errors
/// An error if the metadata cannot be read.
pub(super) fn of_version_1(array: &Array, raw: Option<&Value>) -> Result<Translation, String> {
    let keys = array
        .chunk_keys
        .clone()
        .map_err(|error| error.to_string())?;
    let attributes = array.attributes.as_ref().map_err(ToString::to_string)?;
    let document = raw.cloned().ok_or("no document")?;
    with_documents(array, keys, document, attributes)
}

fn with_documents(
    array: &Array,
    keys: ChunkKeys,
    document: Value,
    attributes: &Map<String, Value>,
) -> Result<Translation, String> {
    let texts = match array.format {
        ZarrFormat::V3 => vec![("zarr.json", document)],
        ZarrFormat::V2 if attributes.is_empty() => vec![(".zarray", document)],
        ZarrFormat::V2 | ZarrFormat::N5 => vec![
            (".zarray", document),
            (".zattrs", attributes.clone().into()),
        ],
    };
    let chunks = TranslatedChunks::new(array, keys, None)?;
    Ok(Translation::Array(texts, Box::new(chunks)))
}

const FILL_VALUE: &str = "fill_value";

/// Returns the standard form of a nonstandard `fill_value`: `null` in v3 (GDAL), which is read as
/// zero, and integers as strings in v2 (n5-zarr).
fn standard_fill_value(array: &Array, raw: Option<&Value>) -> Option<Value> {
    let parts = array.decodable().ok()?;
    let fixed = parts.data_type.fixed();
    let is_integer = fixed.is_some_and(|f| matches!(f.scalar, Scalar::Int(_) | Scalar::UInt(_)));
    let fill_value = match (array.format, raw?.get(FILL_VALUE)) {
        (ZarrFormat::V3, Some(Value::Null)) => match fixed {
            Some(fixed) => &FillValue::Fixed(vec![0; fixed.size_bytes]),
            None => parts.fill_value,
        },
        (ZarrFormat::V2, Some(Value::String(_))) if is_integer => parts.fill_value,
        _ => return None,
    };
    fill::to_json(array.format, parts.data_type, fill_value).ok()
}

/// Translates a sharded array to one whose chunks are the inner chunks (zarr-specs, `sharding_indexed`).
fn unsharded(array: &Array, raw: Option<&Value>) -> Result<Translation, String> {
    let Ok(CodecChain::V3(specs)) = &array.codecs else {
        // Unreadable with or without shards.
        return Ok(Translation::Same);
    };
    let Some((shards, _)) = Shards::open(array, specs)? else {
        return own_version(array, raw);
    };
    let inner = raw.and_then(innermost).ok_or("no document")?;
    let keys = array
        .chunk_keys
        .clone()
        .map_err(|error| error.to_string())?;
    let mut document = raw.cloned().unwrap_or_default();
    let members = document.as_object_mut().ok_or("no document")?;
    let shape = shards.chunk_shape();
    let grid = json!({"name": "regular", "configuration": {"chunk_shape": shape}});
    members.insert("chunk_grid".into(), grid);
    members.insert("codecs".into(), inner.clone());
    if let Some(fill_value) = standard_fill_value(array, raw) {
        members.insert(FILL_VALUE.into(), fill_value);
    }
    members.shift_remove("consolidated_metadata");
    let chunks = TranslatedChunks::new(array, keys, Some(shards))?;
    Ok(Translation::Array(
        vec![("zarr.json", document)],
        Box::new(chunks),
    ))
}

/// Returns the codecs of the innermost chunks, as in the document.
fn innermost(document: &Value) -> Option<&Value> {
    let mut codecs = document.get("codecs")?;
    while let [spec] = codecs.as_array()?.as_slice()
        && spec.get("name").is_some_and(|name| name == SHARDING)
    {
        codecs = spec.get("configuration")?.get("codecs")?;
    }
    Some(codecs)
}

/// Returns `.zarray` and `.zattrs` (v2, "Arrays") of a v3 array.
fn array_to_v2(array: &Array) -> Result<Translation, String> {
    let Ok(CodecChain::V3(specs)) = &array.codecs else {
        return Err(problem(array));
    };
    let opened = Shards::open(array, specs)?;
    let (shards, inner) = match opened {
        Some((shards, inner)) => (Some(shards), inner),
        None => (None, specs.clone()),
    };
    let parts = array.decodable().map_err(|error| error.to_string())?;
    let source_keys = parts.chunk_keys;
    let keys = ChunkKeys {
        encoding: KeyEncoding::V2,
        separator: source_keys.separator,
    };
    let rank = array.shape.len();
    let chain = codecs::to_v2(&inner, parts.data_type, rank)?;
    let mut chunks = TranslatedChunks::new(array, keys.clone(), shards)?;
    let chunk_shape = chunks.grid.regular_chunk_shape();
    let chunk_shape = chunk_shape.ok_or("chunks of different shapes have no form in v2")?;
    if inner.last().is_some_and(codecs::is_zstd) {
        let specs = CodecChain::V3(inner);
        let pipeline = Pipeline::new(&specs, parts.data_type, &chunk_shape, parts.fill_value);
        let pipeline = pipeline.map_err(|error| error.to_string())?;
        chunks.frame_content_bytes = pipeline.outermost_decoded_bytes();
    }
    let mut document = json!({
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": chunk_shape,
        "dtype": types::to_v2(parts.data_type, chain.byte_order)?,
        "compressor": chain.compressor,
        "fill_value": fill::to_json(ZarrFormat::V2, parts.data_type, parts.fill_value)?,
        "order": if chain.order == Order::F { "F" } else { "C" },
        "filters": if chain.filters.is_empty() { Value::Null } else { chain.filters.into() },
    });
    // Older readers, which ignore this member, use the default separator.
    if keys.separator == Separator::Slash
        && let Some(members) = document.as_object_mut()
    {
        members.insert("dimension_separator".into(), "/".into());
    }
    let mut attributes = attributes(&array.attributes)?;
    // The names in the document replace those of the attributes; xarray also needs an empty list.
    let is_named = rank == 0 || array.dimension_names.iter().any(Option::is_some);
    if is_named {
        attributes.shift_remove(ARRAY_DIMENSIONS);
        let names = array.dimension_names.iter().map(Option::as_deref);
        let names: Option<Vec<&str>> = names.collect();
        if let Some(names) = names.filter(|names| names.len() == rank) {
            attributes.insert(ARRAY_DIMENSIONS.into(), json!(names));
        }
    }
    if is_named {
        let complete = fill_mask::without_fill(&document, &attributes, parts.data_type);
        chunks.complete = complete.map(|(document, attributes)| v2_documents(document, attributes));
    }
    fill_mask::to_v2(&mut attributes, parts.data_type, parts.fill_value);
    Ok(Translation::Array(
        v2_documents(document, attributes),
        Box::new(chunks),
    ))
}

fn v2_documents(document: Value, attributes: Map<String, Value>) -> JsonDocuments {
    let mut texts = vec![(".zarray", document)];
    if !attributes.is_empty() {
        texts.push((".zattrs", attributes.into()));
    }
    texts
}

/// Returns the `zarr.json` (v3 core, "Array metadata") of a v2 array.
pub(super) fn array_to_v3(array: &Array) -> Result<Translation, String> {
    let parts = array.decodable().map_err(|error| error.to_string())?;
    let CodecChain::V2 {
        order,
        filters,
        compressor,
    } = parts.codecs
    else {
        return Err(problem(array));
    };
    let rank = array.shape.len();
    let chain = codecs::to_v3(*order, filters, compressor.as_ref(), parts.data_type, rank)?;
    let (data_type, _) = types::to_v3(parts.data_type)?;
    let keys = ChunkKeys {
        encoding: KeyEncoding::Default,
        separator: Separator::Slash,
    };
    let mut chunks = TranslatedChunks::new(array, keys, None)?;
    let chunk_shape = chunks
        .grid
        .regular_chunk_shape()
        .ok_or_else(|| problem(array))?;
    let mut document = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill::to_json(ZarrFormat::V3, parts.data_type, parts.fill_value)?,
        "codecs": chain,
    });
    let mut attributes = attributes(&array.attributes)?;
    if let Some(members) = document.as_object_mut() {
        let names = &array.dimension_names;
        let is_named = match rank {
            0 => attributes.get(ARRAY_DIMENSIONS) == Some(&json!([])),
            _ => !names.is_empty() && names.iter().all(Option::is_some),
        };
        if is_named {
            if rank > 0 {
                members.insert("dimension_names".into(), json!(names));
            }
            attributes.shift_remove(ARRAY_DIMENSIONS);
            chunks.lost_mask = fill_mask::to_v3(&mut attributes, parts.data_type, parts.fill_value);
        }
        members.insert("attributes".into(), attributes.into());
    }
    Ok(Translation::Array(
        vec![("zarr.json", document)],
        Box::new(chunks),
    ))
}

/// Returns the first problem of an array.
fn problem(array: &Array) -> String {
    let mut problems = array.problems();
    problems.next().map_or_else(
        || "its codecs are of another version".into(),
        |e| e.to_string(),
    )
}

#[cfg(test)]
mod tests;
