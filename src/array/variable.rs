//! Arrays with elements of variable size, which are decoded whole, within a limit.

use super::chunks::stored_key;
use super::decode::{present, with_bytes};
use super::engine::Engine;
use super::memory_limit::Reservation;
use super::pipelines::Pipelines;
use crate::codec::{Element, Pipeline};
use crate::hierarchy::codec_error;
use crate::runtime::leave_session_thread;
use crate::store::{AccessHint, DocumentReads, DocumentRef, Fetched, Key, Object, StoreError};
use crate::zarr::{self, ChunkGrid, DataType, FillValue, Variable};

/// The elements of an array in C order, with as few copies as the chunks allow.
#[derive(Debug)]
pub struct Elements {
    elements: Vec<Element>,
    /// The memory of the elements, and as much again as their values may take: for what is made of them.
    _memory: Option<Reservation>,
}

impl Elements {
    /// Creates the elements of an array, given in C order, that count against no limit.
    pub fn new(elements: Vec<Element>) -> Self {
        Self {
            elements,
            _memory: None,
        }
    }

    /// Returns all elements in C order.
    pub fn iter(&self) -> impl Iterator<Item = &Element> {
        self.elements.iter()
    }
}

/// The number of chunks between two points at which the request can be cancelled.
const PAUSE_CHUNKS: u64 = 1024;
/// The elements of an array may take this fraction (1/8) of the memory limit, without their values.
const ELEMENTS_PART: u64 = 8;
/// The maximum that a codec adds to an element in a stored chunk, in bytes.
const ENCODED_ELEMENT_BYTES: u64 = 16;

/// Decodes all elements of an array of variable size, if their values have at most `most_bytes`. `pipeline` is
/// that of the first chunk.
///
/// # Errors
/// [`StoreError::TooLarge`], [`StoreError::Unsupported`] for another data type, or the error of a
/// chunk that cannot be read.
pub async fn read_elements(
    source: DocumentRef<'_>,
    key: &Key,
    metadata: &zarr::Array,
    pipeline: &Pipeline,
    most_bytes: u64,
    engine: &Engine,
) -> Result<Fetched<Elements>, StoreError> {
    let read = |reads| elements_under(reads, key, metadata, pipeline, most_bytes, engine);
    source.fetch(read).await
}

async fn elements_under(
    reads: DocumentReads<'_>,
    key: &Key,
    metadata: &zarr::Array,
    pipeline: &Pipeline,
    most_bytes: u64,
    engine: &Engine,
) -> Result<Elements, StoreError> {
    let unsupported = |what: String| StoreError::Unsupported {
        key: key.clone(),
        what,
    };
    let parts = metadata
        .decodable()
        .map_err(|error| unsupported(error.to_string()))?;
    let DataType::Variable(variable) = parts.data_type else {
        return Err(unsupported("elements of constant size".into()));
    };
    let fill = fill_element(variable, parts.fill_value);
    // Chunks of several shapes have a pipeline each; that of the largest chunk takes the most memory.
    let is_regular = parts.grid.regular_chunk_shape().is_some();
    let pipelines = (!is_regular).then(|| Pipelines::new(metadata));
    let pipeline_of = |key: &Key, shape| {
        let own = pipelines.as_ref().map(|all| all.get(key, shape));
        own.transpose()
    };
    let largest = pipeline_of(key, parts.grid.largest_chunk_shape())?;
    let largest = largest.as_deref().unwrap_or(pipeline);
    let budget = Budget::new(key, parts.grid, &fill, largest, most_bytes, engine)?;
    let memory_bytes = budget.memory_bytes(largest);
    let reserved = engine.reserve(key, memory_bytes).await?;
    let length = usize::try_from(parts.grid.element_count()).unwrap_or(usize::MAX);
    let mut elements = Vec::new();
    elements
        .try_reserve_exact(length)
        .map_err(|_| too_large(key, budget.result_bytes, 0))?;
    elements.resize(length, fill);
    let mut value_bytes = 0_u64;
    for chunk in 0..parts.grid.chunk_count() {
        if chunk.is_multiple_of(PAUSE_CHUNKS) {
            leave_session_thread().await;
        }
        let chunk_key = stored_key(key, parts.grid, parts.chunk_keys, chunk)?;
        let used = budget.result_bytes.saturating_add(value_bytes);
        let left = budget.limit_bytes.saturating_sub(used);
        let hint = AccessHint::Whole(left);
        let Some(object) = present(reads.open(&chunk_key, hint).await)? else {
            continue;
        };
        let Some(left) = left.checked_sub(object.size_bytes()) else {
            let need_bytes = used.saturating_add(object.size_bytes());
            return Err(too_large(key, need_bytes, budget.limit_bytes));
        };
        let no_position = || StoreError::Internal {
            key: chunk_key.clone(),
            what: format!("an element of chunk {chunk} has no place in the array"),
        };
        let (origin, shape) = extent_of(parts.grid, chunk).ok_or_else(no_position)?;
        let own = pipeline_of(&chunk_key, shape.clone())?;
        let own = own.as_deref().unwrap_or(pipeline);
        let decoded = decode_elements(&*object, &chunk_key, own, left, None).await?;
        value_bytes = value_bytes.saturating_add(decoded.iter().map(size_of_element).sum());
        if value_bytes > most_bytes {
            return Err(too_large(key, value_bytes, most_bytes));
        }
        let array_shape = parts.grid.array_shape();
        place(&mut elements, array_shape, &origin, &shape, decoded).ok_or_else(no_position)?;
    }
    Ok(Elements {
        elements,
        _memory: Some(reserved),
    })
}

fn too_large(key: &Key, need_bytes: u64, limit_bytes: u64) -> StoreError {
    StoreError::TooLarge {
        key: key.clone(),
        need_bytes,
        limit_bytes,
    }
}

/// The memory for all elements of an array, in bytes.
struct Budget {
    /// The elements, each a copy of the fill value.
    result_bytes: u64,
    /// All elements and their values, and those of one chunk. A stored chunk is about as long as its values.
    limit_bytes: u64,
}

impl Budget {
    fn new(
        key: &Key,
        grid: &ChunkGrid,
        fill: &Element,
        pipeline: &Pipeline,
        most_bytes: u64,
        engine: &Engine,
    ) -> Result<Self, StoreError> {
        let element_bytes = size_of::<Element>() as u64;
        let filled_bytes = element_bytes.saturating_add(heap_bytes(fill));
        let result_bytes = grid.element_count().saturating_mul(filled_bytes);
        // The elements of a chunk are in a list of their own.
        let edges = grid.largest_chunk_shape();
        let in_chunk = edges.iter().fold(1_u64, |n, edge| n.saturating_mul(*edge));
        let chunk_bytes = in_chunk.saturating_mul(element_bytes + ENCODED_ELEMENT_BYTES);
        let elements_bytes = result_bytes.saturating_add(chunk_bytes);
        let most_elements_bytes = engine.memory_limit_bytes() / ELEMENTS_PART;
        if elements_bytes > most_elements_bytes {
            return Err(too_large(key, elements_bytes, most_elements_bytes));
        }
        let limit_bytes = elements_bytes.saturating_add(most_bytes.saturating_mul(2));
        let memory = |limit| with_decoding(pipeline, limit);
        Ok(Self {
            result_bytes,
            limit_bytes: fitting(limit_bytes, engine.memory_limit_bytes(), memory),
        })
    }

    /// Returns the memory to reserve, which includes intermediate results between codecs.
    fn memory_bytes(&self, pipeline: &Pipeline) -> u64 {
        with_decoding(pipeline, self.limit_bytes)
    }
}

fn with_decoding(pipeline: &Pipeline, limit_bytes: u64) -> u64 {
    limit_bytes.saturating_add(pipeline.variable_memory_bytes(limit_bytes))
}

/// Returns the first element of a chunk, and its shape.
fn extent_of(grid: &ChunkGrid, chunk: u64) -> Option<(Vec<u64>, Vec<u64>)> {
    let index = grid.index(chunk)?;
    Some((grid.chunk_origin(&index)?, grid.chunk_shape(&index)?))
}

/// Returns the largest limit, up to `most_bytes`, that needs at most `free_bytes` of memory.
/// `memory` returns the memory that a limit needs.
pub(super) fn fitting(most_bytes: u64, free_bytes: u64, memory: impl Fn(u64) -> u64) -> u64 {
    let mut limit = most_bytes.min(free_bytes);
    while limit > 0 && memory(limit) > free_bytes {
        limit = limit / 8 * 7;
    }
    limit
}

/// The limit of the first attempt to decode the elements of a chunk, in bytes.
const FIRST_TRY_BYTES: u64 = 1 << 20;

/// Decodes a chunk of elements of variable size. Since its decoded size is unknown, decoding is
/// repeated with a growing limit, up to `most_bytes`. With an engine, the memory of each attempt is
/// reserved.
///
/// # Errors
/// The error of decoding the chunk, or of reserving memory.
pub(super) async fn decode_elements(
    object: &dyn Object,
    key: &Key,
    pipeline: &Pipeline,
    most_bytes: u64,
    engine: Option<&Engine>,
) -> Result<Vec<Element>, StoreError> {
    let encoded_bytes = object.size_bytes();
    let mut limit = FIRST_TRY_BYTES
        .max(encoded_bytes.saturating_mul(8))
        .min(most_bytes);
    loop {
        let decoding = pipeline.variable_memory_bytes(limit);
        let _memory = match engine {
            Some(engine) => Some(
                engine
                    .reserve(key, decoding.saturating_add(encoded_bytes))
                    .await?,
            ),
            None => None,
        };
        let length = usize::try_from(limit).unwrap_or(usize::MAX);
        let decoded = with_bytes(object, key, 0..encoded_bytes, |encoded| {
            pipeline
                .decode_variable(encoded, length)
                .map_err(|error| codec_error(key, None, error))
        });
        match decoded.await {
            Err(_) if limit < most_bytes => limit = limit.saturating_mul(16).min(most_bytes),
            decoded => return decoded,
        }
    }
}

/// Copies the elements of a chunk to their positions; elements beyond the edge of the array are
/// left out. `None` if an inner element has no position.
fn place(
    elements: &mut [Element],
    shape: &[u64],
    origin: &[u64],
    chunk_shape: &[u64],
    chunk: Vec<Element>,
) -> Option<()> {
    for (number, element) in (0_u64..).zip(chunk) {
        let (mut left, mut at, mut stride) = (number, 0, 1);
        let axes = shape.iter().zip(origin).zip(chunk_shape);
        let inside = axes.rev().all(|((length, origin), edge)| {
            let position = origin + left % edge;
            left /= edge;
            at += position * stride;
            stride *= length;
            position < *length
        });
        if inside {
            *elements.get_mut(usize::try_from(at).ok()?)? = element;
        }
    }
    Some(())
}

pub(super) fn size_of_element(element: &Element) -> u64 {
    let bytes = match element {
        Element::Text(text) => text.len(),
        Element::Bytes(bytes) | Element::Array(bytes) => bytes.len(),
        Element::Json(value) => value.to_string().len(),
    };
    bytes as u64
}

/// Returns the heap bytes of an element. JSON takes up to 64 bytes for each byte of text.
fn heap_bytes(element: &Element) -> u64 {
    let value_bytes = size_of::<serde_json::Value>() as u64;
    match element {
        Element::Json(value) if value.is_null() => value_bytes,
        Element::Json(value) => {
            value_bytes.saturating_add((value.to_string().len() as u64).saturating_mul(64))
        }
        element => size_of_element(element),
    }
}

fn fill_element(variable: &Variable, fill: &FillValue) -> Element {
    match (variable, fill) {
        (Variable::Text, FillValue::Variable(serde_json::Value::String(text))) => {
            Element::Text(text.clone())
        }
        (Variable::Text, _) => Element::Text(String::new()),
        (Variable::Bytes, fill) => Element::Bytes(fill.variable_bytes().unwrap_or_default()),
        (Variable::Array(_), _) => Element::Array(Vec::new()),
        (Variable::Object, FillValue::Variable(value)) => Element::from(value.clone()),
        (Variable::Object, _) => Element::from(serde_json::Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_elements_fits_into_memory_with_what_decoding_takes() {
        assert_eq!(fitting(100, 1000, |limit| limit * 3), 100);
        let limit = fitting(1 << 20, 1 << 20, |limit| limit * 4 + 1000);
        assert!(limit * 4 + 1000 <= 1 << 20 && limit > 1 << 17, "{limit}");
        assert_eq!(fitting(1 << 20, 10, |_| 11), 0);
    }

    #[test]
    fn a_chunk_at_the_edge_leaves_out_what_is_beyond() {
        let mut elements = vec![Element::Text(String::new()); 6];
        let chunk = ["a", "b", "c", "d"].map(|text| Element::Text(text.into()));
        place(&mut elements, &[2, 3], &[0, 2], &[2, 2], chunk.into()).unwrap();
        let chunk = vec![Element::Text(String::new()); 4];
        let mut too_few = vec![Element::Text(String::new()); 5];
        assert!(place(&mut too_few, &[2, 3], &[0, 2], &[2, 2], chunk).is_none());
        let texts: Vec<String> = elements
            .iter()
            .map(|element| match element {
                Element::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["", "", "a", "", "", "c"]);
    }
}
