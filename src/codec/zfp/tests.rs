use serde_json::{Value, json};

use super::*;

/// Type, shape, configuration (or `zfpy`), a chunk of the C library, and the library's decoded values. The
/// first seven of the smaller types are promoted as in the specification of `zfp`.
#[rustfmt::skip]
const CHUNKS: &[(&str, &[u64], &str, &str, &str)] = &[
    ("<f8", &[5, 3], "{'mode': 'reversible'}",
        "fff1668f9f3900000000000000000000a010a8b58993ef0d94b30227ac128635cf2deea70299c4b6bb187d2fdf162593762367b49d86313a11b45fbe352c911dcb333ea1c3202d08338d4a026b9df2b1e4a2662f1c95a1b4d91f6c210b9992ac5d05530120baf12339a6d8b0de0948aa75061f2d57b95f881d11e03edeaf47b32e4303bc1dd000034514c144114d300104004914104012092000440204340100000d34904013052010000308048044014914910410053480041205244100114c145000124d04d1441200000000000000",
        "0000000000000000efdc6e361c31184091be96cdf3bc2240ae70f433ab09214040d1e433400f1040c65c23dd4583febf2e15ca3b716019c0000000000000f0ffe4a813b581730dc0654ab2efe9350340a4555ded64d32040710f46ae7a4927404bdb89e4fd6125401dea697dcf7c1840e0456233e8d0c93f"),
    ("<f4", &[3, 2, 5], "{'mode': 'fixed_rate', 'rate': 5}",
        "070950c00d1886c1c00034208428008081104600050200100b011c340000022880419521220680120971c0004001018001005080000000000a1840000000000308000028210401000020082000002080",
        "0000303e0080ca4000c01b410040064100007c400000eabf0080d1c00080e4c0000067c00000104000400c4100c03f41004027410080c5400000403e000077c00080b0c00000a6bf0080994000002e4100c05d4100404a4100c0024100001d400000e8bf000029c00000443f0080e94000404f4100008241"),
    ("<i4", &[9], "{'mode': 'fixed_precision', 'precision': 20}",
        "809d2be9af848702d8b1b28689d705581450040000000000",
        "0010000000505c0000f08e0000f08100004c3d0000e4e2ff003c9fff00d493ff00d0c7ff"),
    ("<f8", &[2, 1, 2, 3], "{'mode': 'fixed_rate', 'rate': 1}",
        "07880360000000006000000000000000a0002800000080040000000080000006",
        "000000000000f4bf0000000000802c40000000000000fc3f0000000000802040000000000000f4bf000000000000f43f00000000000011c000000000000006c000000000000015c0000000000000154000000000000002c00000000000802440"),
    ("<f4", &[3, 4], "{'mode': 'fixed_accuracy', 'tolerance': 0.01}",
        "0709a0009308294ca31e0809e1a08946151bccc05405d7d4504ead5c8eec2a00",
        "000040b98083c14040e51541c049084180758040001ef4bf80fecac080efe2c0009f6bc000b31940409e0641c04c3a41"),
    ("<f4", &[3, 5], "{'mode': 'fixed_rate', 'rate': 4}",
        "0709a040997a6461042c546e72532318b50994650064e9707deea690411c6ebe05090a23008500402502508948040212158004002201800040200000a8440128",
        "0000c0390090c14080e81541004b0841017a80400008f4bf0001cbc000f4e2c000966bc04eaf1940809a0641004d3a4180112b4100e0c340a0874e3e"),
    ("<i8", &[2, 5], "{'mode': 'expert', 'minbits': 20, 'maxbits': 300, 'maxprec': 50, 'minexp': 0}",
        "0000100496681a8140006182090516044090a59042040126001298218d062448928051420808000036140280028140281000804221502000000440a0102804028000000000000000",
        "00004000000000000000c0268005000000004065850800000000c073bf07000000c04acaa60300000000c0fb43feffff000040e13afaffff0000c0be8cf9ffff000040dca6fcffff0040211a2f020000"),
    ("|i1", &[7], "{'mode': 'reversible'}",
        "483942322624a468550c000000000000",
        "003c5d5528edc1"),
    ("|u1", &[7], "{'mode': 'reversible'}",
        "c88273c6c89a84010500000000000000",
        "c8ced1d0ccc7c2"),
    ("<i2", &[7], "{'mode': 'reversible'}",
        "10e59dd89c1d91c0a0d0496713382ba85000000000000000",
        "00009f1799244621ae0f8df838e7"),
    ("<u2", &[7], "{'mode': 'reversible'}",
        "d082b2be330d02082d98dde42d679e03",
        "50c3acc5f8c6a3c6e1c492c2d6c0"),
    ("<u4", &[2, 2], "{'mode': 'reversible'}",
        "1fd0e3fc1306e9133928930430103b619036018008d80038f0930400033ed9003cf8133038930d00",
        "00000000d7485c00d7f58e00e4fc8100"),
    ("<f4", &[6], "zfpy",
        "7a66700552000000000000880d66e5481909dc840194cc599418f5ff030000803a000000000000000000003100000000",
        "00000000e288c1409ee715415a4d08410000c07f00000080"),
    ("<i8", &[2, 3], "zfpy",
        "7a66700525000010000070090000108002980040200590122020243053022100",
        "00000000000000000000000090050000000000009008000000000000b807000000000000980300000000000048feffff"),
    ("<f8", &[3, 3], "zfpy",
        "7a667005270000200000f0ff00806340670c788004a0000b4144415e1654df7919f602dc95475d4662c07d0000000000",
        "00000000000050bf00000000002f18400000000080bd224000000000800b214000000000001b1040000000000074febf00000000005d19c000000000005d1cc00000000000820dc0"),
];

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn codec(dtype: &str, shape: &[u64], configuration: &str) -> Result<Box<dyn Decode>, CodecError> {
    let number = Number::parse(dtype);
    let map = match configuration {
        "zfpy" => json!({"mode": 5}),
        text => serde_json::from_str(&text.replace('\'', "\"")).unwrap(),
    };
    let Value::Object(map) = map else {
        panic!("{map}")
    };
    let config = Config {
        codec: "zfp",
        map: &map,
    };
    Ok(match configuration {
        "zfpy" => Box::new(Zfpy::new(config, number, Some(shape))?),
        _ => Box::new(Zfp::new(config, number, shape)?),
    })
}

#[test]
fn chunks_of_the_library_decode_to_the_same_values() {
    for (dtype, shape, configuration, chunk, expected) in CHUNKS {
        let codec = codec(dtype, shape, configuration).unwrap();
        let (chunk, expected) = (bytes(chunk), bytes(expected));
        let mut out = vec![0x55; expected.len()];
        let size = Size::Exact(out.len() as u64);
        assert!(codec.encoded_size(size).unwrap().bytes() >= chunk.len() as u64);
        let written = codec.decode(&chunk, &mut out).unwrap();
        assert_eq!(
            (written, &out),
            (out.len(), &expected),
            "{dtype} {configuration}"
        );
    }
}

#[test]
fn a_truncated_chunk_is_an_error_or_lacks_only_padding() {
    for (dtype, shape, configuration, chunk, expected) in CHUNKS {
        let codec = codec(dtype, shape, configuration).unwrap();
        let (chunk, expected) = (bytes(chunk), bytes(expected));
        let mut errors = 0;
        for length in 0..chunk.len() {
            // The size of a chunk with the other rate.
            if configuration.contains("fixed_rate") && length * 4 == chunk.len() {
                errors += 1;
                continue;
            }
            let mut out = vec![0x55; expected.len()];
            match codec.decode(&chunk[..length], &mut out) {
                Ok(_) => assert_eq!(out, expected, "{dtype} {configuration} {length}"),
                Err(DecodeError::Corrupt(_)) => errors += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(
            errors + 8 >= chunk.len(),
            "{dtype} {configuration}: {errors}"
        );
    }
}

#[test]
fn a_changed_chunk_is_bytes_or_corrupt() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for (dtype, shape, configuration, chunk, expected) in CHUNKS {
        let codec = codec(dtype, shape, configuration).unwrap();
        let chunk = bytes(chunk);
        for _ in 0..2000 {
            let mut changed = chunk.clone();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state >> 1).unwrap() % changed.len();
            changed[at] ^= u8::try_from(state >> 56).unwrap();
            let mut out = vec![0; expected.len() / 2];
            match codec.decode(&changed, &mut out) {
                Ok(_) | Err(DecodeError::Corrupt(_) | DecodeError::Internal(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_header_of_another_type_or_size_is_corrupt() {
    let (_, shape, _, chunk, expected) = CHUNKS.last().unwrap();
    let (chunk, expected) = (bytes(chunk), bytes(expected));
    for (dtype, length) in [
        ("<f8", expected.len() - 8),
        ("<i8", expected.len()),
        ("<f4", 64),
    ] {
        let codec = codec(dtype, shape, "zfpy").unwrap();
        let error = codec.decode(&chunk, &mut vec![0; length]).unwrap_err();
        assert!(matches!(error, DecodeError::Corrupt(_)), "{error:?}");
    }
    for (at, value) in [(0, b'Z'), (3, 4)] {
        let mut chunk = chunk.clone();
        chunk[at] = value;
        let codec = codec("<f8", shape, "zfpy").unwrap();
        assert!(codec.decode(&chunk, &mut vec![0; expected.len()]).is_err());
    }
}

#[test]
fn types_and_modes_that_zfp_lacks_are_refused_by_name() {
    let refused = |dtype, shape, configuration| codec(dtype, shape, configuration).unwrap_err();
    for (dtype, shape, configuration) in [
        ("<c8", &[4][..], "{'mode': 'reversible'}"),
        ("<f2", &[4], "{'mode': 'reversible'}"),
        (">f4", &[4], "{'mode': 'reversible'}"),
        (">f4", &[4], "zfpy"),
        ("<f4", &[4, 1, 1, 1, 1], "{'mode': 'reversible'}"),
        ("<f4", &[4], "{'mode': 'other'}"),
    ] {
        let error = refused(dtype, shape, configuration);
        let named = matches!(&error, CodecError::Unsupported { name } if name.starts_with("zfp"));
        assert!(named, "{error:?}");
    }
    for configuration in [
        "{}",
        "{'mode': 'fixed_rate'}",
        "{'mode': 'fixed_rate', 'rate': 1e9}",
        "{'mode': 'fixed_rate', 'rate': -1}",
        "{'mode': 'fixed_precision', 'precision': -1}",
        "{'mode': 'expert', 'minbits': 9, 'maxbits': 8, 'maxprec': 64, 'minexp': 0}",
        "{'mode': 'expert', 'minbits': 1, 'maxbits': 8, 'maxprec': 65, 'minexp': 0}",
    ] {
        let error = refused("<f4", &[4], configuration);
        assert!(matches!(error, CodecError::Invalid { .. }), "{error:?}");
    }
}

#[test]
fn a_size_that_matches_two_rates_is_corrupt() {
    let codec = codec("<f4", &[6], "{'mode': 'fixed_rate', 'rate': 0.5}").unwrap();
    let error = codec.decode(&[0; 8], &mut [0; 24]).unwrap_err();
    assert!(matches!(error, DecodeError::Corrupt(what) if what.contains("two rates")));
}
