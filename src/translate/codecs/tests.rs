use super::*;
use crate::zarr::data_type::{v2, v3};

fn specs_v3(chain: &Value) -> Vec<CodecSpec> {
    let list = chain.as_array().unwrap().iter();
    list.map(|spec| CodecSpec::from_v3(spec).unwrap()).collect()
}

fn specs_v2(list: &[Value]) -> Vec<CodecSpec> {
    let spec = |spec: &Value| CodecSpec::from_v2("filters", spec).unwrap();
    list.iter().map(spec).collect()
}

fn down(data_type: &str, chain: Value) -> Result<V2Chain, String> {
    let data_type = v3::parse(&data_type.into()).unwrap();
    to_v2(&specs_v3(&chain), &data_type, 3)
}

/// Translates the codecs of a `.zarray` to v3; the last codec is the compressor.
fn up(dtype: &str, order: Order, list: Value) -> Result<Vec<Value>, String> {
    let specs = specs_v2(list.as_array().unwrap());
    let data_type = v2::parse(&dtype.into(), &specs).unwrap();
    match specs.split_last() {
        Some((last, filters)) if !matches!(data_type, DataType::Variable(_)) => {
            to_v3(order, filters, Some(last), &data_type, 3)
        }
        _ => to_v3(order, &specs, None, &data_type, 3),
    }
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

#[test]
fn a_checksum_that_numcodecs_cannot_decode_as_a_compressor_is_a_filter() {
    let fletcher32 = json!({"name": "numcodecs.fletcher32", "configuration": {}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}});
    let found = down("int32", json!([little(), fletcher32])).unwrap();
    assert_eq!(found.filters, [json!({"id": "fletcher32"})]);
    assert_eq!(found.compressor, Value::Null);
    let found = down("int32", json!([little(), fletcher32, zstd])).unwrap();
    assert_eq!(found.filters, [json!({"id": "fletcher32"})]);
    assert_eq!(found.compressor, json!({"id": "zstd", "level": 3}));
}

#[test]
fn chains_of_v3_become_filters_and_a_compressor() {
    let chain = json!([
        {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "blosc", "configuration": {"typesize": 4, "cname": "zstd", "clevel": 3,
            "shuffle": "bitshuffle", "blocksize": 0}},
        "crc32c"
    ]);
    let found = down("int32", chain).unwrap();
    let blosc = json!({"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0});
    let expected = V2Chain {
        byte_order: ByteOrder::Big,
        order: Order::F,
        filters: vec![blosc],
        compressor: json!({"id": "crc32c", "location": "end"}),
    };
    assert_eq!(found, expected);
    let delta = json!({"name": "numcodecs.delta", "configuration": {"astype": "<i2"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}});
    let found = down("int32", json!([delta, little(), zstd])).unwrap();
    assert_eq!(
        found.filters,
        [json!({"id": "delta", "astype": "<i2", "dtype": "<i4"})]
    );
    assert_eq!(found.compressor, json!({"id": "zstd", "level": 3}));
    let found = down("string", json!(["vlen-utf8", {"name": "numcodecs.bz2"}])).unwrap();
    assert_eq!(found.filters, [json!({"id": "vlen-utf8"})]);
    assert_eq!(found.compressor, json!({"id": "bz2"}));
    let found = down("uint8", json!(["bytes"])).unwrap();
    assert!(found.compressor.is_null() && found.filters.is_empty());
}

#[test]
fn an_element_size_that_is_not_written_is_that_of_the_version() {
    for configuration in [json!({}), json!({"elementsize": null})] {
        let shuffle = json!({"name": "numcodecs.shuffle", "configuration": configuration});
        let found = down("float64", json!([little(), shuffle])).unwrap();
        assert_eq!(found.compressor, json!({"id": "shuffle", "elementsize": 8}));
        let found = down("string", json!(["vlen-utf8", shuffle]));
        assert_eq!(found, Err("codec shuffle of elements of any size".into()));
        let mut shuffle = configuration;
        shuffle["id"] = "shuffle".into();
        let found = up("<f8", Order::C, json!([shuffle])).unwrap();
        assert_eq!(found[1]["configuration"], json!({"elementsize": 4}));
    }
}

#[test]
fn parameters_for_writers_are_clamped_to_the_bounds_of_v3() {
    let configuration = |codec: Value| {
        let mut found = up("<f8", Order::C, json!([codec])).unwrap();
        found.remove(1)["configuration"].take()
    };
    for (id, level, expected) in [
        ("gzip", json!(-1), 0),
        ("gzip", json!(12), 9),
        ("gzip", json!("7"), 1),
        ("zstd", json!(25), 22),
        ("zstd", json!(-5), -5),
    ] {
        let found = configuration(json!({"id": id, "level": level}));
        assert_eq!(found["level"], expected, "{id} {level}");
    }
    let found = configuration(json!({"id": "blosc", "cname": "new", "clevel": "5",
        "shuffle": 1, "blocksize": null}));
    let expected = json!({"typesize": 8, "cname": "lz4", "clevel": 5, "shuffle": "shuffle",
        "blocksize": 0});
    assert_eq!(found, expected);
    assert_eq!(
        configuration(json!({"id": "blosc", "clevel": 10}))["clevel"],
        9
    );
}

#[test]
fn codecs_that_v2_cannot_decode_are_named() {
    let axes = |order: Value| json!({"name": "transpose", "configuration": {"order": order}});
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}});
    for (chain, why) in [
        (
            json!([axes(json!([1, 0, 2])), little()]),
            "transpose to [1,0,2] has no form in v2",
        ),
        (
            json!([axes(json!([2, 1])), little()]),
            "transpose to [2,1] has no form in v2",
        ),
        (
            json!([axes(json!([2, 1, 0])), axes(json!([2, 1, 0])), little()]),
            "codec transpose has no form in v2",
        ),
        (
            json!([delta, axes(json!([2, 1, 0])), little()]),
            "codec transpose has no form in v2",
        ),
        (
            json!([delta, {"name": "bytes", "configuration": {"endian": "big"}}]),
            "filters of big-endian numbers",
        ),
        (
            json!([{"name": "numcodecs.delta", "configuration": {"dtype": ">i4"}}, little()]),
            "codec numcodecs.delta of big-endian numbers",
        ),
        (json!([little(), "odd"]), "codec odd has no form in v2"),
        (json!([little(), "zlib"]), "codec zlib has no form in v2"),
        (json!(["packbits"]), "codec packbits has no form in v2"),
        (json!(["vlen-utf8"]), "codec vlen-utf8 has no form in v2"),
        (
            json!([axes(json!([0, 1, 2]))]),
            "no codec makes bytes of the array",
        ),
    ] {
        assert_eq!(down("int32", chain.clone()), Err(why.into()), "{chain}");
    }
}

#[test]
fn filters_and_a_compressor_become_a_chain_of_v3() {
    let name =
        |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    for (dtype, order, list, expected) in [
        ("<i4", Order::C, json!([]), json!([little()])),
        (
            ">i4",
            Order::F,
            json!([{"id": "zlib", "level": 1}]),
            json!([
                name("transpose", json!({"order": [2, 1, 0]})),
                name("bytes", json!({"endian": "big"})),
                name("numcodecs.zlib", json!({"level": 1}))
            ]),
        ),
        (
            "<f4",
            Order::C,
            json!([{"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0}]),
            json!([
                little(),
                name(
                    "blosc",
                    json!({"typesize": 4, "cname": "lz4", "clevel": 5,
                "shuffle": "shuffle", "blocksize": 0})
                )
            ]),
        ),
        (
            "<i4",
            Order::C,
            json!([{"id": "delta", "dtype": "<i4", "astype": "<i2"}, {"id": "shuffle", "elementsize": 2},
                {"id": "zstd", "level": 1}]),
            json!([
                name("numcodecs.delta", json!({"dtype": "<i4", "astype": "<i2"})),
                little(),
                name("numcodecs.shuffle", json!({"elementsize": 2})),
                name("zstd", json!({"level": 1, "checksum": false}))
            ]),
        ),
        (
            "|O",
            Order::C,
            json!([{"id": "vlen-bytes"}, {"id": "gzip", "level": 9}]),
            json!([{"name": "vlen-bytes"}, name("gzip", json!({"level": 9}))]),
        ),
        (
            "|b1",
            Order::C,
            json!([{"id": "packbits"}, {"id": "crc32c"}]),
            json!([name("numcodecs.packbits", json!({})), {"name": "bytes"}, {"name": "crc32c"}]),
        ),
        (
            "<f8",
            Order::C,
            json!([{"id": "pcodec", "level": 8}]),
            json!([name("numcodecs.pcodec", json!({"level": 8}))]),
        ),
        (
            "<f4",
            Order::C,
            json!([{"id": "zfpy", "mode": 2, "rate": 8}]),
            json!([name("numcodecs.zfpy", json!({"mode": 2, "rate": 8}))]),
        ),
    ] {
        let found = up(dtype, order, list).map(Value::from);
        assert_eq!(found, Ok(expected), "{dtype}");
    }
}

#[test]
fn codecs_that_v3_cannot_decode_are_named() {
    for (dtype, list, why) in [
        (
            ">i4",
            json!([{"id": "delta", "dtype": ">i4"}, {"id": "zlib"}]),
            "codec delta of big-endian numbers",
        ),
        (
            "<M8[s]",
            json!([{"id": "delta", "dtype": "<i8"}, {"id": "zlib"}]),
            "codec delta of another type than the array",
        ),
        (
            "<f8",
            json!([{"id": "quantize", "digits": 3, "dtype": "<f8", "astype": "<f4"}]),
            "codec quantize to another type has no form in v3",
        ),
        (
            "<i4",
            json!([{"id": "zlib"}, {"id": "delta", "dtype": "<i4"}]),
            "codec delta has no form in v3",
        ),
        (
            "|u1",
            json!([{"id": "delta", "dtype": "|u1", "astype": "<i4"}, {"id": "zlib"}]),
            "filters that make more bytes of single ones have no form in v3",
        ),
        ("<i4", json!([{"id": "odd"}]), "codec odd has no form in v3"),
        (
            "|O",
            json!([{"id": "json2"}]),
            "codec json2 has no form in v3",
        ),
        (
            "<i4",
            json!([{"id": "packbits"}]),
            "codec packbits of other than booleans",
        ),
    ] {
        assert_eq!(up(dtype, Order::C, list), Err(why.into()), "{dtype}");
    }
}
