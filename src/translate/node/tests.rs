use super::*;

fn document(translation: Translation) -> Vec<(&'static str, Value)> {
    match translation {
        Translation::Group(Some(texts)) | Translation::Array(texts, _) => texts,
        other => panic!("{other:?}"),
    }
}

fn v3(document: &Value) -> Node {
    let text = document.to_string();
    let documents = crate::zarr::Documents {
        zarr_json: Some(text.as_bytes()),
        ..Default::default()
    };
    documents.node().unwrap().node.unwrap()
}

fn sharded() -> Value {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    json!({"zarr_format": 3, "node_type": "array", "shape": [5, 7], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN", "dimension_names": ["y", "x"], "attributes": {"units": "K"},
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 4],
            "codecs": [little, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
            "index_codecs": [little, "crc32c"]}}]})
}

fn translate(target: Target, node: &Node, raw: Option<&Value>) -> Translation {
    super::translate(target, node, raw, false)
}

#[test]
fn a_sharded_array_has_the_inner_chunks_as_its_own() {
    let array = sharded();
    let texts = document(translate(Target::V2, &v3(&array), None));
    let expected = json!({"zarr_format": 2, "shape": [5, 7], "chunks": [2, 4], "dtype": "<f4",
        "compressor": {"id": "zstd", "level": 1}, "fill_value": "NaN", "order": "C",
        "filters": null, "dimension_separator": "/"});
    assert_eq!(texts[0], (".zarray", expected));
    let attributes = json!({"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"]});
    assert_eq!(texts[1], (".zattrs", attributes));
    let Translation::Array(texts, chunks) = translate(Target::Unsharded, &v3(&array), Some(&array))
    else {
        panic!();
    };
    let mut expected = array.clone();
    expected["chunk_grid"]["configuration"]["chunk_shape"] = json!([2, 4]);
    expected["codecs"] = array["codecs"][0]["configuration"]["codecs"].clone();
    assert_eq!(texts, [("zarr.json", expected)]);
    assert_eq!(chunks.grid.shape(), [3, 2]);
    let shards = chunks.shards.unwrap();
    let place = |index: &[u64]| shards.locate(index);
    assert_eq!(place(&[0, 0]), (vec![0, 0], vec![0]));
    assert_eq!(place(&[1, 1]), (vec![0, 1], vec![1]));
    assert_eq!(place(&[2, 1]), (vec![1, 1], vec![0]));
}

#[test]
fn shards_in_shards_are_opened_up_to_the_last() {
    let mut array = sharded();
    let deepest = array["codecs"][0].clone();
    let mut outer = deepest.clone();
    outer["configuration"]["chunk_shape"] = json!([4, 4]);
    outer["configuration"]["codecs"] = json!([deepest]);
    array["codecs"] = json!([outer]);
    array["chunk_grid"]["configuration"]["chunk_shape"] = json!([8, 4]);
    array["shape"] = json!([16, 8]);
    let Translation::Array(_, chunks) = translate(Target::V2, &v3(&array), None) else {
        panic!();
    };
    assert_eq!(chunks.grid.shape(), [8, 2]);
    let shards = chunks.shards.unwrap();
    assert_eq!(shards.locate(&[7, 1]), (vec![1, 1], vec![1, 1]));
    assert_eq!(shards.locate(&[2, 0]), (vec![0, 0], vec![1, 0]));
}

#[test]
fn shards_inside_other_codecs_are_omitted() {
    let mut array = sharded();
    let codecs = array["codecs"].as_array_mut().unwrap();
    codecs.push(json!({"name": "gzip", "configuration": {"level": 1}}));
    for target in [Target::V2, Target::Unsharded] {
        let found = translate(target, &v3(&array), Some(&array));
        assert!(
            matches!(&found, Translation::Unsupported(why) if why == "shards that other codecs go around"),
            "{found:?}"
        );
    }
    assert!(matches!(
        translate(Target::V3, &v3(&array), None),
        Translation::Same
    ));
}

#[test]
fn names_of_axes_are_translated_in_both_directions() {
    let zarray = br#"{"zarr_format": 2, "shape": [20, 30], "chunks": [10, 10], "dtype": ">i2",
        "order": "F", "fill_value": null, "filters": null,
        "compressor": {"id": "gzip", "level": 1}}"#;
    let zattrs = br#"{"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}"#;
    let documents = crate::zarr::Documents {
        zarray: Some(zarray),
        zattrs: Some(zattrs),
        ..Default::default()
    };
    let node = documents.node().unwrap().node.unwrap();
    let expected = json!({"zarr_format": 3, "node_type": "array", "shape": [20, 30],
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 10]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "gzip", "configuration": {"level": 1}}],
        "dimension_names": ["y", "x"], "attributes": {"units": "K"}});
    let there = document(translate(Target::V3, &node, None));
    assert_eq!(there, [("zarr.json", expected.clone())]);
    let back = document(translate(Target::V2, &v3(&expected), None));
    assert_eq!(back[0].1["dtype"], ">i2");
    assert_eq!(back[0].1["order"], "F");
    assert_eq!(back[1].1["_ARRAY_DIMENSIONS"], json!(["y", "x"]));
    let Translation::Unsupported(why) = translate(Target::Unsharded, &node, None) else {
        panic!();
    };
    assert_eq!(why, "it is not of version 3");
}

#[test]
fn an_unsharded_group_has_no_consolidated_metadata_of_shards() {
    let mut group = json!({"zarr_format": 3, "node_type": "group"});
    let made = |group: &Value| translate(Target::Unsharded, &v3(group), Some(group));
    assert!(matches!(made(&group), Translation::Group(None)));
    let without = group.clone();
    group["consolidated_metadata"] = json!({"kind": "inline", "must_understand": false,
        "metadata": {"x": sharded()}});
    assert_eq!(document(made(&group)), [("zarr.json", without)]);
}

#[test]
fn inner_codecs_are_unchanged() {
    let mut array = sharded();
    let little =
        json!({"name": "bytes", "configuration": {"endian": "little"}, "must_understand": true});
    let inner = json!([little, {"name": "numcodecs.bz2", "configuration": {}}, "crc32c"]);
    array["codecs"][0]["configuration"]["codecs"] = inner.clone();
    let texts = document(translate(Target::Unsharded, &v3(&array), Some(&array)));
    assert_eq!(texts[0].1["codecs"], inner);
}

#[test]
fn shards_whose_index_exceeds_the_limit_are_omitted() {
    let mut array = sharded();
    array["shape"] = json!([4_194_304, 4]);
    array["chunk_grid"]["configuration"]["chunk_shape"] = json!([4_194_304, 4]);
    array["codecs"][0]["configuration"]["chunk_shape"] = json!([1, 4]);
    for target in [Target::V2, Target::Unsharded] {
        let Translation::Unsupported(why) = translate(target, &v3(&array), Some(&array)) else {
            panic!();
        };
        assert_eq!(
            why,
            "shards with an index of 67108868 bytes, 67108864 are read at most"
        );
    }
}

fn v2(zarray: &Value, zattrs: &Value) -> Node {
    let (zarray, zattrs) = (zarray.to_string(), zattrs.to_string());
    let documents = crate::zarr::Documents {
        zarray: Some(zarray.as_bytes()),
        zattrs: Some(zattrs.as_bytes()),
        ..Default::default()
    };
    documents.node().unwrap().node.unwrap()
}

#[test]
fn names_of_axes_are_those_of_the_document() {
    let attributes = |names: Value, own: Value| {
        let mut array = sharded();
        array["dimension_names"] = names;
        array["attributes"] = json!({"_ARRAY_DIMENSIONS": own});
        let texts = document(translate(Target::V2, &v3(&array), None));
        texts
            .get(1)
            .map(|(_, zattrs)| zattrs["_ARRAY_DIMENSIONS"].clone())
    };
    let both = |own| attributes(json!(["y", "x"]), own);
    assert_eq!(both(json!(["b", "a"])), Some(json!(["y", "x"])));
    assert_eq!(attributes(json!(["y", null]), json!(["b", "a"])), None);
    let own = attributes(json!(null), json!(["b", "a"]));
    assert_eq!(own, Some(json!(["b", "a"])));
}

#[test]
fn scalars_have_an_empty_list_of_axes() {
    let mut array = sharded();
    array.as_object_mut().unwrap().remove("dimension_names");
    array["shape"] = json!([]);
    array["chunk_grid"]["configuration"]["chunk_shape"] = json!([]);
    array["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let texts = document(translate(Target::V2, &v3(&array), None));
    assert_eq!(texts[1].1, json!({"units": "K", "_ARRAY_DIMENSIONS": []}));
    let zarray = json!({"zarr_format": 2, "shape": [], "chunks": [], "dtype": "<i2", "order": "C",
        "fill_value": -999, "filters": null, "compressor": null});
    for (zattrs, expected) in [
        (
            json!({"_ARRAY_DIMENSIONS": []}),
            json!({"_FillValue": -999}),
        ),
        (json!({}), json!({})),
    ] {
        let texts = document(translate(Target::V3, &v2(&zarray, &zattrs), None));
        assert_eq!(texts[0].1["attributes"], expected);
        assert!(texts[0].1.get("dimension_names").is_none());
    }
}

/// Changes random bytes of documents. Each translation must be read back as an array of the same
/// shape and type whose chunks can be decoded.
#[test]
fn translations_of_damaged_documents_are_valid_or_absent() {
    let zarray = json!({"zarr_format": 2, "shape": [20, 30], "chunks": [10, 10], "dtype": "<f4",
        "order": "F", "fill_value": -1.5, "dimension_separator": "/",
        "filters": [{"id": "delta", "dtype": "<f4"}],
        "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}});
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut made = 0;
    for (document, is_v3) in [(zarray, false), (sharded(), true)] {
        let text = document.to_string().into_bytes();
        for _ in 0..20_000 {
            let mut text = text.clone();
            for _ in 0..=random(3) {
                let at = random(text.len());
                match random(4) {
                    0 => text[at] = b"0123456789-<>|fiuScS[]{}\","[random(26)],
                    1 => _ = text.remove(at),
                    2 => text.insert(at, b"0123456789"[random(10)]),
                    _ => text[at] ^= 1 << random(7),
                }
            }
            let documents = crate::zarr::Documents {
                zarr_json: is_v3.then_some(&text),
                zarray: (!is_v3).then_some(&text),
                ..Default::default()
            };
            let Some(Ok(node)) = documents.node().map(|detected| detected.node) else {
                continue;
            };
            let raw = crate::zarr::document::parse(&text).ok();
            for target in Target::ALL {
                let Translation::Array(texts, chunks) = translate(target, &node, raw.as_ref())
                else {
                    continue;
                };
                made += 1;
                let own = node.as_array().unwrap();
                let text = texts[0].1.to_string();
                let documents = crate::zarr::Documents {
                    zarr_json: (texts[0].0 == "zarr.json").then_some(text.as_bytes()),
                    zarray: (texts[0].0 == ".zarray").then_some(text.as_bytes()),
                    ..Default::default()
                };
                let read = documents.node().unwrap().node.unwrap();
                let read = read.as_array().unwrap();
                let parts = read
                    .decodable()
                    .unwrap_or_else(|error| panic!("{error}: {text}"));
                assert_eq!(read.shape, own.shape);
                assert_eq!(parts.grid, &chunks.grid, "{text}");
                assert_eq!(*parts.chunk_keys, chunks.keys, "{text}");
                let own = own.decodable().unwrap();
                assert_eq!(parts.data_type.size_bytes(), own.data_type.size_bytes());
                let last: Vec<u64> = chunks
                    .grid
                    .shape()
                    .iter()
                    .map(|n| n.saturating_sub(1))
                    .collect();
                if let (Some(shards), true) = (&chunks.shards, chunks.grid.chunk_count() > 0) {
                    let (shard, _) = shards.locate(&last);
                    assert!(own.grid.contains(&shard), "{text}");
                }
                let shape = parts.grid.regular_chunk_shape().unwrap();
                let pipeline = crate::codec::Pipeline::new(
                    own.codecs,
                    own.data_type,
                    &own.grid.regular_chunk_shape().unwrap(),
                    own.fill_value,
                );
                if pipeline.is_ok() {
                    let again = crate::codec::Pipeline::new(
                        parts.codecs,
                        parts.data_type,
                        &shape,
                        parts.fill_value,
                    );
                    assert!(again.is_ok(), "{again:?}: {text}");
                }
            }
        }
    }
    assert!(made > 5000, "{made}");
}
