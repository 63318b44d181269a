//! Tests of chains with the codecs of zarr-extensions.

use super::*;

fn floats(name: &str) -> DataType {
    crate::zarr::data_type::v3::parse(&name.into()).unwrap()
}

fn codec(name: &str, configuration: Value) -> Value {
    json!({"name": name, "configuration": configuration})
}

#[test]
fn packed_floats_in_shards_have_the_encoded_fill_value_in_missing_inner_chunks() {
    // The output of zarr-python 3.4 for `fill_value: 5.0` and a shard with one inner chunk.
    let inner = json!({"chunk_shape": [2], "codecs": [little()], "index_codecs": [little()]});
    let chain = json!([
        codec("scale_offset", json!({"offset": 5, "scale": 10})),
        codec("cast_value", json!({"data_type": "int16"})),
        codec("sharding_indexed", inner),
    ]);
    let fill = FillValue::Fixed(6_f64.to_le_bytes().to_vec());
    let chain = CodecChain::V3(specs(&chain));
    let pipeline = Pipeline::new(&chain, &floats("float64"), &[4], &fill).unwrap();
    assert!(pipeline.sharding().is_none());
    let stored = [1_i16, -1].map(i16::to_le_bytes).concat();
    let index = [0_u64, 4, u64::MAX, u64::MAX]
        .map(u64::to_le_bytes)
        .concat();
    let bytes = decode(&pipeline, &[stored, index].concat()).unwrap();
    let expected = [5.1, 4.9, 6.0, 6.0].map(f64::to_le_bytes).concat();
    assert_eq!(bytes, expected);
}

#[test]
fn a_fill_value_that_cannot_be_encoded_only_matters_for_shards() {
    let cast = codec("cast_value", json!({"data_type": "uint8"}));
    let shards = codec(
        "sharding_indexed",
        json!({"chunk_shape": [2], "codecs": ["bytes"]}),
    );
    let fill = FillValue::Fixed(f64::NAN.to_le_bytes().to_vec());
    let new = |codecs: Value| {
        let chain = CodecChain::V3(specs(&codecs));
        Pipeline::new(&chain, &floats("float64"), &[4], &fill)
    };
    let pipeline = new(json!([cast, "bytes"])).unwrap();
    let expected = [0.0, 1.0, 2.0, 255.0].map(f64::to_le_bytes).concat();
    assert_eq!(decode(&pipeline, &[0, 1, 2, 255]).unwrap(), expected);
    let error = new(json!([cast, shards])).unwrap_err().to_string();
    assert!(error.contains("fill value"), "{error}");
}

#[test]
fn big_endian_words_are_swapped_before_they_are_cast() {
    let cast = codec("cast_value", json!({"data_type": "int16"}));
    let chain = json!([cast, big(), "crc32c"]);
    let pipeline = v3_of(&floats("float32"), &[2], &chain).unwrap();
    assert_eq!(pipeline.describe(), "cast_value | bytes(big) | crc32c");
    let bytes = decode(&pipeline, &crc32c(&[0x01, 0x00, 0xff, 0xff])).unwrap();
    assert_eq!(bytes, [256_f32, -1.0].map(f32::to_le_bytes).concat());
}

#[test]
fn a_reshape_between_two_transpositions_keeps_the_order_of_elements() {
    // (2, 3, 4) -> transposed (4, 3, 2) -> reshaped (12, 2) -> transposed (2, 12).
    let chain = json!([
        codec("transpose", json!({"order": [2, 1, 0]})),
        codec("reshape", json!({"shape": [[0, 1], [2]]})),
        codec("transpose", json!({"order": [1, 0]})),
        "bytes",
    ]);
    let pipeline = v3_of(&u8s(), &[2, 3, 4], &chain).unwrap();
    let mut stored = vec![0; 24];
    let mut expected = vec![0; 24];
    for (number, place) in (0..24).enumerate() {
        let (a, b, c) = (place / 12, place / 4 % 3, place % 4);
        let value = u8::try_from(number).unwrap();
        expected[place] = value;
        stored[a * 12 + c * 3 + b] = value;
    }
    assert_eq!(decode(&pipeline, &stored).unwrap(), expected);
    let wrong = json!([codec("reshape", json!({"shape": [5, -1]})), "bytes"]);
    assert!(v3_of(&u8s(), &[2, 3, 4], &wrong).is_err());
}

#[test]
fn a_conditional_codec_decodes_as_its_header_declares() {
    let inner = json!([
        codec("shuffle", json!({"elementsize": 4})),
        "zstd",
        "crc32c"
    ]);
    let chain = json!([little(), codec("conditional", json!({"codecs": inner}))]);
    let pipeline = v3(&chain).unwrap();
    let plain: Vec<u8> = (0..24).collect();
    let shuffled: Vec<u8> = (0..24).map(|i| i % 6 * 4 + i / 6).collect();
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    for (header, body) in [
        (0b000, plain.clone()),
        (0b001, shuffled.clone()),
        (0b010, zstd(&plain)),
        (0b100, crc32c(&plain)),
        (0b011, zstd(&shuffled)),
        (0b101, crc32c(&shuffled)),
        (0b111, crc32c(&zstd(&shuffled))),
    ] {
        let chunk = [&[header], &body[..]].concat();
        assert_eq!(decode(&pipeline, &chunk).unwrap(), plain, "{header:b}");
        for end in 0..chunk.len() {
            let found = decode(&pipeline, &chunk[..end]);
            assert!(is_corrupt(&found), "{header:b} {end}: {found:?}");
        }
    }
    // The bit of a codec that is not configured.
    let chunk = [&[0b1000], &plain[..]].concat();
    assert!(is_corrupt(&decode(&pipeline, &chunk)));
    let long = [&[0], &plain[..], &[0]].concat();
    assert!(is_corrupt(&decode(&pipeline, &long)));
    let wide = codec(
        "conditional",
        json!({"codecs": ["gzip"], "header_bits": 16}),
    );
    let pipeline = v3(&json!([little(), wide])).unwrap();
    assert_eq!(
        decode(&pipeline, &[&[0, 0], &plain[..]].concat()).unwrap(),
        plain
    );
    for (configuration, expected) in [
        (
            json!({"codecs": ["gzip"], "header_bits": 7}),
            "header_bits is 7",
        ),
        (
            json!({"codecs": ["gzip"], "header_bits": 0}),
            "header_bits is 0",
        ),
        (json!({"codecs": ["bytes"]}), "bytes in conditional"),
        (
            json!({"codecs": [codec("numcodecs.conditional", json!({"codecs": []}))]}),
            "numcodecs.conditional in",
        ),
        (
            (0..8).fold(
                json!({"codecs": ["gzip"]}),
                |inner, _| json!({"codecs": [codec("conditional", inner)]}),
            ),
            "nest deeper than 8",
        ),
        (
            json!({"codecs": [codec("conditional", json!({"codecs": vec!["crc32c"; 32]}))]}),
            "more than 32 codecs",
        ),
        (json!({}), "codecs is missing"),
    ] {
        let error = v3(&json!([
            little(),
            codec("conditional", configuration.clone())
        ]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{configuration}: {error}");
    }
}

#[test]
fn a_conditional_codec_within_another_has_a_header_of_its_own() {
    let inner = codec("conditional", json!({"codecs": ["zstd", "crc32c"]}));
    let outer = codec(
        "conditional",
        json!({"codecs": ["crc32c", inner, "gzip"], "header_bits": 16}),
    );
    let pipeline = v3(&json!([little(), outer])).unwrap();
    let plain: Vec<u8> = (0..24).collect();
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let with_header = |header: &[u8], body: &[u8]| [header, body].concat();
    for (header, body) in [
        (0b000, plain.clone()),
        (0b010, with_header(&[0b00], &plain)),
        (0b010, with_header(&[0b01], &zstd(&plain))),
        (0b011, with_header(&[0b10], &crc32c(&crc32c(&plain)))),
        (0b011, with_header(&[0b11], &crc32c(&zstd(&crc32c(&plain))))),
    ] {
        let chunk = with_header(&[header, 0], &body);
        assert_eq!(decode(&pipeline, &chunk).unwrap(), plain, "{header:b}");
        for end in 0..chunk.len() {
            let found = decode(&pipeline, &chunk[..end]);
            assert!(is_corrupt(&found), "{header:b} {end}: {found:?}");
        }
    }
    // A bit of the inner header without a codec.
    let chunk = with_header(&[0b010, 0, 0b100], &plain);
    assert!(is_corrupt(&decode(&pipeline, &chunk)));
}

#[test]
fn the_data_type_determines_the_elements_of_all_vlen_codecs() {
    let chunk = [&[1, 0, 0, 0, 2, 0, 0, 0][..], "ß".as_bytes()].concat();
    let latin = [1, 0, 0, 0, 1, 0, 0, 0, 0xff];
    for name in ["vlen-utf8", "vlen-bytes", "numcodecs.vlen-array"] {
        let of = |variable| v3_of(&DataType::Variable(variable), &[1], &json!([name])).unwrap();
        let texts = of(Variable::Text);
        let found = texts.decode_variable(&chunk, 1000).unwrap();
        assert_eq!(found, [Element::Text("ß".into())], "{name}");
        assert!(is_corrupt(&texts.decode_variable(&latin, 1000)), "{name}");
        let found = of(Variable::Bytes).decode_variable(&latin, 1000);
        assert_eq!(found.unwrap(), [Element::Bytes(vec![0xff])], "{name}");
    }
}

#[test]
fn blocks_of_n5_are_whole_or_truncated_chunks_in_reversed_order() {
    let transpose = codec("transpose", json!({"order": [1, 0]}));
    let block = |codecs: Value| json!([codec("n5_default", json!({"codecs": codecs}))]);
    let chain = block(json!([transpose, big(), "zstd"]));
    let pipeline = v3(&chain).unwrap();
    assert_eq!(pipeline.describe(), "n5_default(zstd)");
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let stored: Vec<u8> = [0, 3, 1, 4, 2, 5_i32]
        .iter()
        .flat_map(|v| v.to_be_bytes())
        .collect();
    // The header lists the axes in the order of the array: 2 and 3.
    let header = [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3];
    let chunk = [&header[..], &zstd(&stored)].concat();
    let expected: Vec<u8> = (0..6_i32).flat_map(i32::to_le_bytes).collect();
    assert_eq!(decode(&pipeline, &chunk).unwrap(), expected);
    // A block of 2 x 1 elements at the edge.
    let header = [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1];
    let chunk = [&header[..], &zstd(&stored[..8])].concat();
    let expected: Vec<u8> = [0, 0, 0, 3, 0, 0_i32]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    assert_eq!(decode(&pipeline, &chunk).unwrap(), expected);
    assert!(is_corrupt(&decode(&pipeline, &chunk[..11])));
    for (codecs, expected) in [
        (json!([transpose]), "1 codecs"),
        (json!([big(), big()]), "reverse"),
        (
            json!([codec("transpose", json!({"order": [0, 1]})), big()]),
            "reverse",
        ),
        (json!([transpose, little()]), "big-endian"),
        (json!([transpose, big(), "crc32c"]), "crc32c in n5_default"),
        (json!([transpose, big(), "lz4", "gzip"]), "4 codecs"),
    ] {
        let error = v3(&block(codecs.clone())).unwrap_err().to_string();
        assert!(error.contains(expected), "{codecs}: {error}");
    }
}

#[test]
fn the_registered_packbits_encodes_to_bytes() {
    let chain = json!([
        codec("packbits", json!({"padding_encoding": "first_byte"})),
        "crc32c"
    ]);
    let pipeline = v3_of(&scalar(Scalar::Bool, 1), &[3, 3], &chain).unwrap();
    let bytes = decode(&pipeline, &crc32c(&[7, 0b1001, 1])).unwrap();
    assert_eq!(bytes, [1, 0, 0, 1, 0, 0, 0, 0, 1]);
    assert_eq!(pipeline.encoded_size_bytes(), Some(7));
    // numcodecs does not have the other codecs.
    for name in [
        "cast_value",
        "scale_offset",
        "reshape",
        "conditional",
        "n5_default",
    ] {
        let name = format!("numcodecs.{name}");
        assert!(
            v3(&json!([codec(&name, json!({})), little()])).is_err(),
            "{name}"
        );
    }
}
