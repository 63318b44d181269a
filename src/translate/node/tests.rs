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
fn shards_that_other_codecs_go_around_are_left_out() {
    let mut array = sharded();
    let codecs = array["codecs"].as_array_mut().unwrap();
    codecs.push(json!({"name": "gzip", "configuration": {"level": 1}}));
    for target in [Target::V2, Target::Unsharded] {
        let found = translate(target, &v3(&array), Some(&array));
        assert!(
            matches!(&found, Translation::LeftOut(why) if why == "shards that other codecs go around"),
            "{found:?}"
        );
    }
    assert!(matches!(
        translate(Target::V3, &v3(&array), None),
        Translation::Same
    ));
}

#[test]
fn names_of_axes_go_both_ways() {
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
    let Translation::LeftOut(why) = translate(Target::Unsharded, &node, None) else {
        panic!();
    };
    assert_eq!(why, "it is not of version 3");
}

#[test]
fn copies_in_a_group_are_of_the_arrays_that_are_shown() {
    let mut group = json!({"zarr_format": 3, "node_type": "group"});
    assert!(matches!(
        translate(Target::Unsharded, &v3(&group), Some(&group)),
        Translation::Group(None)
    ));
    let mut around = sharded();
    around["codecs"]
        .as_array_mut()
        .unwrap()
        .push("crc32c".into());
    group["consolidated_metadata"] = json!({"kind": "inline", "must_understand": false,
        "metadata": {"x": sharded(), "around": around,
            "g": {"zarr_format": 3, "node_type": "group"}}});
    let [(_, found)] = &document(translate(Target::Unsharded, &v3(&group), Some(&group)))[..]
    else {
        panic!();
    };
    let metadata = found["consolidated_metadata"]["metadata"]
        .as_object()
        .unwrap();
    let names: Vec<&String> = metadata.keys().collect();
    assert_eq!(names, ["g", "x"]);
    let chunks = &metadata["x"]["chunk_grid"]["configuration"]["chunk_shape"];
    assert_eq!(*chunks, json!([2, 4]));
}
