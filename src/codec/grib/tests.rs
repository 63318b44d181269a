//! Messages of ecCodes 2.50, of 4 rows with 6 values each, except for PNG with 23 rows of 37.

use serde_json::{Value as Json, json};

use super::*;

const SIMPLE: &[u8] = include_bytes!("simple.grib");
const MESSAGES: [(&str, &[u8], f64, f64); 6] = [
    ("5.0", SIMPLE, 9999.0, 296.9067687988281),
    (
        "5.3",
        include_bytes!("differences.grib"),
        287.17242431640625,
        296.90679931640625,
    ),
    (
        "5.40",
        include_bytes!("jpeg2000.grib"),
        287.1723937988281,
        296.9067687988281,
    ),
    (
        "5.41",
        include_bytes!("png.grib"),
        287.0970458984375,
        295.0970458984375,
    ),
    (
        "5.42",
        include_bytes!("ccsds.grib"),
        287.1723937988281,
        296.9067687988281,
    ),
    (
        "1",
        include_bytes!("edition1.grib"),
        287.17236328125,
        296.90673828125,
    ),
];

const DOUBLE: Number = Number {
    kind: NumberKind::Float,
    width: 8,
    order: ByteOrder::Little,
};

fn codec(name: &str, map: &Json, array: Option<Number>) -> Result<Grib, CodecError> {
    let library = match name {
        "grib" => Library::EcCodes,
        _ => Library::Gribberish,
    };
    let config = Config {
        codec: name,
        map: map.as_object().unwrap(),
    };
    Grib::new(config, library, array)
}

/// Returns the number of values of a message.
fn count(template: &str) -> usize {
    if template == "5.41" { 23 * 37 } else { 4 * 6 }
}

fn decode(name: &str, template: &str, message: &[u8]) -> Result<Vec<f64>, DecodeError> {
    let codec = codec(name, &json!({"var": "t", "dtype": "float64"}), Some(DOUBLE)).unwrap();
    let mut dst = vec![0; count(template) * 8];
    let size = codec.decode(message, &mut dst)?;
    assert_eq!(size, dst.len());
    let values = dst.as_chunks().0.iter();
    Ok(values.map(|bytes| f64::from_le_bytes(*bytes)).collect())
}

#[test]
fn values_are_those_of_eccodes_and_missing_ones_those_of_the_library() {
    for (template, message, first, last) in MESSAGES {
        let values = decode("grib", template, message).unwrap();
        assert_eq!(
            (values[0], values[values.len() - 1]),
            (first, last),
            "{template}"
        );
    }
    assert!(decode("gribberish", "5.0", SIMPLE).unwrap()[0].is_nan());
}

#[test]
fn damage_is_an_error_or_leaves_the_number_of_values() {
    for (template, message, ..) in MESSAGES {
        for length in 0..message.len() {
            let cut = decode("grib", template, &message[..length]);
            // Edition 1 ends with the data, before `7777`.
            assert!(
                cut.is_err() || length + 4 >= message.len(),
                "{template}: {length}"
            );
        }
        let mut damaged = message.to_vec();
        for at in 0..message.len() {
            for bits in [1, 0x80, 0xff] {
                damaged[at] ^= bits;
                // A decoder that panics or allocates too much fails here.
                let _ = decode("grib", template, &damaged);
                damaged[at] ^= bits;
            }
        }
    }
}

#[test]
fn messages_with_another_number_of_values_are_errors() {
    let codec = codec("grib", &json!({"var": "t", "dtype": "<f8"}), Some(DOUBLE)).unwrap();
    for (template, message, ..) in MESSAGES {
        for values in [count(template) - 1, count(template) + 1] {
            let decoded = codec.decode(message, &mut vec![0; values * 8]);
            assert!(decoded.is_err(), "{template}: {values}");
        }
    }
}

#[test]
fn configurations_that_the_libraries_do_not_have_are_refused() {
    let single = Number { width: 4, ..DOUBLE };
    for (name, map, array) in [
        ("grib", json!({"var": "t"}), single),
        ("grib", json!({"var": "t", "dtype": "float64"}), DOUBLE),
        ("gribberish", json!({}), DOUBLE),
        ("gribberish", json!({"var": "t"}), single),
    ] {
        assert!(codec(name, &map, Some(array)).is_ok(), "{name} {map}");
    }
    for (name, map, array) in [
        // The codec returns float32 without a type.
        ("grib", json!({"var": "t"}), DOUBLE),
        ("grib", json!({"var": "t", "dtype": "<f4"}), DOUBLE),
        ("grib", json!({"var": "latitude", "dtype": "<f8"}), DOUBLE),
        ("grib", json!({"var": "t", "other": 1}), DOUBLE),
        ("gribberish", json!({"var": "longitude"}), DOUBLE),
        ("gribberish", json!({}), Number { width: 2, ..DOUBLE }),
    ] {
        assert!(codec(name, &map, Some(array)).is_err(), "{name} {map}");
    }
}
