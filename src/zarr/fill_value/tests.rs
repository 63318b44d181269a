use super::*;
use crate::zarr::data_type::{v2, v3};
use crate::zarr::document::parse;

fn fill(format: ZarrFormat, data_type: &str, value: &str) -> Result<FillValue, String> {
    let data_type = parse(data_type.as_bytes()).unwrap();
    let data_type = match format {
        ZarrFormat::V2 => v2::parse(&data_type, []).unwrap(),
        ZarrFormat::V3 | ZarrFormat::N5 => v3::parse(&data_type).unwrap(),
    };
    let value = parse(value.as_bytes()).unwrap();
    FillValue::parse(format, &data_type, &value).map_err(|error| error.to_string())
}

/// Returns the bytes in hexadecimal, or `None` for an error.
fn hex(result: Result<FillValue, String>) -> Option<String> {
    match result.ok()? {
        FillValue::Fixed(bytes) => Some(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn v2_fill_values_are_the_bytes_that_zarr_python_reads() {
    let structure = r#"[["a","<i4"],["b",">f8"]]"#;
    let cases = [
        (r#""<i4""#, "-5", "fbffffff"),
        (r#"">i4""#, "258", "00000102"),
        (r#""<u8""#, "18446744073709551615", "ffffffffffffffff"),
        (r#""<i8""#, "-9223372036854775808", "0000000000000080"),
        (r#""<i4""#, "0.0", "00000000"),
        (r#""<i4""#, "true", "01000000"),
        (r#""|i1""#, "-1", "ff"),
        (r#""<i2""#, r#""0""#, "0000"),
        (r#"">i2""#, r#""-2""#, "fffe"),
        (r#""<u8""#, r#""18446744073709551615""#, "ffffffffffffffff"),
        (r#""<f4""#, "1.5", "0000c03f"),
        (r#""<f4""#, "3", "00004040"),
        (r#""<f4""#, r#""NaN""#, "0000c07f"),
        (r#""<f4""#, "NaN", "0000c07f"),
        (r#""<f4""#, r#""nan""#, "0000c07f"),
        (r#""<f4""#, r#""1.5""#, "0000c03f"),
        (r#""<f8""#, "0.3333333333333333", "555555555555d53f"),
        (r#"">f8""#, "-2.5", "c004000000000000"),
        (r#""<f2""#, r#""-Infinity""#, "00fc"),
        (r#""<f2""#, "0.1", "662e"),
        (r#""|b1""#, "true", "01"),
        (r#""|b1""#, "1", "01"),
        (r#""|b1""#, "0.0", "00"),
        (r#""<c8""#, "[1.0, -2.0]", "0000803f000000c0"),
        (r#"">c8""#, "[1.0, -2.0]", "3f800000c0000000"),
        (
            r#""<c16""#,
            r#"["NaN","Infinity"]"#,
            "000000000000f87f000000000000f07f",
        ),
        (r#""<c8""#, "0", "0000000000000000"),
        (r#""|S5""#, r#""YWI=""#, "6162000000"),
        (r#""|S5""#, r#""""#, "0000000000"),
        (r#""|S5""#, r#""x""#, "7800000000"),
        (r#""|S6""#, r#""a b-c""#, "6120622d6300"),
        (r#""|S5""#, "0", "3000000000"),
        (
            r#""<U4""#,
            "\"h\u{e9}\"",
            "68000000e90000000000000000000000",
        ),
        (
            r#"">U4""#,
            "\"h\u{e9}\"",
            "00000068000000e90000000000000000",
        ),
        (r#""<U1""#, "\"\u{1f9ca}\"", "caf90100"),
        (r#""<U2""#, "0", "3000000000000000"),
        (r#""|V4""#, r#""AQIDBA==""#, "01020304"),
        (r#""|V4""#, r#""AQI=""#, "01020000"),
        (r#""|V2""#, "0", "0000"),
        (r#""<M8[s]""#, "86400", "8051010000000000"),
        (r#"">M8[s]""#, "1", "0000000000000001"),
        (r#""<M8[ns]""#, "-9223372036854775808", "0000000000000080"),
        (r#""<m8[ms]""#, r#""NaT""#, "0000000000000080"),
        (
            structure,
            r#""BwAAAAAAAAAAAARA""#,
            "070000000000000000000440",
        ),
        (structure, "[7, -2.5]", "07000000c004000000000000"),
        (structure, "0", "000000000000000000000000"),
        (
            r#"[["m","<i2",[2,2]],["n","|u1"]]"#,
            "[[[1,2],[3,4]],5]",
            "010002000300040005",
        ),
    ];
    for (data_type, value, expected) in cases {
        let found = fill(ZarrFormat::V2, data_type, value);
        assert_eq!(
            hex(found.clone()).as_deref(),
            Some(expected),
            "{data_type} {value} {found:?}"
        );
    }
}

#[test]
fn v3_fill_values_are_numbers_bits_or_base64() {
    let with = |name: &str, member: &str, value: &str| {
        format!(r#"{{"name":"{name}","configuration":{{"{member}":{value}}}}}"#)
    };
    let fields = r#"[["a","int32"],["b",{"name":"struct","configuration":{"fields":[{"name":"c","data_type":"bool"}]}}]]"#;
    let structure = with("struct", "fields", fields);
    let raw = with("raw_bytes", "length_bytes", "4");
    let cases = [
        ("\"int32\"", "-5", "fbffffff"),
        ("\"uint64\"", "18446744073709551615", "ffffffffffffffff"),
        ("\"bool\"", "true", "01"),
        ("\"bool\"", "1", "01"),
        ("\"float32\"", "\"0x7fc00001\"", "0100c07f"),
        ("\"float16\"", "\"0x7e00\"", "007e"),
        ("\"float32\"", "1", "0000803f"),
        (
            "\"complex64\"",
            "[\"0x7fc00001\",\"-Infinity\"]",
            "0100c07f000080ff",
        ),
        ("\"r16\"", "[1,2]", "0102"),
        ("\"bfloat16\"", "1", "803f"),
        ("\"float8_e8m0fnu\"", "1", "7f"),
        ("\"float8_e8m0fnu\"", "0.0", "00"),
        ("\"float8_e8m0fnu\"", "\"NaN\"", "ff"),
        ("\"float8_e4m3\"", "\"0x7f\"", "7f"),
        ("\"complex_float16\"", "[1,\"0x7e01\"]", "003c017e"),
        ("\"int4\"", "-1", "ff"),
        (&raw, "\"AQI=\"", "01020000"),
        (
            &with("null_terminated_bytes", "length_bytes", "4"),
            "\"YWI=\"",
            "61620000",
        ),
        (
            &with("fixed_length_utf32", "length_bytes", "8"),
            "\"a\"",
            "6100000000000000",
        ),
        (
            &with("numpy.datetime64", "unit", "\"s\""),
            "\"NaT\"",
            "0000000000000080",
        ),
        (&structure, r#"{"a": 5, "b": {"c": true}}"#, "0500000001"),
        (&structure, r#"[5, [true]]"#, "0500000001"),
        (&structure, "\"BQAAAAE=\"", "0500000001"),
    ];
    for (data_type, value, expected) in cases {
        let found = fill(ZarrFormat::V3, data_type, value);
        assert_eq!(
            hex(found.clone()).as_deref(),
            Some(expected),
            "{data_type} {value} {found:?}"
        );
    }
}

#[test]
fn values_that_the_type_cannot_hold_are_refused() {
    let cases = [
        (ZarrFormat::V2, r#""|u1""#, "256"),
        (ZarrFormat::V2, r#""|u1""#, "-1"),
        (ZarrFormat::V2, r#""<i4""#, "1.5"),
        (ZarrFormat::V2, r#""<i4""#, "NaN"),
        (ZarrFormat::V2, r#""<i4""#, "[1]"),
        (ZarrFormat::V2, r#""<u8""#, "18446744073709551616"),
        (ZarrFormat::V2, r#""<f4""#, "1e39"),
        (ZarrFormat::V2, r#""<f8""#, "1e400"),
        (ZarrFormat::V2, r#""<f8""#, r#""x""#),
        (ZarrFormat::V2, r#""|b1""#, "2"),
        (ZarrFormat::V2, r#""|b1""#, r#""true""#),
        (ZarrFormat::V2, r#""<c8""#, "[1]"),
        (ZarrFormat::V2, r#""<c8""#, r#""NaN""#),
        (ZarrFormat::V2, r#""|S5""#, r#""YWJjZGVmZw==""#),
        (ZarrFormat::V2, r#""|S5""#, r#""ab!cd""#),
        (ZarrFormat::V2, r#""|V4""#, r#""x""#),
        (ZarrFormat::V2, r#""|V4""#, r#""AQIDBAU=""#),
        (ZarrFormat::V2, r#""<U2""#, r#""abc""#),
        (ZarrFormat::V2, r#""<U2""#, "1"),
        (ZarrFormat::V2, r#""<M8[s]""#, r#""1970-01-01""#),
        (ZarrFormat::V2, r#""<M8[s]""#, "1.5"),
        (ZarrFormat::V2, r#"[["m","<i2",[2,2]]]"#, "[[[1,2],[3]]]"),
        (ZarrFormat::V2, r#"[["m","<i2",[2]]]"#, "[1]"),
        (ZarrFormat::V3, "\"int32\"", "true"),
        (ZarrFormat::V3, "\"int32\"", "\"0x01\""),
        (ZarrFormat::V3, "\"float32\"", "\"nan\""),
        (ZarrFormat::V3, "\"float32\"", "\"0x7fc0\""),
        (ZarrFormat::V3, "\"r16\"", "[1]"),
        (ZarrFormat::V3, "\"r16\"", "[1,256]"),
        (ZarrFormat::V3, "\"r16\"", "0"),
        (ZarrFormat::V3, "\"int4\"", "8"),
    ];
    for (format, data_type, value) in cases {
        let found = fill(format, data_type, value);
        assert!(found.is_err(), "{data_type} {value} {found:?}");
    }
    let structure = r#"{"name":"struct","configuration":{"fields":[["a","int32"],["b","bool"]]}}"#;
    for (value, part) in [
        (r#"{"a": 5}"#, "no value for the field b"),
        (r#"{"a": 5, "b": true, "c": 1}"#, "3 members for 2 fields"),
        (r#"{"a": 5, "b": 7}"#, "7 is not a value of |b1"),
        ("[5]", "is not a value of"),
        ("0", "is not a value of"),
    ] {
        let error = fill(ZarrFormat::V3, structure, value).unwrap_err();
        assert!(error.contains(part), "{value}: {error}");
    }
}

#[test]
fn null_is_undefined() {
    for data_type in [r#""<i4""#, r#""|S5""#, r#"[["a","<i4"]]"#] {
        let found = fill(ZarrFormat::V2, data_type, "null");
        assert_eq!(found, Ok(FillValue::Undefined));
    }
    let found = fill(ZarrFormat::V3, "\"int32\"", "null");
    assert_eq!(found, Ok(FillValue::Undefined));
}

#[test]
fn variable_elements_have_one_form_for_each_type() {
    let item = v2::fixed(&"<i4".into()).unwrap();
    let one = |format, variable: Variable, value: &str| {
        let value = parse(value.as_bytes()).unwrap();
        let found = FillValue::parse(format, &DataType::Variable(variable), &value).ok()?;
        match found {
            FillValue::Variable(value) => Some(value.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let (v2, v3) = (ZarrFormat::V2, ZarrFormat::V3);
    assert_eq!(
        one(v3, Variable::Text, "\"gap\"").as_deref(),
        Some("\"gap\"")
    );
    assert_eq!(one(v2, Variable::Text, "0").as_deref(), Some("\"\""));
    assert_eq!(one(v3, Variable::Text, "0").as_deref(), Some("\"0\""));
    assert_eq!(one(v3, Variable::Text, "[1]"), None);
    assert_eq!(
        one(v3, Variable::Bytes, "\"YWI=\"").as_deref(),
        Some("\"YWI=\"")
    );
    assert_eq!(
        one(v3, Variable::Bytes, "[97, 98]").as_deref(),
        Some("\"YWI=\"")
    );
    assert_eq!(one(v2, Variable::Bytes, "0").as_deref(), Some("\"\""));
    assert_eq!(one(v3, Variable::Bytes, "\"a\""), None);
    assert_eq!(one(v3, Variable::Bytes, "[256]"), None);
    assert_eq!(one(v3, Variable::Bytes, "0"), None);
    assert_eq!(
        one(v2, Variable::Array(item.clone()), "0").as_deref(),
        Some("[]")
    );
    assert_eq!(
        one(v2, Variable::Array(item.clone()), "[1,2]").as_deref(),
        Some("[1,2]")
    );
    assert_eq!(one(v2, Variable::Array(item), "\"x\""), None);
    assert_eq!(
        one(v2, Variable::Object, "{\"a\":1}").as_deref(),
        Some("{\"a\":1}")
    );
    let bytes = FillValue::Variable("YWI=".into());
    assert_eq!(bytes.variable_bytes(), Some(b"ab".to_vec()));
}
