//! Tests of words, values and rounding.

use super::float::FORMATS;
use super::*;

fn float(name: &str) -> Real {
    Real::named(name).unwrap()
}

fn read(name: &str, word: u64) -> f64 {
    match float(name).read(word) {
        Exact::Float(value) => value,
        Exact::Int(_) => panic!("{name}"),
    }
}

/// The words and values are those of ml_dtypes 0.5.
#[test]
fn words_have_the_values_of_their_definitions() {
    for (name, word, value) in [
        ("bfloat16", 0x3f80, 1.0),
        ("bfloat16", 0x0001, 2_f64.powi(-133)),
        ("float16", 0x7bff, 65504.0),
        ("float4_e2m1fn", 0x7, 6.0),
        ("float4_e2m1fn", 0xf9, -0.5),
        ("float6_e2m3fn", 0x1f, 7.5),
        ("float6_e3m2fn", 0x1f, 28.0),
        ("float8_e3m4", 0x6f, 15.5),
        ("float8_e4m3", 0x77, 240.0),
        ("float8_e4m3fn", 0x7e, 448.0),
        ("float8_e4m3b11fnuz", 0x7f, 30.0),
        ("float8_e4m3fnuz", 0x7f, 240.0),
        ("float8_e5m2", 0x7b, 57344.0),
        ("float8_e5m2fnuz", 0x7f, 57344.0),
        ("float8_e8m0fnu", 0x7f, 1.0),
        ("float8_e8m0fnu", 0x00, 2_f64.powi(-127)),
    ] {
        assert_eq!(read(name, word), value, "{name} {word:x}");
        let back = float(name).round(Exact::Float(value), Rounding::NearestEven);
        let mask = (1 << float(name).bits()) - 1;
        assert_eq!(back, Ok(word & mask), "{name} {value}");
    }
    for (name, word) in [
        ("bfloat16", 0x7fc0),
        ("float8_e3m4", 0x78),
        ("float8_e4m3", 0x7c),
        ("float8_e4m3fn", 0x7f),
        ("float8_e4m3b11fnuz", 0x80),
        ("float8_e4m3fnuz", 0x80),
        ("float8_e5m2", 0x7e),
        ("float8_e5m2fnuz", 0x80),
        ("float8_e8m0fnu", 0xff),
    ] {
        let Real::Float(format) = float(name) else {
            panic!("{name}");
        };
        assert_eq!(format.nan(), Some(word), "{name}");
        assert!(read(name, word).is_nan(), "{name}");
    }
    assert_eq!(read("float8_e5m2", 0xfc), f64::NEG_INFINITY);
}

#[test]
fn every_word_of_a_small_format_is_the_rounding_of_its_value() {
    for (name, format) in FORMATS.iter().filter(|(_, format)| format.bits() <= 16) {
        for word in 0..1_u64 << format.bits() {
            let value = format.to_f64(word);
            let found = format.round(Exact::Float(value), Rounding::TowardsZero);
            match value.is_nan() {
                true => assert!(format.to_f64(found.unwrap()).is_nan(), "{name}"),
                false => assert_eq!(found, Ok(word), "{name} {value}"),
            }
        }
    }
}

/// The table is that of `rounding` in the specification of `cast_value`.
#[test]
fn modes_round_ties_and_fractions_as_specified() {
    use Rounding::{NearestAway, NearestEven, TowardsNegative, TowardsPositive, TowardsZero};
    let values = [0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6];
    for (mode, expected) in [
        (NearestEven, [0, 2, 2, 0, -2, 2, -3]),
        (NearestAway, [1, 2, 3, -1, -2, 2, -3]),
        (TowardsZero, [0, 1, 2, 0, -1, 2, -2]),
        (TowardsPositive, [1, 2, 3, 0, -1, 3, -2]),
        (TowardsNegative, [0, 1, 2, -1, -2, 2, -3]),
    ] {
        let i8 = Real::Int {
            bits: 8,
            is_signed: true,
        };
        for (value, expected) in values.into_iter().zip(expected) {
            let word = i8.round(Exact::Float(value), mode).unwrap();
            assert_eq!(i8.read(word), Exact::Int(expected), "{mode:?} {value}");
        }
    }
    // Integers with more digits than a double, and such integers in float32.
    let above = |mode| float("float64").round(Exact::Int((1 << 53) + 1), mode);
    assert_eq!(above(NearestEven), Ok(2_f64.powi(53).to_bits()));
    assert_eq!(above(NearestAway), Ok((2_f64.powi(53) + 2.0).to_bits()));
    let tenth = |mode| float("float32").round(Exact::Float(0.1), mode).unwrap();
    assert_eq!(tenth(NearestEven), u64::from(0.1_f32.to_bits()));
    assert_eq!(tenth(TowardsZero), u64::from(0.1_f32.to_bits()) - 1);
}

#[test]
fn values_out_of_range_are_named_after_rounding() {
    let round = |name, value| float(name).round(Exact::Float(value), Rounding::NearestEven);
    assert_eq!(round("float16", 65519.99), Ok(0x7bff));
    assert_eq!(round("float16", 65520.0), Err(Unrepresentable::OutOfRange));
    assert_eq!(round("float32", 1e39), Err(Unrepresentable::OutOfRange));
    assert_eq!(
        round("float4_e2m1fn", f64::NAN),
        Err(Unrepresentable::NotFinite)
    );
    assert_eq!(
        round("float8_e4m3fnuz", f64::INFINITY),
        Err(Unrepresentable::NotFinite)
    );
    assert_eq!(
        round("float8_e8m0fnu", 0.0),
        Err(Unrepresentable::OutOfRange)
    );
    assert_eq!(round("float8_e4m3fnuz", -0.0), Ok(0));
    assert_eq!(round("float8_e4m3fnuz", -1e-9), Ok(0));
    assert_eq!(round("float16", -0.0), Ok(0x8000));
    assert_eq!(round("uint4", 15.4), Ok(15));
    assert_eq!(round("uint4", 15.5), Err(Unrepresentable::OutOfRange));
    assert_eq!(
        round("int2", f64::INFINITY),
        Err(Unrepresentable::NotFinite)
    );
}

#[test]
fn integers_wrap_and_clamp_as_two_s_complement() {
    let real = |bits, is_signed| Real::Int { bits, is_signed };
    for (value, expected) in [(32768, -32768), (32769, -32767), (-32769, 32767)] {
        let i16 = real(16, true);
        assert_eq!(i16.read(i16.wrap(value)), Exact::Int(expected));
    }
    assert_eq!(real(8, true).clamp(Exact::Float(1e99)), 0x7f);
    assert_eq!(
        real(8, true).read(real(8, true).clamp(Exact::Float(-1e99))),
        Exact::Int(-128)
    );
    assert_eq!(real(64, false).clamp(Exact::Float(1e99)), u64::MAX);
    assert_eq!(real(64, false).wrap(-1), u64::MAX);
    assert_eq!(real(2, true).wrap(2), u64::MAX - 1);
    assert_eq!(real(4, false).read(0xf7), Exact::Int(7));
    assert_eq!(real(4, true).read(0x3f), Exact::Int(-1));
    assert_eq!(
        float("float32").clamp(Exact::Float(-1e99)),
        u64::from(f32::NEG_INFINITY.to_bits())
    );
    assert_eq!(float("float8_e4m3fnuz").clamp(Exact::Float(1e99)), 0x7f);
}
