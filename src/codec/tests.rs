//! Tests of whole pipelines: chains, limits, shards, damage.

mod extensions;
mod virtual_tiff;

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::zarr::{
    ByteOrder, CodecChain, CodecSpec, DataType, FillValue, Fixed, Order, Scalar, Variable,
};

fn scalar(scalar: Scalar, size_bytes: usize) -> DataType {
    DataType::Fixed(Fixed { scalar, size_bytes })
}

fn u8s() -> DataType {
    scalar(Scalar::UInt(ByteOrder::Little), 1)
}

fn i32s() -> DataType {
    scalar(Scalar::Int(ByteOrder::Little), 4)
}

fn specs(codecs: &Value) -> Vec<CodecSpec> {
    let codecs = codecs.as_array().unwrap();
    codecs
        .iter()
        .map(|codec| CodecSpec::from_v3(codec).unwrap())
        .collect()
}

fn v3_of(data_type: &DataType, shape: &[u64], codecs: &Value) -> Result<Pipeline, CodecError> {
    let fill = match data_type {
        DataType::Fixed(fixed) => FillValue::Fixed(vec![7; fixed.size_bytes]),
        DataType::Variable(_) => FillValue::Variable(json!("gap")),
    };
    Pipeline::new(&CodecChain::V3(specs(codecs)), data_type, shape, &fill)
}

fn v3(codecs: &Value) -> Result<Pipeline, CodecError> {
    v3_of(&i32s(), &[2, 3], codecs)
}

fn v2(
    data_type: &DataType,
    shape: &[u64],
    order: Order,
    filters: &Value,
    compressor: &Value,
) -> Result<Pipeline, CodecError> {
    let spec = |value: &Value| CodecSpec::from_v2("codec", value).unwrap();
    let chain = CodecChain::V2 {
        order,
        filters: filters.as_array().unwrap().iter().map(spec).collect(),
        compressor: (!compressor.is_null()).then(|| spec(compressor)),
    };
    Pipeline::new(&chain, data_type, shape, &FillValue::Undefined)
}

fn decode(pipeline: &Pipeline, encoded: &[u8]) -> Result<Vec<u8>, CodecError> {
    let size = usize::try_from(pipeline.decoded_size_bytes().unwrap()).unwrap();
    let mut out = vec![0xa5; size];
    pipeline.decode(encoded, &mut out)?;
    Ok(out)
}

fn is_corrupt<T>(result: &Result<T, CodecError>) -> bool {
    matches!(result, Err(CodecError::Corrupt { .. }))
}

fn is_internal<T>(result: &Result<T, CodecError>) -> bool {
    matches!(result, Err(CodecError::Internal { .. }))
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn big() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "big"}})
}

fn crc32c(bytes: &[u8]) -> Vec<u8> {
    [bytes, &::crc32c::crc32c(bytes).to_le_bytes()].concat()
}

#[test]
fn an_uncompressed_chunk_is_the_identity_and_its_size_is_exact() {
    let pipeline = v3(&json!([little()])).unwrap();
    assert_eq!(pipeline.raw_header(), Some(&[][..]));
    assert_eq!(pipeline.encoded_size_bytes(), Some(24));
    let chunk: Vec<u8> = (0..24).collect();
    assert_eq!(decode(&pipeline, &chunk).unwrap(), chunk);
    for wrong in [&[][..], &chunk[..23], &[&chunk[..], &[0]].concat()] {
        assert!(is_corrupt(&decode(&pipeline, wrong)));
    }
    assert!(is_internal(&pipeline.decode(&chunk, &mut [0; 23])));
    assert!(is_internal(&pipeline.decode_variable(&chunk, 99)));
}

#[test]
fn buffers_between_codecs_are_counted() {
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let bytes = |chain: Value| v3(&chain).unwrap().scratch_bytes();
    assert_eq!(bytes(json!([little()])), 0);
    // The byte order changes in place.
    assert_eq!(bytes(json!([big(), zstd])), 0);
    assert_eq!(bytes(json!([transpose, little(), zstd])), 24);
    assert_eq!(bytes(json!([transpose, big(), zstd])), 24);
    // The compressed size of 24 bytes is not known exactly.
    assert!(bytes(json!([transpose, big(), gzip, zstd])) >= 48);
}

#[test]
fn byte_order_transpositions_and_checksums_combine() {
    let chain = json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, big(), "crc32c"]);
    let pipeline = v3(&chain).unwrap();
    assert_eq!(pipeline.describe(), "transpose(1, 0) | bytes(big) | crc32c");
    assert_eq!(pipeline.encoded_size_bytes(), Some(28));
    assert_eq!(pipeline.raw_header(), None);
    let stored: Vec<u8> = [0, 3, 1, 4, 2, 5i32]
        .iter()
        .flat_map(|v| v.to_be_bytes())
        .collect();
    let expected: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
    let chunk = crc32c(&stored);
    assert_eq!(decode(&pipeline, &chunk).unwrap(), expected);
    for bit in 0..chunk.len() * 8 {
        let mut bad = chunk.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(is_corrupt(&decode(&pipeline, &bad)));
    }
}

#[test]
fn checksums_between_compressors_are_verified() {
    let pipeline = v3(&json!([big(), "crc32c", "zstd", "crc32c", "gzip"])).unwrap();
    let stored: Vec<u8> = (0..6i32).flat_map(i32::to_be_bytes).collect();
    let frame = crc32c(&zstd::bulk::compress(&crc32c(&stored), 1).unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&frame).unwrap();
    let chunk = gzip.finish().unwrap();
    let expected: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
    assert_eq!(decode(&pipeline, &chunk).unwrap(), expected);
    let mut inner = crc32c(&stored);
    inner[0] ^= 1;
    let frame = crc32c(&zstd::bulk::compress(&inner, 1).unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&frame).unwrap();
    let error = decode(&pipeline, &gzip.finish().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("crc32c: the checksum is"), "{error}");
}

#[test]
fn order_f_is_the_reversal_of_all_axes() {
    let pipeline = v2(&u8s(), &[2, 3], Order::F, &json!([]), &Value::Null).unwrap();
    assert_eq!(
        decode(&pipeline, &[0, 3, 1, 4, 2, 5]).unwrap(),
        [0, 1, 2, 3, 4, 5]
    );
    let one = v2(&u8s(), &[6], Order::F, &json!([]), &Value::Null).unwrap();
    assert_eq!(one.raw_header(), Some(&[][..]));
}

#[test]
fn chains_that_are_too_long_or_in_the_wrong_order_are_invalid() {
    let mut long = vec![little()];
    long.extend(std::iter::repeat_n(json!("crc32c"), 31));
    assert!(v3(&json!(long)).is_ok());
    long.extend(std::iter::repeat_n(json!("crc32c"), 10_000));
    let invalid = |codecs: Value| {
        let error = v3(&codecs).unwrap_err();
        assert!(
            matches!(error, CodecError::Invalid { .. }),
            "{codecs} {error}"
        );
    };
    invalid(json!(long));
    invalid(json!(["crc32c"]));
    invalid(json!(["zstd", little()]));
    invalid(json!([little(), little()]));
    invalid(json!([little(), {"name": "transpose", "configuration": {"order": [1, 0]}}]));
    invalid(json!(["bytes"]));
    invalid(json!([{"name": "bytes", "configuration": {"endian": "middle"}}]));
    for order in [
        json!([0]),
        json!([0, 0]),
        json!([0, 2]),
        json!("X"),
        json!([0, -1]),
        Value::Null,
    ] {
        invalid(json!([{"name": "transpose", "configuration": {"order": order}}, little()]));
    }
    invalid(json!(["vlen-utf8"]));
    invalid(json!([{"name": "numcodecs.delta", "configuration": {"dtype": "<i2"}}, little()]));
}

#[test]
fn unknown_codecs_and_options_are_named() {
    for (codecs, name) in [
        (json!([little(), "lzo"]), "lzo"),
        (
            json!([{"name": "numcodecs.delta", "configuration": {"dtype": ">i4"}}, little()]),
            "big-endian",
        ),
    ] {
        match v3(&codecs) {
            Err(CodecError::Unsupported { name: found }) => {
                assert!(found.contains(name), "{found}")
            }
            other => panic!("{codecs}: {other:?}"),
        }
    }
    let pickled = v2(
        &DataType::Variable(Variable::Object),
        &[3],
        Order::C,
        &json!([{"id": "pickle"}]),
        &Value::Null,
    );
    assert_eq!(
        pickled.unwrap_err(),
        CodecError::Unsupported {
            name: "pickle".into()
        }
    );
}

#[test]
fn an_overflowing_chunk_is_invalid_and_a_huge_one_allocates_nothing() {
    let fill = FillValue::Undefined;
    let chain = CodecChain::V3(specs(&json!([little(), "zstd"])));
    assert!(Pipeline::new(&chain, &i32s(), &[u64::MAX, 2], &fill).is_err());
    assert!(Pipeline::new(&chain, &i32s(), &[1 << 62], &fill).is_err());
    let huge = Pipeline::new(&chain, &i32s(), &[1 << 40], &fill).unwrap();
    assert_eq!(huge.decoded_size_bytes(), Some(1 << 42));
    assert!(
        v3_of(
            &DataType::Variable(Variable::Text),
            &[u64::MAX],
            &json!(["vlen-utf8"])
        )
        .unwrap()
        .decode_variable(&[0xff; 64], 1 << 20)
        .is_err()
    );
}

#[test]
fn bombs_stop_at_the_expected_size() {
    let zeros = vec![0; 8 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&zeros).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&zeros).unwrap();
    let mut bzip = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip.write_all(&zeros).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&zeros).unwrap();
    // A frame without the size in its header.
    let mut zstd = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_contentsize(false).unwrap();
    zstd.write_all(&zeros).unwrap();
    for (codec, bomb) in [
        ("gzip", gzip.finish().unwrap()),
        ("numcodecs.zlib", zlib.finish().unwrap()),
        ("numcodecs.bz2", bzip.finish().unwrap()),
        ("numcodecs.lzma", xz.finish().unwrap()),
        ("zstd", zstd.finish().unwrap()),
    ] {
        let pipeline = v3(&json!([little(), codec])).unwrap();
        assert!(is_corrupt(&decode(&pipeline, &bomb)), "{codec}");
        // After another codec, the limit applies as well.
        let pipeline = v3(&json!([little(), "zstd", codec])).unwrap();
        assert!(is_corrupt(&decode(&pipeline, &bomb)), "{codec}");
        let exact = v3_of(&u8s(), &[8 << 20], &json!([little(), codec])).unwrap();
        assert!(decode(&exact, &bomb).unwrap() == zeros, "{codec}");
        let more = v3_of(&u8s(), &[(8 << 20) + 1], &json!([little(), codec])).unwrap();
        assert!(is_corrupt(&decode(&more, &bomb)), "{codec}");
    }
}

fn shard_codec(location: &str, codecs: &Value) -> Value {
    json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2, 2], "codecs": codecs, "index_location": location,
        "index_codecs": [little(), "crc32c"]}}])
}

/// Returns a shard of 4 x 4 bytes: inner chunks 0 and 3 are stored, 1 and 2 are not.
fn shard(location: &str, entries: [(u64, u64); 4]) -> Vec<u8> {
    let words = entries
        .iter()
        .flat_map(|(offset, length)| [*offset, *length]);
    let index = crc32c(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    let chunks = [0, 1, 2, 3, 30, 31, 32, 33];
    if location == "start" {
        [&index[..], &chunks].concat()
    } else {
        [&chunks[..], &index].concat()
    }
}

const ABSENT: (u64, u64) = (u64::MAX, u64::MAX);
const INDEX_BYTES: u64 = 68;

#[test]
fn a_shard_decodes_whole_and_by_inner_chunks() {
    for (location, base) in [("start", INDEX_BYTES), ("end", 0)] {
        let pipeline = v3_of(&u8s(), &[4, 4], &shard_codec(location, &json!(["bytes"]))).unwrap();
        let stored = shard(location, [(base, 4), ABSENT, ABSENT, (base + 4, 4)]);
        let expected = [[0, 1, 7, 7], [2, 3, 7, 7], [7, 7, 30, 31], [7, 7, 32, 33]].concat();
        assert_eq!(decode(&pipeline, &stored).unwrap(), expected);
        let sharding = pipeline.sharding().unwrap();
        assert_eq!(sharding.inner_grid(), [2, 2]);
        assert_eq!(sharding.inner_chunk_shape(), [2, 2]);
        assert_eq!(sharding.index_size_bytes(), INDEX_BYTES);
        let index = if location == "start" {
            &stored[..68]
        } else {
            &stored[8..]
        };
        let index = sharding.decode_index(index, stored.len() as u64).unwrap();
        assert_eq!(index.len(), 4);
        assert_eq!(index.entry(1).unwrap(), None);
        assert_eq!(index.entry(3).unwrap(), Some(base + 4..base + 8));
        assert!(is_internal(&index.entry(4)));
        assert_eq!(sharding.inner().raw_header(), Some(&[][..]));
        for n in 0..stored.len() {
            assert!(is_corrupt(&decode(&pipeline, &stored[..n])), "{n}");
        }
    }
}

#[test]
fn a_bad_entry_is_an_error_for_its_inner_chunk_alone() {
    for (location, base) in [("start", INDEX_BYTES), ("end", 0)] {
        let pipeline = v3_of(&u8s(), &[4, 4], &shard_codec(location, &json!(["bytes"]))).unwrap();
        let sharding = pipeline.sharding().unwrap();
        let into_index = if location == "start" {
            INDEX_BYTES - 1
        } else {
            5
        };
        for bad in [
            (u64::MAX - 2, 4),
            (u64::MAX, 4),
            (4, u64::MAX),
            (73, 4),
            (into_index, 4),
            (base, 3),
            (base, 5),
            (base, 0),
        ] {
            let stored = shard(location, [(base, 4), bad, ABSENT, (base + 4, 4)]);
            let index = if location == "start" {
                &stored[..68]
            } else {
                &stored[8..]
            };
            let index = sharding.decode_index(index, stored.len() as u64).unwrap();
            assert!(is_corrupt(&index.entry(1)), "{bad:?}");
            assert_eq!(index.entry(0).unwrap(), Some(base..base + 4));
            let error = decode(&pipeline, &stored).unwrap_err().to_string();
            assert!(error.contains("inner chunk 1"), "{error}");
        }
    }
}

#[test]
fn an_index_with_a_wrong_checksum_or_size_is_an_error() {
    let pipeline = v3_of(&u8s(), &[4, 4], &shard_codec("end", &json!(["bytes"]))).unwrap();
    let sharding = pipeline.sharding().unwrap();
    let stored = shard("end", [(0, 4), ABSENT, ABSENT, (4, 4)]);
    for at in 8..stored.len() {
        let mut bad = stored.clone();
        bad[at] ^= 1;
        assert!(is_corrupt(&decode(&pipeline, &bad)));
        assert!(is_corrupt(&sharding.decode_index(&bad[8..], 76)));
    }
    assert!(is_corrupt(&sharding.decode_index(&stored[9..], 76)));
    assert!(is_corrupt(&sharding.decode_index(&stored[8..], 67)));
}

#[test]
fn shards_nest_and_combine_with_other_codecs() {
    let inner = shard_codec("end", &json!(["bytes"]));
    let outer = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [4, 4], "codecs": inner, "index_codecs": [little()]}}]);
    let pipeline = v3_of(&u8s(), &[4, 8], &outer).unwrap();
    let part = shard("end", [(0, 4), ABSENT, ABSENT, (4, 4)]);
    let index = [u64::MAX, u64::MAX, 0, part.len() as u64];
    let stored = [part, index.iter().flat_map(|w| w.to_le_bytes()).collect()].concat();
    let row = |tail: [u8; 4]| [vec![7; 4], tail.to_vec()].concat();
    let expected = [
        row([0, 1, 7, 7]),
        row([2, 3, 7, 7]),
        row([7, 7, 30, 31]),
        row([7, 7, 32, 33]),
    ];
    assert_eq!(decode(&pipeline, &stored).unwrap(), expected.concat());
    assert!(pipeline.sharding().unwrap().inner().sharding().is_some());

    let mut codecs = shard_codec("end", &json!(["bytes"]))
        .as_array()
        .unwrap()
        .clone();
    codecs.insert(
        0,
        json!({"name": "transpose", "configuration": {"order": [1, 0]}}),
    );
    codecs.push(json!("zstd"));
    let pipeline = v3_of(&u8s(), &[4, 4], &json!(codecs)).unwrap();
    assert!(pipeline.sharding().is_none());
    let stored = shard("end", [(0, 4), ABSENT, ABSENT, (4, 4)]);
    let stored = zstd::bulk::compress(&stored, 1).unwrap();
    let expected = [[0, 2, 7, 7], [1, 3, 7, 7], [7, 7, 30, 32], [7, 7, 31, 33]].concat();
    assert_eq!(decode(&pipeline, &stored).unwrap(), expected);
}

#[test]
fn sharding_that_does_not_fit_is_invalid() {
    let config = |shape: Value, rest: Value| {
        let mut configuration =
            json!({"chunk_shape": shape, "codecs": ["bytes"], "index_codecs": [little()]});
        for (key, value) in rest.as_object().unwrap() {
            configuration[key] = value.clone();
        }
        v3_of(
            &u8s(),
            &[4, 4],
            &json!([{"name": "sharding_indexed", "configuration": configuration}]),
        )
    };
    assert!(config(json!([2, 4]), json!({})).is_ok());
    for shape in [
        json!([3, 2]),
        json!([2]),
        json!([0, 2]),
        json!([8, 4]),
        json!("x"),
        Value::Null,
    ] {
        assert!(config(shape, json!({})).is_err());
    }
    for rest in [
        json!({"codecs": []}),
        json!({"codecs": null}),
        json!({"index_codecs": [little(), "zstd"]}),
        json!({"index_codecs": []}),
        json!({"index_location": "middle"}),
    ] {
        assert!(config(json!([2, 2]), rest.clone()).is_err(), "{rest}");
    }
    let proposed = config(json!([2, 2]), json!({"index_location": "configuration"}));
    assert!(matches!(proposed, Err(CodecError::Unsupported { .. })));
    let mut deep = json!(["bytes"]);
    for _ in 0..100 {
        deep = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [4, 4], "codecs": deep}}]);
    }
    assert!(matches!(
        v3_of(&u8s(), &[4, 4], &deep),
        Err(CodecError::Invalid { .. })
    ));
}

#[test]
fn text_is_decoded_filled_and_transposed() {
    let text = DataType::Variable(Variable::Text);
    let encode = |items: &[&str]| {
        let mut bytes = u32::try_from(items.len()).unwrap().to_le_bytes().to_vec();
        for item in items {
            bytes.extend(u32::try_from(item.len()).unwrap().to_le_bytes());
            bytes.extend(item.as_bytes());
        }
        bytes
    };
    let texts = |items: &[&str]| -> Vec<Element> {
        items
            .iter()
            .map(|item| Element::Text((*item).into()))
            .collect()
    };
    let filters = json!([{"id": "vlen-utf8"}]);
    let pipeline = v2(&text, &[2, 2], Order::F, &filters, &json!({"id": "zlib"})).unwrap();
    assert_eq!(
        (pipeline.decoded_size_bytes(), pipeline.encoded_size_bytes()),
        (None, None)
    );
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&encode(&["a", "c", "b", "d"])).unwrap();
    let chunk = zlib.finish().unwrap();
    assert_eq!(
        pipeline.decode_variable(&chunk, 1000).unwrap(),
        texts(&["a", "b", "c", "d"])
    );
    assert!(matches!(
        pipeline.decode_variable(&chunk, 50),
        Err(CodecError::TooLarge { .. })
    ));
    assert!(pipeline.decode(&chunk, &mut []).is_err());

    let shards = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": ["vlen-utf8"], "index_codecs": [little()]}}]);
    let pipeline = v3_of(&text, &[4], &shards).unwrap();
    let mut shard = encode(&["x", "yy"]);
    let index = [u64::MAX, u64::MAX, 0, shard.len() as u64];
    shard.extend(index.iter().flat_map(|w| w.to_le_bytes()));
    assert_eq!(
        pipeline.decode_variable(&shard, 1000).unwrap(),
        texts(&["gap", "gap", "x", "yy"])
    );
    assert!(pipeline.sharding().is_some());
    assert!(pipeline.decode_variable(&shard[1..], 1000).is_err());
}

#[test]
fn filters_of_both_versions_change_types_along_the_chain() {
    let filters = json!([
        {"id": "fixedscaleoffset", "offset": 10, "scale": 2, "dtype": "<f8", "astype": "<i2"},
        {"id": "delta", "dtype": "<i2", "astype": "|i1"},
        {"id": "crc32"},
    ]);
    let doubles = scalar(Scalar::Float(ByteOrder::Little), 8);
    let pipeline = v2(&doubles, &[3], Order::C, &filters, &Value::Null).unwrap();
    assert_eq!(pipeline.encoded_size_bytes(), Some(7));
    let sum = crc32fast::hash(&[3, 1, 0xff]).to_le_bytes();
    let expected: Vec<u8> = [11.5, 12.0, 11.5f64]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    assert_eq!(
        decode(&pipeline, &[&sum[..], &[3, 1, 0xff]].concat()).unwrap(),
        expected
    );

    let chain = json!([
        {"name": "numcodecs.fixedscaleoffset",
            "configuration": {"offset": 10, "scale": 2, "dtype": "<f8", "astype": "<i2"}},
        big(),
    ]);
    let pipeline = v3_of(&doubles, &[3], &chain).unwrap();
    assert_eq!(decode(&pipeline, &[0, 3, 0, 4, 0, 3]).unwrap(), expected);

    let chain = json!(["numcodecs.packbits", "bytes"]);
    let pipeline = v3_of(&scalar(Scalar::Bool, 1), &[3], &chain).unwrap();
    assert_eq!(pipeline.encoded_size_bytes(), Some(2));
    assert_eq!(decode(&pipeline, &[5, 0b1010_0000]).unwrap(), [1, 0, 1]);
}

#[test]
fn pipelines_are_shared_between_threads() {
    let pipeline = v3(&json!([big(), "zstd"])).unwrap();
    let stored: Vec<u8> = (0..6i32).flat_map(i32::to_be_bytes).collect();
    let chunk = zstd::bulk::compress(&stored, 1).unwrap();
    let expected: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(decode(&pipeline, &chunk).unwrap(), expected);
                    assert!(decode(&pipeline, &chunk[1..]).is_err());
                }
            });
        }
    });
}

#[test]
fn codec_names_may_have_a_prefix_or_be_a_url() {
    let zlib = {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&[1, 2, 3]).unwrap();
        zlib.finish().unwrap()
    };
    for name in ["zlib", "numcodecs.zlib", "https://example.org/codecs/zlib"] {
        let pipeline = v3_of(&u8s(), &[3], &json!(["bytes", name])).unwrap();
        assert_eq!(decode(&pipeline, &zlib).unwrap(), [1, 2, 3]);
    }
}

#[test]
fn the_listed_codecs_are_supported_and_the_others_are_not() {
    let is_unsupported = |name: &str| {
        let known = [
            "ChunkyCodec",
            "HorizontalDeltaCodec",
            "bytes",
            "cast_value",
            "conditional",
            "imagecodecs_delta",
            "imagecodecs_floatpred",
            "jpeg",
            "n5_default",
            "reshape",
            "scale_offset",
            "sharding_indexed",
            "transpose",
        ]
        .contains(&name);
        let name = match known {
            true => name.to_owned(),
            false => format!("numcodecs.{name}"),
        };
        let last = name == "numcodecs.pickle";
        let codecs = match last {
            true => json!([name]),
            false => json!([name, little()]),
        };
        let made = v3(&codecs);
        matches!(&made, Err(CodecError::Unsupported { name: what }) if *what == name)
    };
    for name in super::names() {
        assert!(!is_unsupported(name), "{name}");
    }
    for name in super::NOT_BUILT_IN {
        assert!(is_unsupported(name), "{name}");
    }
}

#[test]
fn a_missing_element_size_is_four_in_v2_and_that_of_the_array_in_v3() {
    let doubles = scalar(Scalar::Float(ByteOrder::Little), 8);
    let planes = |width: usize| -> Vec<u8> {
        let bytes: Vec<u8> = (0..16).collect();
        let plane = |at| bytes.iter().skip(at).step_by(width).copied();
        (0..width).flat_map(plane).collect()
    };
    let expected: Vec<u8> = (0..16).collect();
    let old = v2(
        &doubles,
        &[2],
        Order::C,
        &json!([]),
        &json!({"id": "shuffle"}),
    )
    .unwrap();
    assert_eq!(decode(&old, &planes(4)).unwrap(), expected);
    let new = v3_of(&doubles, &[2], &json!([little(), "numcodecs.shuffle"])).unwrap();
    assert_eq!(decode(&new, &planes(8)).unwrap(), expected);
    // Filters whose stored numbers have a different type do not matter.
    let filter = json!({"name": "numcodecs.astype",
        "configuration": {"encode_dtype": "<f4", "decode_dtype": "<f8"}});
    let chain = json!([filter, little(), "numcodecs.shuffle"]);
    let narrow = v3_of(&doubles, &[4], &chain).unwrap();
    let doubles = decode(&narrow, &planes(8)).unwrap();
    let stored = expected
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let bytes: Vec<u8> = stored.flat_map(|v| f64::from(v).to_le_bytes()).collect();
    assert_eq!(doubles, bytes);
}
