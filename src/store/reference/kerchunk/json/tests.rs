//! Tests with references of both versions, other JSON documents, and damaged ones.

use super::*;
use crate::store::Key;
use crate::store::reference::{Entry, Reference};

fn read(text: &str) -> Result<ReferenceIndex, JsonError> {
    let whole = read_in(text, usize::MAX);
    let pieces = read_in(text, 3);
    let told = |read: &Result<ReferenceIndex, JsonError>| match read {
        Ok(index) => format!("{} keys", index.len()),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(told(&whole), told(&pieces));
    whole
}

fn read_in(text: &str, piece: usize) -> Result<ReferenceIndex, JsonError> {
    let mut reader = JsonReader::references(1 << 20);
    let written = text
        .as_bytes()
        .chunks(piece)
        .try_for_each(|piece| reader.write_all(piece));
    if written.is_err() {
        return Err(reader.failure().unwrap());
    }
    reader.finish(&"test")
}

fn find(index: &ReferenceIndex, key: &str) -> Reference {
    match index.find(&Key::new(key.as_bytes()).unwrap()).unwrap() {
        Entry::Value(reference) => reference,
        Entry::Prefix => panic!("{key} is a prefix"),
    }
}

fn inline(index: &ReferenceIndex, key: &str) -> Vec<u8> {
    match find(index, key) {
        Reference::Inline(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn target(index: &ReferenceIndex, key: &str) -> (String, Option<std::ops::Range<u64>>) {
    match find(index, key) {
        Reference::Target { url, range, .. } => (url.to_string(), range),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_versions_have_the_same_references() {
    let refs = r#"{
        ".zgroup": "{\"zarr_format\":2}",
        "x/.zarray": {"shape": [1], "a": "}\""},
        "x/0": ["u\u0041/\"f\".nc", 5, 7],
        "x/1" : [ "whole.nc" ],
        "x/2": "base64:AAEC",
        "x/3": "text é"
    }"#;
    let framed = format!("\u{feff} {{\"version\":1, \"refs\": {refs}, \"gen\": [ ] }}\n");
    for text in [refs, &framed] {
        let index = read(text).unwrap();
        assert_eq!(inline(&index, ".zgroup"), b"{\"zarr_format\":2}");
        assert_eq!(
            inline(&index, "x/.zarray"),
            br#"{"shape": [1], "a": "}\""}"#
        );
        assert_eq!(target(&index, "x/0"), ("uA/\"f\".nc".into(), Some(5..12)));
        assert_eq!(target(&index, "x/1"), ("whole.nc".into(), None));
        assert_eq!(inline(&index, "x/2"), [0, 1, 2]);
        assert_eq!(inline(&index, "x/3"), "text é".as_bytes());
        assert_eq!(index.len(), 6);
    }
}

#[test]
fn templates_are_replaced_at_each_position() {
    let refs = r#""refs": {"x/0": ["{{u}}/a", 0, 1]}"#;
    let templates = r#""templates": {"u": "s3://b"}"#;
    for text in [
        format!("{{\"version\":1,{templates},{refs}}}"),
        format!("{{{refs},{templates},\"version\":1}}"),
    ] {
        let index = read(&text).unwrap();
        assert_eq!(target(&index, "x/0").0, "s3://b/a");
    }
}

#[test]
fn rules_and_functions_are_refused_by_name() {
    for (text, why) in [
        (r#"{"version":1,"refs":{},"gen":[{"key":"a"}]}"#, "`gen`"),
        (
            r#"{"version":1,"templates":{"f":"{{c}}"},"refs":{}}"#,
            "`f`",
        ),
        (r#"{"version":1,"refs":{"a":["{{g}}",0,1]}}"#, "`g`"),
        (r#"{"version":2,"refs":{}}"#, "version 2"),
    ] {
        let error = read(text).unwrap_err();
        let is_unsupported = matches!(error, JsonError::Reference(ReferenceError::Unsupported(_)));
        assert!(is_unsupported && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn json_of_other_kinds_is_not_recognized_as_references() {
    for text in [
        "",
        "[]",
        "{}",
        "text",
        "{\"a\": 1}",
        "{\"a\": \"b\"}",
        "{\"zarr_format\": 3, \"node_type\": \"group\"}",
        "{\"metadata\": {\".zgroup\": {}}, \"zarr_consolidated_format\": 1}",
        "{\"type\": \"FeatureCollection\", \"features\": [",
        "{\"refs\": {}}",
        "{\"version\": 1}",
    ] {
        assert!(matches!(read(text), Err(JsonError::Other)), "{text}");
    }
}

#[test]
fn damage_is_an_error_that_names_the_key() {
    let frame = |refs: &str| format!("{{\"version\":1,\"refs\":{{{refs}}}}}");
    for (refs, why) in [
        (r#""x/0": ["u", -1, 5]"#, "x/0"),
        (r#""x/0": ["u", 1, -5]"#, "x/0"),
        (r#""x/0": ["u", 1, 18446744073709551615]"#, "x/0"),
        (r#""x/0": ["u", 1e3, 5]"#, "x/0"),
        (r#""x/0": [null, 1, 5]"#, "x/0"),
        (r#""x/0": null"#, "x/0"),
        (r#""x/0": 5"#, "x/0"),
        (r#""x/0": "base64:%""#, "x/0"),
        (r#""x/0": {"a": }"#, "x/0"),
        (r#""x/0": "\ud800""#, "x/0"),
        (r#""x/0": ["u"],,"#, "x/0"),
        (r#""x/0": ["u"] "y": 1"#, "x/0"),
    ] {
        let error = read(&frame(refs)).unwrap_err();
        let is_invalid = matches!(error, JsonError::Reference(ReferenceError::Invalid(_)));
        assert!(
            is_invalid && error.to_string().contains(why),
            "{refs}: {error}"
        );
    }
    let whole = frame(r#"".zgroup": "{}""#);
    for end in 30..whole.len() {
        assert!(read(whole.get(..end).unwrap()).is_err(), "{end}");
    }
    assert!(read(&(whole + "x")).is_err());
}

#[test]
fn a_value_beyond_the_limit_is_refused() {
    let mut reader = JsonReader::references(10_000);
    let begun = reader.write_all(br#"{"version":1,"refs":{"x/0":"#);
    assert!(begun.is_ok());
    let failed = (0..100).find_map(|_| reader.write_all(&[b'['; 1000]).err());
    assert!(failed.is_some());
    let failure = reader.failure().unwrap();
    assert!(matches!(
        failure,
        JsonError::Reference(ReferenceError::TooLarge { .. })
    ));
}

#[test]
fn metadata_of_parquet_references_has_a_record_size() {
    let text = br#"{"metadata": {"x/.zarray": {}, ".zgroup": {}}, "record_size": 100}"#;
    let mut reader = JsonReader::metadata(1 << 20);
    reader.write_all(text).unwrap();
    let (index, record_size) = reader.finish_metadata(&"test").unwrap();
    assert_eq!((index.len(), record_size), (2, 100));
    let mut reader = JsonReader::metadata(1 << 20);
    reader
        .write_all(br#"{"metadata": {}, "zarr_consolidated_format": 1}"#)
        .unwrap();
    assert!(matches!(
        reader.finish_metadata(&"test"),
        Err(JsonError::Other)
    ));
}
