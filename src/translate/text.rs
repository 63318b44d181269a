//! Arrays of objects that are all text (v2, `|O` with `json2`, `msgpack2` or `categorize`) as v3 arrays of strings.
//!
//! The codecs have no form in v3. Each translated chunk is decoded, and encoded with `vlen-utf8` without a
//! compressor. That the objects are text is known from the elements, so that these are read with the metadata.

use std::sync::Arc;

use super::node::{TranslatedChunks, Translation, array_to_v3};
use super::unreadable_chunk::UnreadableChunk;
use super::{NodeView, Shared, Target, hash};
use crate::array::{Engine, holds_text, may_be_text, not_a_chunk, read_texts};
use crate::codec::Pipeline;
use crate::runtime::leave_session_thread;
use crate::store::{
    AccessHint, DocumentReads, DocumentRef, Fetched, InMemoryObject, Key, Object, Stat, StoreError,
    Version,
};
use crate::zarr::{
    Array, CodecChain, CodecSpec, DataType, FillValue, Node, Order, Variable, ZarrFormat,
};

/// The largest size of the text of one array, in bytes, and the divisor of the memory limit that limits it too: as in
/// views.
const MAX_TEXT_BYTES: u64 = 4 << 20;
const MAX_TEXT_PART: u64 = 32;

/// The decoder of the chunks of an array of objects that are text.
#[derive(Debug)]
pub(super) struct TextDecoder {
    array: Array,
    pipeline: Pipeline,
}

fn most_bytes(engine: &Engine) -> u64 {
    super::at_most(engine, MAX_TEXT_BYTES, MAX_TEXT_PART)
}

/// Returns whether a node is an array whose objects become strings in `target`: reads its elements.
///
/// # Errors
/// The error of a chunk that cannot be read.
pub(super) async fn is_text(
    source: DocumentRef<'_>,
    key: &Key,
    target: Target,
    node: &Node,
    engine: &Engine,
) -> Result<bool, StoreError> {
    let Node::Array(array) = node else {
        return Ok(false);
    };
    if target != Target::V3 || array.format != ZarrFormat::V2 || !may_be_text(array) {
        return Ok(false);
    }
    match decoder(array) {
        Ok(TextDecoder { pipeline, .. }) => {
            holds_text(source, key, array, &pipeline, most_bytes(engine), engine).await
        }
        Err(_) => Ok(false),
    }
}

fn decoder(array: &Array) -> Result<TextDecoder, String> {
    let parts = array.decodable().map_err(|error| error.to_string())?;
    let shape = parts.grid.regular_chunk_shape();
    let shape = shape.ok_or("chunks of different shapes")?;
    let pipeline = Pipeline::new(parts.codecs, parts.data_type, &shape, parts.fill_value);
    Ok(TextDecoder {
        array: array.clone(),
        pipeline: pipeline.map_err(|error| error.to_string())?,
    })
}

/// Returns `zarr.json` of an array of objects that are all text.
///
/// # Errors
/// The reason why it has no form in v3.
pub(super) fn to_v3(array: &Array) -> Result<Translation, String> {
    let fill = match &array.fill_value {
        Ok(FillValue::Variable(value)) => value.as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let encoded = Array {
        data_type: Ok(DataType::Variable(Variable::Text)),
        fill_value: Ok(FillValue::Variable(fill.into())),
        codecs: Ok(CodecChain::V2 {
            order: Order::C,
            filters: vec![CodecSpec {
                name: "vlen-utf8".into(),
                configuration: serde_json::Map::new(),
            }],
            compressor: None,
        }),
        ..array.clone()
    };
    match array_to_v3(&encoded)? {
        Translation::Array(texts, chunks) => {
            let chunks = TranslatedChunks {
                text: Some(Arc::new(decoder(array)?)),
                ..*chunks
            };
            Ok(Translation::Array(texts, Box::new(chunks)))
        }
        other => Ok(other),
    }
}

impl Shared {
    /// Opens a chunk of text, which is decoded and encoded again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the absence is proven, and the errors of the store.
    pub(super) async fn open_text(
        &self,
        node: &NodeView,
        array: &Key,
        decoder: &TextDecoder,
        chunk: u64,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, _) = Self::source_key(node, array, chunk).ok_or_else(absent)?;
        leave_session_thread().await;
        let encode = |reads| self.encoded_text(reads, node, decoder, &source);
        let opened = self.source_of(array, node).await?.fetch(encode).await;
        match opened.map(Fetched::into_value) {
            Err(error) if error.is_lasting() => {
                let stat = self.unreadable(node, &source, &error).await?;
                Ok(Arc::new(UnreadableChunk { stat, error }))
            }
            opened => opened,
        }
    }

    async fn encoded_text(
        &self,
        reads: DocumentReads<'_>,
        node: &NodeView,
        decoder: &TextDecoder,
        source: &Key,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let most = most_bytes(&self.engine);
        let opened = reads.open(source, AccessHint::Whole(most)).await;
        let object = opened.map_err(not_a_chunk)?;
        let TextDecoder { array, pipeline } = decoder;
        let texts = read_texts(&*object, source, array, pipeline, most, &self.engine).await?;
        let bytes = encode(&texts).ok_or_else(|| StoreError::Unsupported {
            key: source.clone(),
            what: "more than 4 GiB of text".into(),
        })?;
        let version = hash(&[object.version().0, node.version, bytes.len() as u64]);
        let stat = Stat {
            size_bytes: bytes.len() as u64,
            version: Version(version),
            ..object.stat()?
        };
        Ok(Arc::new(InMemoryObject::new(Arc::new(bytes), stat)))
    }
}

/// Encodes texts with `vlen-utf8`: their number, and each with its length.
fn encode(texts: &[String]) -> Option<Vec<u8>> {
    let mut bytes = u32::try_from(texts.len()).ok()?.to_le_bytes().to_vec();
    for text in texts {
        bytes.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    Some(bytes)
}
