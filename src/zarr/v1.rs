//! Zarr version 1 (zarr-python 2.18, `docs/spec/v1.rst`): one array, without groups. Its document `meta`
//! differs from that of version 2 only in the way it names the compressor.

use serde_json::{Map, Value, json};

use super::document::parse;

/// The key of the document of a v1 array.
pub const META: &str = "meta";

/// The key of the attributes of a v1 array.
pub const ATTRS: &str = "attrs";

/// Returns the `.zarray` of a v1 array; `None` if the document is not a `meta` of version 1.
pub fn zarray(meta: &[u8]) -> Option<Vec<u8>> {
    let meta = parse(meta).ok()?;
    let is_v1 = meta.get("zarr_format").and_then(Value::as_u64) == Some(1);
    let has = |name: &str| meta.get(name).is_some();
    if !is_v1 || !has("shape") || !has("chunks") || !has("dtype") {
        return None;
    }
    let mut document = Map::from_iter([("zarr_format".to_owned(), json!(2))]);
    for name in ["shape", "chunks", "dtype", "fill_value", "order"] {
        let member = meta.get(name).cloned().unwrap_or_default();
        document.insert(name.to_owned(), member);
    }
    document.insert("filters".to_owned(), Value::Null);
    document.insert("compressor".to_owned(), compressor(&meta));
    Some(Value::Object(document).to_string().into_bytes())
}

/// Returns the compressor in the form of numcodecs.
fn compressor(meta: &Value) -> Value {
    let name = match meta.get("compression") {
        None | Some(Value::Null) => return Value::Null,
        Some(Value::String(name)) if name == "none" => return Value::Null,
        Some(name) => name,
    };
    let options = meta.get("compression_opts").unwrap_or(&Value::Null);
    let mut codec = match options {
        Value::Object(options) => options.clone(),
        Value::Null => Map::new(),
        level => Map::from_iter([("level".to_owned(), level.clone())]),
    };
    codec.insert("id".to_owned(), name.clone());
    codec.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{Array, CodecChain};

    fn array(changes: Value) -> Array {
        let mut meta = json!({"chunks": [10, 10], "compression": "zlib", "compression_opts": 1,
            "dtype": "<i4", "fill_value": 42, "order": "C", "shape": [20, 20], "zarr_format": 1});
        let members = meta.as_object_mut().unwrap();
        members.extend(changes.as_object().cloned().unwrap());
        let text = zarray(meta.to_string().as_bytes()).unwrap();
        Array::from_v2(&text, None).unwrap()
    }

    fn codec(array: &Array) -> String {
        match array.codecs.as_ref().unwrap() {
            CodecChain::V2 {
                compressor: Some(spec),
                ..
            } => format!("{} {}", spec.name, Value::from(spec.configuration.clone())),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn arrays_of_version_1_are_those_of_version_2_with_other_names_of_compressors() {
        // The examples of the specification.
        let zlib = array(json!({}));
        assert!(zlib.decodable().is_ok());
        assert_eq!(codec(&zlib), r#"zlib {"level":1}"#);
        let blosc = array(
            json!({"compression": "blosc", "fill_value": null, "dtype": "<f8",
            "compression_opts": {"clevel": 5, "cname": "lz4", "shuffle": 1}}),
        );
        assert!(blosc.decodable().is_ok());
        assert_eq!(
            codec(&blosc),
            r#"blosc {"clevel":5,"cname":"lz4","shuffle":1}"#
        );
        for none in [json!(null), json!("none")] {
            let plain = array(json!({"compression": none, "compression_opts": null}));
            let CodecChain::V2 { compressor, .. } = plain.codecs.unwrap() else {
                panic!("{none}");
            };
            assert_eq!(compressor, None);
        }
        let fields = array(json!({"dtype": [["r", "|u1"], ["g", "|u1"]], "fill_value": null}));
        assert!(fields.decodable().is_ok());
    }

    #[test]
    fn other_documents_are_not_of_version_1() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i4"}"#,
            r#"{"zarr_format": 1, "shape": [1], "chunks": [1]}"#,
            r#"{"zarr_format": "1", "shape": [1], "chunks": [1], "dtype": "<i4"}"#,
        ] {
            assert_eq!(zarray(text.as_bytes()), None, "{text}");
        }
    }
}
