//! Chunks of a translation whose source is replaced by an array with other metadata while they are opened.

use super::*;
use crate::store::ReplacedStore;

/// Returns a translated store, of which the document of the array is cached, and which replaces the array when
/// `chunk` is looked up.
fn translated(
    target: Target,
    before: &[(&str, &[u8])],
    after: &[(&str, &[u8])],
    chunk: &str,
    document: &str,
) -> Translated {
    let store = ReplacedStore::new(before, after, chunk);
    let ttl = Duration::from_secs(60);
    let translated = Translated::new(Arc::new(store.clone()), Key::root(), target, ttl, engine());
    read(&translated, document).unwrap();
    store.arm();
    translated
}

fn is_stale<T: std::fmt::Debug>(result: Result<T, StoreError>, document: &str) {
    match result {
        Err(StoreError::Stale { key: found, .. }) => assert_eq!(found, key(document)),
        other => panic!("{other:?}"),
    }
}

/// Calls `stat` and `open` for a chunk of a translation, each while the source is replaced.
fn both_are_stale(
    target: Target,
    before: &[(&str, &[u8])],
    after: &[(&str, &[u8])],
    (source, chunk): (&str, &str),
    (own, document): (&str, &str),
) {
    let translated = || translated(target, before, after, source, document);
    is_stale(stat(&translated(), chunk), own);
    is_stale(open(&translated(), chunk), own);
}

#[test]
fn an_absent_chunk_under_another_document_is_stale() {
    let document = |fill: u8| {
        json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": null,
            "fill_value": fill, "order": "C", "filters": null})
        .to_string()
    };
    let (old, new) = (document(1), document(2));
    let before: [(&str, &[u8]); 2] = [("a/.zarray", old.as_bytes()), ("a/0", b"abcd")];
    let after: [(&str, &[u8]); 1] = [("a/.zarray", new.as_bytes())];
    let names = ("a/.zarray", "a/zarr.json");
    both_are_stale(Target::V3, &before, &after, ("a/0", "a/c/0"), names);
}

#[test]
fn an_absent_decoded_chunk_under_another_document_is_stale() {
    let document = |block: u8| {
        json!({"dimensions": [4], "blockSize": [block], "dataType": "uint8",
            "compression": {"type": "raw"}})
        .to_string()
    };
    let root = r#"{"n5": "2.0.0"}"#;
    let (old, new) = (document(4), document(2));
    let block = [0, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4];
    let before: [(&str, &[u8]); 3] = [
        ("attributes.json", root.as_bytes()),
        ("a/attributes.json", old.as_bytes()),
        ("a/0", &block),
    ];
    let after = &before[..2];
    let after = [after[0], ("a/attributes.json", new.as_bytes())];
    let names = ("a/attributes.json", "a/.zarray");
    both_are_stale(Target::V2, &before, &after, ("a/0", "a/0"), names);
}

#[test]
fn an_inner_chunk_of_a_shard_under_another_document_is_stale() {
    let document = |fill: u8| {
        json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": fill,
            "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [4],
                "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes",
                "configuration": {"endian": "little"}}]}}]})
        .to_string()
    };
    let (old, new) = (document(1), document(2));
    let mut shard = b"abcd".to_vec();
    shard.extend(0_u64.to_le_bytes());
    shard.extend(4_u64.to_le_bytes());
    let before: [(&str, &[u8]); 2] = [("a/zarr.json", old.as_bytes()), ("a/c/0", &shard)];
    let after = [("a/zarr.json", new.as_bytes()), before[1]];
    let names = ("a/zarr.json", "a/.zarray");
    both_are_stale(Target::V2, &before, &after, ("a/c/0", "a/0"), names);
}

#[test]
fn a_chunk_of_text_under_another_document_is_stale() {
    let document = |fill: Value| {
        json!({"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": null,
            "fill_value": fill, "order": "C", "filters": [{"id": "json2", "encoding": "utf-8"}]})
        .to_string()
    };
    let (old, new) = (document(json!("")), document(json!(0)));
    let chunk = br#"["text", "|O", [1]]"#;
    let before: [(&str, &[u8]); 2] = [("a/.zarray", old.as_bytes()), ("a/0", chunk)];
    let after = [("a/.zarray", new.as_bytes()), before[1]];
    let names = ("a/.zarray", "a/zarr.json");
    both_are_stale(Target::V3, &before, &after, ("a/0", "a/c/0"), names);
}
