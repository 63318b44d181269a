//! Reads of an array whose document is replaced while a chunk is opened: the elements would be those of
//! another array.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::codec::Pipeline;
use crate::runtime::block_on;
use crate::store::{Data, HangingStore, Key, ReplacedStore, Store, StoreError, SyncStore};
use crate::zarr;

/// Chunks of this size are read directly from a local store.
const LARGE: usize = 64 << 10;
/// Chunks of this size are decoded.
const SMALL: usize = 4;

const DOCUMENT: &str = "a/zarr.json";
const CHUNK: &str = "a/c/0";

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// Returns the document of two chunks of text or of bytes.
fn document(chunk_bytes: usize, data_type: &str, codecs: &str, fill: &str) -> Vec<u8> {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{}], "data_type": "{data_type}",
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{chunk_bytes}]}}}},
        "chunk_key_encoding": {{"name": "default"}}, "fill_value": {fill}, "codecs": [{codecs}]}}"#,
        2 * chunk_bytes
    )
    .into_bytes()
}

/// Returns the document of an array of bytes with a fill value.
fn bytes_document(chunk_bytes: usize, fill: u8) -> Vec<u8> {
    document(
        chunk_bytes,
        "uint8",
        r#"{"name": "bytes"}"#,
        &fill.to_string(),
    )
}

/// What the replacement leaves at the key of the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The chunk of the array before, or one with equal bytes.
    Same,
    /// The chunk of another array.
    Other,
    /// No chunk.
    Absent,
}

fn replaced(before: &[u8], after: &[u8], chunk: &[u8], then: After) -> ReplacedStore {
    let other: Vec<u8> = chunk.iter().map(|byte| byte ^ 1).collect();
    let mut values = vec![(DOCUMENT, after)];
    match then {
        After::Same => values.push((CHUNK, chunk)),
        After::Other => values.push((CHUNK, &other)),
        After::Absent => {}
    }
    let before = [(DOCUMENT, before), (CHUNK, chunk)];
    ReplacedStore::new(&before, &values, CHUNK)
}

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        cache_bytes: 1 << 20,
        memory_limit_bytes: 256 << 20,
        parallel: 1,
        timeout: Duration::from_secs(2),
    };
    Arc::new(Engine::new(options).unwrap())
}

fn array_of(document: &[u8]) -> (zarr::Array, Arc<Pipeline>) {
    let array = zarr::Array::from_v3(document).unwrap();
    let parts = array.decodable().unwrap();
    let shape = parts.grid.largest_chunk_shape();
    let pipeline = Pipeline::new(parts.codecs, parts.data_type, &shape, parts.fill_value);
    let pipeline = Arc::new(pipeline.unwrap());
    (array, pipeline)
}

/// An array that was opened before it is replaced.
struct Opened {
    store: ReplacedStore,
    reader: Arc<ArrayReader>,
}

fn opened(chunk_bytes: usize, is_remote: bool, then: After) -> Opened {
    let before = bytes_document(chunk_bytes, 7);
    let after = bytes_document(chunk_bytes, 8);
    let store = replaced(&before, &after, &vec![1; chunk_bytes], then);
    let version = SyncStore::stat(&store, &key(DOCUMENT)).unwrap().version;
    let source: Arc<dyn Store> = match is_remote {
        true => {
            let (inner, gate) = (Box::new(store.clone()), PathBuf::from("/nonexistent"));
            Arc::new(HangingStore::new(inner, gate, Duration::from_secs(1)))
        }
        false => Arc::new(store.clone()),
    };
    let (array, pipeline) = array_of(&before);
    let document = Some((key(DOCUMENT), version));
    let ttl = Duration::from_secs(60);
    let reader = ArrayReader::open(source, key("a"), &array, pipeline, engine(), ttl, document);
    let reader = Arc::new(reader.unwrap());
    Opened { store, reader }
}

impl Opened {
    fn read(&self) -> Result<Data, StoreError> {
        let size = in_bytes(&self.reader);
        block_on(self.reader.read(Selection::RowMajor, 0, size, None))
    }
}

fn in_bytes(reader: &ArrayReader) -> usize {
    usize::try_from(reader.size_bytes()).unwrap()
}

fn is_stale<T: Debug>(result: Result<T, StoreError>, what: &str) {
    match result {
        Err(StoreError::Stale { key: found, .. }) => assert_eq!(found, key(DOCUMENT), "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_chunk_that_is_decoded_under_another_document_is_stale() {
    for is_remote in [false, true] {
        for then in [After::Same, After::Other, After::Absent] {
            let array = opened(SMALL, is_remote, then);
            array.store.arm();
            is_stale(array.read(), &format!("remote: {is_remote}, {then:?}"));
            // The chunk is not cached either.
            is_stale(
                array.read(),
                &format!("again, remote: {is_remote}, {then:?}"),
            );
        }
    }
}

#[test]
fn a_chunk_that_is_read_directly_under_another_document_is_stale() {
    for then in [After::Same, After::Other, After::Absent] {
        let array = opened(LARGE, false, then);
        array.store.arm();
        is_stale(array.read(), &format!("{then:?}"));
    }
}

#[test]
fn stored_bytes_that_are_read_under_another_document_are_stale() {
    for is_remote in [false, true] {
        let array = opened(SMALL, is_remote, After::Same);
        let table = block_on(array.reader.chunk_table()).unwrap();
        assert_eq!(table.len(), 1);
        array.store.arm();
        let read = block_on(array.reader.read_stored(&table, 0, SMALL, None));
        is_stale(read, &format!("remote: {is_remote}"));
    }
}

#[test]
fn a_table_of_chunks_under_another_document_is_stale() {
    for is_remote in [false, true] {
        for then in [After::Same, After::Absent] {
            let array = opened(SMALL, is_remote, then);
            array.store.arm();
            let table = block_on(array.reader.chunk_table());
            is_stale(table, &format!("remote: {is_remote}, {then:?}"));
        }
    }
}

/// Verifies a chunk that is replaced by a shorter one, together with the document or without it.
fn error_of_shorter_chunk(after: &[u8]) -> StoreError {
    let before = bytes_document(SMALL, 7);
    let (chunk, shorter) = ([1; SMALL], [1; SMALL - 1]);
    let store = ReplacedStore::new(
        &[(DOCUMENT, &before), (CHUNK, &chunk)],
        &[(DOCUMENT, after), (CHUNK, &shorter)],
        CHUNK,
    );
    let version = SyncStore::stat(&store, &key(DOCUMENT)).unwrap().version;
    let (array, _) = array_of(&before);
    let (engine, document) = (engine(), Some((key(DOCUMENT), version)));
    let source = Arc::new(store.clone());
    let verifier = Verifier::open(source, key("a"), &array, &engine, document).unwrap();
    store.arm();
    let mut errors = Vec::new();
    block_on(verifier.verify(0, &engine, &mut |error| errors.push(error)));
    assert_eq!(errors.len(), 1);
    errors.remove(0)
}

#[test]
fn a_bad_chunk_of_an_array_that_is_written_again_is_stale() {
    let other = error_of_shorter_chunk(&bytes_document(SMALL, 8));
    is_stale(Err::<(), _>(other), "another document");
    let same = error_of_shorter_chunk(&bytes_document(SMALL, 7));
    assert!(matches!(same, StoreError::Corrupt { .. }), "{same:?}");
}
