//! Tests of arrays that are newer than their copies in consolidated metadata.

use super::*;

/// Returns a remote store of one array `x`, with another copy of its document in the metadata of the root.
fn with_copy(own: Option<&Value>, copy: &Value, values: &[(&str, &[u8])]) -> TestStore {
    let text = |value: &Value| value.to_string().into_bytes();
    let root = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata":
        {"kind": "inline", "must_understand": false, "metadata": {"x": copy}}});
    let mut all = vec![(key("zarr.json"), text(&root))];
    all.extend(own.map(|own| (key("x/zarr.json"), text(own))));
    all.extend(
        values
            .iter()
            .map(|(name, value)| (key(name), value.to_vec())),
    );
    TestStore::remote(MemoryStore::new(all))
}

fn as_v2(store: TestStore) -> Translated {
    let target = Target::V2;
    let ttl = Duration::from_secs(60);
    Translated::new(Arc::new(store), Key::root(), target, ttl, engine())
}

#[test]
fn chunks_of_an_array_that_was_written_again_are_no_chunks_of_its_older_copy() {
    let copy = array(&[]);
    let row: &[u8] = &[7; 8];
    let cases = [
        ("data type", array(&[("data_type", json!("int8"))])),
        ("fill value", array(&[("fill_value", json!(1))])),
        (
            "chunk shape",
            array(&[(
                "chunk_grid",
                json!({"name": "regular", "configuration": {"chunk_shape": [3, 4]}}),
            )]),
        ),
        (
            "key encoding",
            array(&[(
                "chunk_key_encoding",
                json!({"name": "default", "configuration": {"separator": "."}}),
            )]),
        ),
        ("codecs", array(&[("codecs", json!([little(), "crc32c"]))])),
        ("rank", array(&[("shape", json!([3]))])),
        ("group", json!({"zarr_format": 3, "node_type": "group"})),
        ("no node", json!({"zarr_format": 3})),
    ];
    for (what, own) in cases {
        let v2 = as_v2(with_copy(Some(&own), &copy, &[("x/c/0/0", row)]));
        // A chunk that exists, and one that is absent under the keys of the copy.
        let errors = [read(&v2, "x/0/0"), stat(&v2, "x/1/0").map(|_| Vec::new())];
        for error in errors.map(Result::unwrap_err) {
            assert!(matches!(error, StoreError::Stale { .. }), "{what}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("consolidated metadata are stale"),
                "{what}: {text}"
            );
            assert!(text.contains("outside of as-v2"), "{what}: {text}");
        }
    }
    let changed = array(&[("data_type", json!("int8"))]);
    let store = with_copy(Some(&changed), &copy, &[("x/c/0/0", row)]);
    let reads = Arc::clone(&store.reads);
    let v2 = as_v2(store);
    assert!(stat(&v2, "x/0/0").is_err());
    let before = reads.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert!(open(&v2, "x/0/0").is_err());
    }
    assert_eq!(reads.load(Ordering::Relaxed), before, "the result is kept");
    let v2 = as_v2(with_copy(None, &copy, &[("x/c/0/0", row)]));
    let error = read(&v2, "x/0/0").unwrap_err().to_string();
    assert!(error.contains("the array is not there any more"), "{error}");
}

#[test]
fn an_array_that_grew_is_read_in_the_shape_of_its_copy() {
    let row: &[u8] = &[7; 8];
    let values = [("x/c/0/0", row), ("x/c/4/0", row)];
    let own = array(&[("shape", json!([9, 4])), ("attributes", json!({"a": 1}))]);
    let store = with_copy(Some(&own), &array(&[]), &values);
    let reads = Arc::clone(&store.reads);
    let v2 = as_v2(store);
    assert_eq!(parsed(&v2, "x/.zarray")["shape"], json!([3, 4]));
    let before = reads.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(read(&v2, "x/0/0").unwrap(), row);
    }
    // One read of the document of the array, and three of the chunk.
    assert_eq!(reads.load(Ordering::Relaxed) - before, 4);
    assert!(is_absent(stat(&v2, "x/1/0")));
    assert!(is_absent(stat(&v2, "x/4/0")));
}
