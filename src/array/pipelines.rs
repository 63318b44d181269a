//! The codec pipelines of an array whose chunks have several shapes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::codec::Pipeline;
use crate::hierarchy::codec_error;
use crate::store::{Key, StoreError};
use crate::sync::Mutex;
use crate::zarr;

/// The largest number of cached pipelines. An array can have as many shapes as chunks.
const MAX_PIPELINES: usize = 256;

/// A pipeline for each chunk shape, built on first use.
#[derive(Debug)]
pub(super) struct Pipelines {
    metadata: zarr::Array,
    built: Mutex<HashMap<Vec<u64>, Arc<Pipeline>>>,
}

impl Pipelines {
    pub(super) fn new(metadata: &zarr::Array) -> Self {
        // Attributes may be long, and pipelines do not need them.
        let metadata = zarr::Array {
            attributes: Ok(serde_json::Map::new()),
            ..metadata.clone()
        };
        Self {
            metadata,
            built: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the pipeline for chunks of a shape. `key` is for messages.
    ///
    /// # Errors
    /// An error if the codecs do not fit the shape.
    pub(super) fn get(&self, key: &Key, shape: Vec<u64>) -> Result<Arc<Pipeline>, StoreError> {
        let mut built = self.built.lock();
        if let Some(pipeline) = built.get(&shape) {
            return Ok(Arc::clone(pipeline));
        }
        let corrupt = |error: zarr::MetadataError| StoreError::Corrupt {
            key: key.clone(),
            what: error.to_string(),
        };
        let parts = self.metadata.decodable().map_err(corrupt)?;
        let pipeline = Pipeline::widened(parts.codecs, parts.data_type, &shape, parts.fill_value)
            .map_err(|error| codec_error(key, None, error))?;
        let pipeline = Arc::new(pipeline);
        if built.len() >= MAX_PIPELINES {
            built.clear();
        }
        built.insert(shape, Arc::clone(&pipeline));
        Ok(pipeline)
    }
}
