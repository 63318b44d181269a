//! Tests of chains with the codecs of imagecodecs and virtual-tiff.

use super::*;

fn floats() -> DataType {
    scalar(Scalar::Float(ByteOrder::Little), 4)
}

fn codec(name: &str, configuration: Value) -> Value {
    json!({"name": name, "configuration": configuration})
}

/// Rows of 1.5, -2.25, 3e7 and 0, 7.125, -1e-9, as imagecodecs encodes them; the same for both byte orders.
const PREDICTED: [u8; 24] = [
    0x3f, 0x81, 0x8b, 0x75, 0x50, 0xd4, 0x1c, 0, 0xe1, 0x1f, 0, 0xc0, 0, 0x40, 0x70, 0x50, 0xe4,
    0xa5, 0x77, 0, 0x70, 0x90, 0, 0x5f,
];

fn predicted() -> Vec<u8> {
    let values = [1.5f32, -2.25, 3e7, 0.0, 7.125, -1e-9];
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn the_predictor_of_floats_reads_the_stored_bytes_whatever_their_order() {
    let own = json!({"shape": [2, 3], "dtype": "<f4", "axis": -1, "dist": 1});
    let predictor = codec("imagecodecs_floatpred", own);
    for serializer in [little(), big()] {
        let pipeline = v3_of(&floats(), &[2, 3], &json!([predictor, serializer])).unwrap();
        assert_eq!(decode(&pipeline, &PREDICTED).unwrap(), predicted());
    }
    // What follows in the chain would change the rows.
    let transpose = codec("transpose", json!({"order": [1, 0]}));
    for chain in [
        json!([predictor, transpose, little()]),
        json!([predictor, "ChunkyCodec"]),
    ] {
        let error = v3_of(&floats(), &[2, 3], &chain).unwrap_err();
        assert!(matches!(
            error,
            CodecError::Invalid { .. } | CodecError::Unsupported { .. }
        ));
    }
}

#[test]
fn a_predictor_in_v2_has_its_own_shape_and_type() {
    let with = |dtype: &str, shape: Value| {
        let filter = json!({"id": "imagecodecs_floatpred", "shape": shape, "dtype": dtype});
        v2(&floats(), &[2, 3], Order::C, &json!([filter]), &Value::Null)
    };
    let pipeline = with("<f4", json!([2, 3])).unwrap();
    assert_eq!(decode(&pipeline, &PREDICTED).unwrap(), predicted());
    // The bytes would be in the wrong order, or in rows that do not fit.
    assert!(matches!(
        with(">f4", json!([2, 3])),
        Err(CodecError::Invalid { .. })
    ));
    assert!(matches!(
        with("<f4", json!([5])),
        Err(CodecError::Invalid { .. })
    ));
    assert!(matches!(
        with("<f4", Value::Null),
        Err(CodecError::Unsupported { .. })
    ));
    let delta = json!([{"id": "imagecodecs_delta", "shape": [3, 2], "dtype": "|u1", "axis": -2}]);
    let pipeline = v2(&u8s(), &[3, 2], Order::C, &delta, &Value::Null).unwrap();
    assert_eq!(
        decode(&pipeline, &[1, 10, 1, 10, 1, 10]).unwrap(),
        [1, 10, 2, 20, 3, 30]
    );
}

#[test]
fn samples_side_by_side_become_planes_and_then_rows_are_summed() {
    // Two samples, one row of three pixels.
    let transpose = codec("transpose", json!({"order": [0, 2, 1]}));
    let chunky = codec("ChunkyCodec", json!({"endian": "big"}));
    let chain = json!(["HorizontalDeltaCodec", transpose, chunky]);
    let words = scalar(Scalar::UInt(ByteOrder::Little), 2);
    let pipeline = v3_of(&words, &[2, 1, 3], &chain).unwrap();
    let stored = [1u16, 10, 1, 10, 0xffff, 10].map(u16::to_be_bytes).concat();
    let expected = [1u16, 2, 1, 10, 20, 30].map(u16::to_le_bytes).concat();
    assert_eq!(decode(&pipeline, &stored).unwrap(), expected);
    let error = v3_of(&words, &[2, 1, 3], &json!(["ChunkyCodec"])).unwrap_err();
    assert!(error.to_string().contains("endian is missing"), "{error}");
    let bools = scalar(Scalar::Bool, 1);
    let chain = json!(["HorizontalDeltaCodec", little()]);
    assert!(v3_of(&bools, &[2, 3], &chain).is_err());
}
