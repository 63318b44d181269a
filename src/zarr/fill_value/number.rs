//! Numbers of fill values as words, with the lowest byte first.

use serde_json::Value;

use crate::zarr::error::{MetadataError, excerpt};
use crate::zarr::narrow_float::to_f16;
use crate::zarr::real::{Exact, Real, Rounding};

/// Returns an integer of `size_bytes` bytes; `None` if the value is not an integer, or does not fit.
pub(super) fn int_word(value: &Value, signed: bool, size_bytes: usize) -> Option<Vec<u8>> {
    let number = integer(value)?;
    let bits = u32::try_from(8 * size_bytes).ok()?;
    let (low, high) = match signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    if !(low..=high).contains(&number) {
        return None;
    }
    number.to_le_bytes().get(..size_bytes).map(<[u8]>::to_vec)
}

/// Returns the exact value of a number without a fraction, even if it is written as `1.0` or `2e3`; true is
/// 1. `None` for more than 30 digits.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(bit) => Some(i128::from(*bit)),
        Value::Number(number) => decimal_integer(&number.to_string()),
        _ => None,
    }
}

fn decimal_integer(text: &str) -> Option<i128> {
    const MAX_DIGITS: usize = 30;
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let exponent: i64 = exponent.parse().ok()?;
    let shift = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = match usize::try_from(shift) {
        Ok(zeros) if zeros <= MAX_DIGITS => format!("{digits}{}", "0".repeat(zeros)),
        Ok(_) => return None,
        // `1200e-2`: only zeros may be cut off.
        Err(_) => {
            let cut = usize::try_from(shift.unsigned_abs()).ok()?;
            let (kept, cut) = digits.split_at_checked(digits.len().checked_sub(cut)?)?;
            if cut.bytes().any(|digit| digit != b'0') {
                return None;
            }
            kept.to_owned()
        }
    };
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let number: i128 = digits.parse().ok()?;
    Some(if negative { -number } else { number })
}

/// Returns a float of 2, 4 or 8 bytes: a number, `NaN`, `Infinity`, `-Infinity`, or its bits as `0x...` (v3);
/// in v2 also the text of Python's `float`. `None` if the value is not a float, or a finite number beyond the
/// maximum.
pub(super) fn float_word(value: &Value, size_bytes: usize, v2: bool) -> Option<Vec<u8>> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => match text.as_str() {
            "NaN" => return not_finite(f64::NAN, size_bytes),
            "Infinity" => return not_finite(f64::INFINITY, size_bytes),
            "-Infinity" => return not_finite(f64::NEG_INFINITY, size_bytes),
            _ if v2 => match text.trim().parse::<f64>().ok()? {
                number if number.is_finite() => text.trim().to_owned(),
                // The parser returns infinity for a number that is too large.
                _ if text.bytes().any(|b| b.is_ascii_digit()) => return None,
                special => return not_finite(special, size_bytes),
            },
            _ => return hex_word(text, size_bytes),
        },
        _ => return None,
    };
    match size_bytes {
        8 => text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .map(|number| number.to_le_bytes().to_vec()),
        4 => text
            .parse()
            .ok()
            .filter(|number: &f32| number.is_finite())
            .map(|number| number.to_le_bytes().to_vec()),
        // A float16 is rounded from a double, as in numpy.
        2 => text
            .parse()
            .map(to_f16)
            .ok()
            .filter(|number| number.is_finite())
            .map(|number| number.to_le_bytes().to_vec()),
        _ => None,
    }
}

/// Returns NaN or an infinity, with numpy's bits.
fn not_finite(number: f64, size_bytes: usize) -> Option<Vec<u8>> {
    match size_bytes {
        8 => Some(number.to_le_bytes().to_vec()),
        4 => {
            let word = match number {
                number if number.is_nan() => f32::NAN,
                number if number > 0.0 => f32::INFINITY,
                _ => f32::NEG_INFINITY,
            };
            Some(word.to_le_bytes().to_vec())
        }
        2 => Some(to_f16(number).to_le_bytes().to_vec()),
        _ => None,
    }
}

/// Returns the word of a type without a numpy type: a number, `NaN`, `Infinity`, `-Infinity`, or its bits as
/// `0x...`. Floats are rounded to the nearest.
///
/// # Errors
/// The type does not have the value.
pub(super) fn other_word(
    name: &str,
    value: &Value,
    size_bytes: usize,
) -> Result<Vec<u8>, MetadataError> {
    let invalid = || {
        let what = format!("{} is not a value of {name}", excerpt(value));
        MetadataError::invalid("fill_value", what)
    };
    if let Some(text) = value.as_str().filter(|text| text.starts_with("0x")) {
        return hex_word(text, size_bytes).ok_or_else(invalid);
    }
    let real = Real::named(name).ok_or_else(invalid)?;
    let exact = match (real, value) {
        (Real::Int { .. }, _) => integer(value).map(Exact::Int),
        (Real::Float(_), Value::Number(number)) => {
            number.to_string().parse().ok().map(Exact::Float)
        }
        (Real::Float(_), _) => special(value).map(Exact::Float),
    };
    let exact = exact.ok_or_else(invalid)?;
    let word = match exact {
        // The default fill value of TensorStore, which reads it as the minimum.
        Exact::Float(0.0) if name == "float8_e8m0fnu" => Ok(0),
        _ => real.round(exact, Rounding::default()),
    };
    let bytes = word.map_err(|_| invalid())?.to_le_bytes();
    Ok(bytes.get(..size_bytes).ok_or_else(invalid)?.to_vec())
}

/// Returns a float that JSON numbers cannot express.
fn special(value: &Value) -> Option<f64> {
    match value.as_str()? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Parses `0x` and exactly all hexadecimal digits of a word, highest first.
fn hex_word(text: &str, size_bytes: usize) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?;
    let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !hexadecimal || digits.len() != 2 * size_bytes {
        return None;
    }
    let word = u64::from_str_radix(digits, 16).ok()?;
    word.to_le_bytes().get(..size_bytes).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::document::parse;

    fn value(text: &str) -> Value {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn integers_are_exact_in_each_notation() {
        let cases = [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0.0", Some(0)),
            ("-7", Some(-7)),
            ("1e3", Some(1000)),
            ("1.25E+2", Some(125)),
            ("1200e-2", Some(12)),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("18446744073709551616", Some(1 << 64)),
            ("true", Some(1)),
            ("0e999999999999", Some(0)),
            ("1.5", None),
            ("1e-1", None),
            ("1e400", None),
            ("1e99999999999999999999", None),
            ("1e-99999999999999999999", None),
            ("1.0000000000000000000001", None),
            ("\"1\"", None),
            ("[1]", None),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(&value(text)), expected, "{text}");
        }
    }

    #[test]
    fn integers_that_do_not_fit_are_refused() {
        let word = |text: &str, signed, size| int_word(&value(text), signed, size);
        assert_eq!(word("-128", true, 1), Some(vec![0x80]));
        assert_eq!(word("127", true, 1), Some(vec![0x7f]));
        assert_eq!(word("128", true, 1), None);
        assert_eq!(word("-1", false, 1), None);
        assert_eq!(word("256", false, 1), None);
        assert_eq!(word("258", false, 2), Some(vec![2, 1]));
        assert_eq!(word("18446744073709551615", false, 8), Some(vec![0xff; 8]));
        assert_eq!(word("18446744073709551616", false, 8), None);
        assert_eq!(
            word("-9223372036854775808", true, 8),
            Some(i64::MIN.to_le_bytes().to_vec())
        );
        assert_eq!(word("9223372036854775808", true, 8), None);
    }

    #[test]
    fn floats_round_once_from_their_text_and_never_to_infinity() {
        let word = |text: &str, size| float_word(&value(text), size, false);
        assert_eq!(word("0.1", 4), Some(0.1f32.to_le_bytes().to_vec()));
        assert_eq!(word("0.1", 8), Some(0.1f64.to_le_bytes().to_vec()));
        // Rounding to a double first would give the lower neighbour.
        let between = "1.00000017881393432617187499";
        assert_eq!(
            word(between, 4),
            Some(1.000_000_1_f32.to_le_bytes().to_vec())
        );
        assert_eq!(
            word("9007199254740993", 8),
            Some(9_007_199_254_740_992f64.to_le_bytes().to_vec())
        );
        assert_eq!(word("1e400", 8), None);
        assert_eq!(word("1e39", 4), None);
        assert_eq!(word("70000", 2), None);
        // The smallest double above the midpoint of 1 and its neighbour.
        assert_eq!(word("1.0004882812500002", 2), Some(vec![0x01, 0x3c]));
        assert_eq!(word("1.00048828125", 2), Some(vec![0x00, 0x3c]));
        assert_eq!(word("65519.99", 2), Some(vec![0xff, 0x7b]));
        assert_eq!(word("65520", 2), None);
        assert_eq!(word("true", 4), None);
    }

    #[test]
    fn special_floats_have_the_bits_that_numpy_gives_them() {
        let word = |text: &str, size| float_word(&Value::from(text), size, false);
        assert_eq!(word("NaN", 2), Some(vec![0x00, 0x7e]));
        assert_eq!(word("NaN", 4), Some(vec![0, 0, 0xc0, 0x7f]));
        assert_eq!(word("NaN", 8), Some(vec![0, 0, 0, 0, 0, 0, 0xf8, 0x7f]));
        assert_eq!(word("-Infinity", 2), Some(vec![0x00, 0xfc]));
        assert_eq!(word("Infinity", 4), Some(vec![0, 0, 0x80, 0x7f]));
        assert_eq!(word("0x7fc00001", 4), Some(vec![1, 0, 0xc0, 0x7f]));
        assert_eq!(
            word("0xFFF8000000000001", 8),
            Some(vec![1, 0, 0, 0, 0, 0, 0xf8, 0xff])
        );
        for wrong in [
            "0x7fc0",
            "0x7fc0000",
            "0x7fc000010",
            "0x7fc0000g",
            "7fc00001",
            "nan",
            "1",
            "0x+7fc001",
        ] {
            assert_eq!(word(wrong, 4), None, "{wrong}");
        }
    }

    #[test]
    fn v2_reads_the_special_floats_of_python() {
        let word = |text: &str| float_word(&Value::from(text), 8, true);
        for (text, number) in [
            ("nan", f64::NAN),
            ("inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("1.5", 1.5),
            (" 2 ", 2.0),
        ] {
            assert_eq!(word(text), Some(number.to_le_bytes().to_vec()), "{text}");
        }
        assert_eq!(word("1e400"), None);
        assert_eq!(word("0x00"), None);
        assert_eq!(word(""), None);
    }

    #[test]
    fn types_without_a_numpy_type_take_bits_zero_and_exact_values() {
        let word = |name: &str, text: &str, size| other_word(name, &value(text), size);
        assert_eq!(word("bfloat16", "0", 2), Ok(vec![0, 0]));
        assert_eq!(word("bfloat16", "1.0", 2), Ok(vec![0x80, 0x3f]));
        assert_eq!(word("bfloat16", "\"NaN\"", 2), Ok(vec![0xc0, 0x7f]));
        assert_eq!(word("bfloat16", "\"0x7fc1\"", 2), Ok(vec![0xc1, 0x7f]));
        assert_eq!(word("float8_e4m3", "\"0x7f\"", 1), Ok(vec![0x7f]));
        assert_eq!(word("float8_e4m3", "0.0", 1), Ok(vec![0]));
        assert_eq!(word("int4", "-8", 1), Ok(vec![0xf8]));
        assert_eq!(word("uint4", "15", 1), Ok(vec![15]));
        assert_eq!(word("int2", "1", 1), Ok(vec![1]));
        assert_eq!(word("float8_e5m2", "1.0", 1), Ok(vec![0x3c]));
        assert_eq!(word("float8_e5m2", "-0.0", 1), Ok(vec![0x80]));
        assert_eq!(word("float8_e5m2", "\"NaN\"", 1), Ok(vec![0x7e]));
        assert_eq!(word("float8_e5m2", "\"-Infinity\"", 1), Ok(vec![0xfc]));
        assert_eq!(word("float8_e4m3fnuz", "\"NaN\"", 1), Ok(vec![0x80]));
        assert_eq!(word("float8_e8m0fnu", "2", 1), Ok(vec![0x80]));
        // The type has no zero; TensorStore writes it for the minimum.
        assert_eq!(word("float8_e8m0fnu", "0.0", 1), Ok(vec![0]));
        assert_eq!(word("float4_e2m1fn", "6", 1), Ok(vec![7]));
        for (name, text) in [
            ("int4", "8"),
            ("uint2", "4"),
            ("uint4", "-1"),
            ("float8_e4m3", "\"0x7fff\""),
            ("float8_e4m3", "\"nan\""),
            ("float8_e4m3fnuz", "\"Infinity\""),
            ("float4_e2m1fn", "\"NaN\""),
            ("float4_e2m1fn", "7"),
            ("bfloat16", "1e39"),
            ("bfloat16", "true"),
        ] {
            assert!(
                matches!(word(name, text, 1), Err(MetadataError::Invalid { .. })),
                "{name} {text}"
            );
        }
    }
}
