//! N5 nodes as Zarr nodes: documents of both versions, for chunks that are decoded.
//!
//! An N5 block has a header, and can be shorter than its chunk, as only the block itself tells. No
//! Zarr codec decodes that, so each translated chunk is decoded: all elements of the chunk,
//! big-endian in C order, without a compressor. Its size follows from the metadata and needs no
//! request. Full blocks could be byte ranges behind the header, but then arrays with short blocks,
//! which most writers produce at the edges, could not be translated.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fill;
use super::node::{TranslatedChunks, Translation, array_to_v3, attributes};
use super::types;
use crate::codec::Pipeline;
use crate::zarr::chunk_key::{ChunkKeys, KeyEncoding, Separator};
use crate::zarr::chunk_names::ChunkNames;
use crate::zarr::{Array, ByteOrder, CodecChain, Order, ZarrFormat};

/// The decoder of the chunks of an array.
#[derive(Debug)]
pub(super) struct N5Decoder {
    pub(super) array: Array,
    pub(super) pipeline: Arc<Pipeline>,
}

/// Returns `.zarray` and `.zattrs` of a dataset.
///
/// # Errors
/// The reason why its chunks cannot be decoded.
pub(super) fn to_v2(array: &Array) -> Result<Translation, String> {
    let parts = array.decodable().map_err(|error| error.to_string())?;
    let keys = ChunkKeys {
        encoding: KeyEncoding::V2,
        separator: Separator::Slash,
    };
    let chunks = chunks(array, keys)?;
    let document = json!({
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": chunks.grid.regular_chunk_shape(),
        "dtype": types::to_v2(parts.data_type, ByteOrder::Big)?,
        "compressor": Value::Null,
        "fill_value": fill::to_json(ZarrFormat::V2, parts.data_type, parts.fill_value)?,
        "order": "C",
        "filters": Value::Null,
        "dimension_separator": "/",
    });
    let mut texts = vec![(".zarray", document)];
    let attributes = attributes(&array.attributes)?;
    if !attributes.is_empty() {
        texts.push((".zattrs", attributes.into()));
    }
    Ok(Translation::Array(texts, Box::new(chunks)))
}

/// Returns `zarr.json` of a dataset: that of a v2 array with the same chunks.
///
/// # Errors
/// The errors of [`to_v2`].
pub(super) fn to_v3(array: &Array) -> Result<Translation, String> {
    let decoded = Array {
        format: ZarrFormat::V2,
        codecs: Ok(CodecChain::V2 {
            order: Order::C,
            filters: Vec::new(),
            compressor: None,
        }),
        ..array.clone()
    };
    match array_to_v3(&decoded)? {
        Translation::Array(texts, v3) => {
            let chunks = chunks(array, v3.keys)?;
            Ok(Translation::Array(texts, Box::new(chunks)))
        }
        other => Ok(other),
    }
}

/// Returns the decoded chunks of a dataset, under other keys.
fn chunks(array: &Array, keys: ChunkKeys) -> Result<TranslatedChunks, String> {
    let parts = array.decodable().map_err(|error| error.to_string())?;
    let shape = parts.grid.regular_chunk_shape();
    let shape = shape.ok_or("chunks of different shapes")?;
    let pipeline = Pipeline::new(parts.codecs, parts.data_type, &shape, parts.fill_value);
    let pipeline = pipeline.map_err(|error| error.to_string())?;
    Ok(TranslatedChunks {
        names: Arc::new(ChunkNames::of_keys(keys.clone(), parts.grid.shape())),
        keys,
        grid: parts.grid.clone(),
        source_keys: parts.chunk_keys.clone(),
        shards: None,
        frame_content_bytes: None,
        text: None,
        decoder: Some(N5Decoder {
            array: array.clone(),
            pipeline: Arc::new(pipeline),
        }),
        complete: None,
        lost_mask: None,
        is_complete: false,
    })
}
