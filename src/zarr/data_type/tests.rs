use super::*;
use crate::zarr::codec_chain::CodecSpec;
use serde_json::{Value, json};

fn v2(value: Value) -> Result<DataType, String> {
    v2::parse(&value, []).map_err(|error| error.to_string())
}

fn v3(value: Value) -> Result<DataType, String> {
    v3::parse(&value).map_err(|error| error.to_string())
}

fn fixed(data_type: Result<DataType, String>) -> Fixed {
    match data_type {
        Ok(DataType::Fixed(fixed)) => fixed,
        other => panic!("{other:?}"),
    }
}

fn words(fixed: &Fixed) -> Vec<(usize, usize, usize)> {
    let words = fixed.words().into_iter();
    words.map(|w| (w.offset, w.width_bytes, w.count)).collect()
}

#[test]
fn v2_names_round_trip_as_in_numpy() {
    let mut names: Vec<String> = ["|b1", "|i1", "|u1", "|S1", "|S12", "|V1", "|V6"]
        .map(String::from)
        .to_vec();
    for order in ["<", ">"] {
        for code in [
            "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "U1", "U8", "M8",
            "m8", "M8[ns]", "m8[25us]", "M8[D]", "m8[as]", "M8[10Y]",
        ] {
            names.push(format!("{order}{code}"));
        }
    }
    for name in names {
        let read = fixed(v2(name.as_str().into()));
        assert_eq!(read.numpy_descr(), name);
        let digits: String = name
            .chars()
            .skip(2)
            .take_while(char::is_ascii_digit)
            .collect();
        let size: usize = digits.parse().unwrap();
        let unit = if name.contains('U') { 4 } else { 1 };
        assert_eq!(read.size_bytes, unit * size, "{name}");
    }
}

#[test]
fn other_forms_of_v2_names_are_equal() {
    for (odd, name) in [
        ("<u1", "|u1"),
        (">i1", "|i1"),
        ("<b1", "|b1"),
        ("f4", "<f4"),
        ("=f8", "<f8"),
        ("|i4", "<i4"),
        ("float32", "<f4"),
        ("bool", "|b1"),
        ("uint16", "<u2"),
        ("|a3", "|S3"),
        (">S3", "|S3"),
        ("<V3", "|V3"),
        ("<M8[generic]", "<M8"),
        ("<M8[1s]", "<M8[s]"),
        ("<M8[\u{3bc}s]", "<M8[us]"),
        ("complex128", "<c16"),
    ] {
        assert_eq!(v2(odd.into()), v2(name.into()), "{odd}");
        assert_eq!(fixed(v2(odd.into())).numpy_descr(), name);
    }
}

#[test]
fn unknown_v2_names_are_named() {
    for name in [
        "",
        "<",
        "<i3",
        "<i16",
        "<f16",
        "<c32",
        "<f1",
        "|S0",
        "<U0",
        "|V0",
        "|S",
        "<M8[",
        "<M8[]",
        "<M8[0s]",
        "<M8[s",
        "<M8[xs]",
        "<M4[s]",
        "<f4[s]",
        "<f4x",
        "|S99999999",
        "<U4194305",
        "|S99999999999999999999999",
        "\u{e9}4",
        "<\u{e9}",
        "q",
        "<i-4",
        "<i+4",
        "datetime64",
    ] {
        let error = v2(name.into()).unwrap_err();
        assert_eq!(
            error,
            format!("data type {name} is not supported"),
            "{name}"
        );
    }
    assert!(
        v2(json!(4))
            .unwrap_err()
            .contains("expected a string or a list")
    );
    assert!(v2(json!(null)).unwrap_err().contains("null"));
}

#[test]
fn structures_nest_have_sub_arrays_and_packed_offsets() {
    let dtype = json!([
        ["p", [["x", "<f4"], ["y", ">f4"]]],
        ["n", "|u1"],
        ["m", "<f4", [2, 3]],
        ["s", "|S3", 2],
        ["t", "<M8[ns]"],
        ["", "|V4"],
        [["title", "u"], ">U2"],
        ["one", "<i2", []],
    ]);
    let read = fixed(v2(dtype));
    assert_eq!(read.size_bytes, 8 + 1 + 24 + 6 + 8 + 4 + 8 + 2);
    let expected = "[('p', [('x', '<f4'), ('y', '>f4')]), ('n', '|u1'), ('m', '<f4', (2, 3)), \
        ('s', '|S3', (2,)), ('t', '<M8[ns]'), ('f5', '|V4'), ('u', '>U2'), ('one', '<i2')]";
    assert_eq!(read.numpy_descr(), expected);
    assert_eq!(read.to_string(), expected);
    let runs = [(0, 4, 2), (9, 4, 6), (39, 8, 1), (51, 4, 2), (59, 2, 1)];
    assert_eq!(words(&read), runs);
    let big = read.with_order(ByteOrder::Big);
    assert_eq!(words(&big), runs);
    assert!(
        big.numpy_descr().starts_with(
            "[('p', [('x', '>f4'), ('y', '>f4')]), ('n', '|u1'), ('m', '>f4', (2, 3))"
        )
    );
    assert_eq!(
        big.with_order(ByteOrder::Little),
        read.with_order(ByteOrder::Little)
    );
}

#[test]
fn an_array_of_structures_repeats_their_words() {
    let read = fixed(v2(json!([
        ["a", [["x", "<i2"], ["y", "|u1"]], [2, 2]],
        ["b", [["z", "|u1"]], 9]
    ])));
    assert_eq!(read.size_bytes, 4 * 3 + 9);
    assert_eq!(words(&read), [(0, 2, 1), (3, 2, 1), (6, 2, 1), (9, 2, 1)]);
    assert_eq!(read.word_runs(), 4);
    assert_eq!(
        read.numpy_descr(),
        "[('a', [('x', '<i2'), ('y', '|u1')], (2, 2)), ('b', [('z', '|u1')], (9,))]"
    );
}

#[test]
fn invalid_structures_are_rejected() {
    for (dtype, part) in [
        (json!([]), "without fields"),
        (json!([["a"]]), "field 0 is not"),
        (json!(["<i4"]), "field 0 is not"),
        (json!([["a", "<i4", [2], 1]]), "field 0 is not"),
        (
            json!([["a", "<i4"], ["a", "<i4"]]),
            "two fields are named a",
        ),
        (
            json!([["", "<i4"], ["f0", "<i4"]]),
            "two fields are named f0",
        ),
        (json!([[1, "<i4"]]), "name of field 0"),
        (json!([["a", "<i4", [0]]]), "shape of a sub-array"),
        (json!([["a", "<i4", [-1]]]), "shape of a sub-array"),
        (json!([["a", "<i4", "2"]]), "shape of a sub-array"),
        (json!([["a", "|O"]]), "|O within a structure"),
        (json!([["a", "<q4"]]), "<q4"),
        (
            json!([["a", "|V16777216"], ["b", "|u1"]]),
            "more than 16777216",
        ),
        (
            json!([["a", "<i4", [1u64 << 62, 1u64 << 62]]]),
            "more than 16777216",
        ),
        (
            json!([["a", [["x", "<i2"], ["y", "|u1"]], [65536]], ["b", "<i2"]]),
            "runs of words",
        ),
    ] {
        let error = v2(dtype.clone()).unwrap_err();
        assert!(error.contains(part), "{dtype}: {error}");
    }
}

#[test]
fn the_type_of_objects_is_that_of_the_codec_and_never_pickle() {
    let parse = |names: &[&str]| {
        let specs: Vec<CodecSpec> = names
            .iter()
            .map(|name| {
                CodecSpec::from_v2("filters", &json!({"id": name, "dtype": "<i4"})).unwrap()
            })
            .collect();
        v2::parse(&"|O".into(), &specs).map_err(|error| error.to_string())
    };
    let int = fixed(v2("<i4".into()));
    for (name, variable) in [
        ("vlen-utf8", Variable::Text),
        ("vlen-bytes", Variable::Bytes),
        ("vlen-array", Variable::Array(int)),
        ("json2", Variable::Object),
        ("msgpack2", Variable::Object),
        ("categorize", Variable::Object),
    ] {
        assert_eq!(
            parse(&["delta", name, "pickle"]),
            Ok(DataType::Variable(variable)),
            "{name}"
        );
    }
    assert_eq!(
        parse(&["pickle"]),
        Err("object codec pickle is not supported".into())
    );
    assert_eq!(
        parse(&["pickle", "json2"]),
        Err("object codec pickle is not supported".into())
    );
    assert_eq!(
        parse(&["zlib"]),
        Err("data type |O without an object codec is not supported".into())
    );
    let bare = CodecSpec::from_v2("filters", &json!({"id": "vlen-array"})).unwrap();
    assert!(v2::parse(&"|O".into(), [&bare]).is_err());
}

#[test]
fn v3_names_of_numpy_types_are_little_endian() {
    for (name, descr) in [
        ("bool", "|b1"),
        ("int8", "|i1"),
        ("int16", "<i2"),
        ("int32", "<i4"),
        ("int64", "<i8"),
        ("uint8", "|u1"),
        ("uint16", "<u2"),
        ("uint32", "<u4"),
        ("uint64", "<u8"),
        ("float16", "<f2"),
        ("float32", "<f4"),
        ("float64", "<f8"),
        ("complex64", "<c8"),
        ("complex128", "<c16"),
        ("complex_float32", "<c8"),
        ("complex_float64", "<c16"),
        ("r8", "|V1"),
        ("r16", "|V2"),
        ("r24", "|V3"),
        ("r512", "|V64"),
    ] {
        assert_eq!(fixed(v3(name.into())).numpy_descr(), descr);
        assert_eq!(v3(json!({"name": name})), v3(name.into()));
        assert_eq!(
            v3(json!({"name": name, "configuration": {}})),
            v3(name.into())
        );
    }
    let with = |name: &str, configuration: Value| {
        fixed(v3(json!({"name": name, "configuration": configuration}))).numpy_descr()
    };
    assert_eq!(
        with("fixed_length_utf32", json!({"length_bytes": 32})),
        "<U8"
    );
    assert_eq!(
        with("null_terminated_bytes", json!({"length_bytes": 12})),
        "|S12"
    );
    assert_eq!(with("raw_bytes", json!({"length_bytes": 6})), "|V6");
    assert_eq!(
        with("numpy.datetime64", json!({"unit": "s", "scale_factor": 10})),
        "<M8[10s]"
    );
    assert_eq!(with("numpy.timedelta64", json!({"unit": "ns"})), "<m8[ns]");
    assert_eq!(
        with(
            "numpy.timedelta64",
            json!({"unit": "generic", "scale_factor": 1})
        ),
        "<m8"
    );
}

#[test]
fn v3_types_of_variable_length_are_known() {
    for (name, variable) in [
        ("string", Variable::Text),
        ("variable_length_utf8", Variable::Text),
        ("bytes", Variable::Bytes),
        ("variable_length_bytes", Variable::Bytes),
    ] {
        assert_eq!(v3(name.into()), Ok(DataType::Variable(variable)));
    }
}

#[test]
fn types_without_a_numpy_name_are_opaque_words() {
    for (name, size, width) in [
        ("bfloat16", 2, Some(2)),
        ("float8_e4m3", 1, None),
        ("float8_e8m0fnu", 1, None),
        ("float4_e2m1fn", 1, None),
        ("float6_e3m2fn", 1, None),
        ("int2", 1, None),
        ("int4", 1, None),
        ("uint2", 1, None),
        ("uint4", 1, None),
        ("complex_bfloat16", 4, Some(2)),
        ("complex_float16", 4, Some(2)),
        ("complex_float8_e5m2", 2, None),
    ] {
        let read = fixed(v3(name.into()));
        assert_eq!((read.size_bytes, read.to_string()), (size, name.to_owned()));
        assert_eq!(read.numpy_descr(), format!("|V{size}"));
        let expected: Vec<_> = width
            .map(|width| (0, width, size / width))
            .into_iter()
            .collect();
        assert_eq!(words(&read), expected);
        assert_eq!(words(&read.with_order(ByteOrder::Big)), expected);
    }
}

#[test]
fn v3_structures_have_fields_as_pairs_or_objects() {
    for name in ["struct", "structured"] {
        let pairs = json!({"name": name, "configuration": {"fields": [
            ["p", {"name": "structured", "configuration": {"fields": [["x", "float32"]]}}],
            ["n", "uint8"], ["t", {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}]]}});
        let objects = json!({"name": name, "configuration": {"fields": [
            {"name": "p", "data_type": {"name": "struct", "configuration": {"fields": [{"name": "x", "data_type": "float32"}]}}},
            {"name": "n", "data_type": "uint8"},
            {"name": "t", "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}}]}});
        assert_eq!(v3(pairs.clone()), v3(objects));
        let read = fixed(v3(pairs));
        assert_eq!(
            read.numpy_descr(),
            "[('p', [('x', '<f4')]), ('n', '|u1'), ('t', '<M8[s]')]"
        );
        assert_eq!(read.size_bytes, 13);
    }
}

#[test]
fn unknown_and_incomplete_v3_types_are_rejected() {
    for name in [
        "foo",
        "r0",
        "r7",
        "r016",
        "r+8",
        "r",
        "r8x",
        "float128",
        "complex_int4",
        "complex_",
        "int32 ",
        "r99999999999999999999999",
    ] {
        assert_eq!(
            v3(name.into()),
            Err(format!("data type {name} is not supported"))
        );
    }
    for (value, part) in [
        (json!(null), "expected a name"),
        (json!("optional"), "no name that is a string"),
        (json!({}), "no name"),
        (json!({"name": 1}), "no name"),
        (
            json!({"name": "int32", "configuration": []}),
            "the configuration is a list",
        ),
        (json!("raw_bytes"), "length_bytes is null"),
        (
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 0}}),
            "no bytes",
        ),
        (
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 1u64 << 40}}),
            "more than",
        ),
        (
            json!({"name": "raw_bytes", "configuration": {"length_bytes": -1}}),
            "length_bytes is -1",
        ),
        (
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 6}}),
            "multiple of 4",
        ),
        (json!("numpy.datetime64"), "unit is null"),
        (
            json!({"name": "numpy.datetime64", "configuration": {"unit": "x"}}),
            "unit is \"x\"",
        ),
        (
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 0}}),
            "scale_factor is 0",
        ),
        (
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 2_147_483_648_u32}}),
            "scale_factor is 2147483648",
        ),
        (json!("struct"), "no list of fields"),
        (
            json!({"name": "struct", "configuration": {"fields": []}}),
            "no fields",
        ),
        (
            json!({"name": "struct", "configuration": {"fields": [["a", "string"]]}}),
            "data type string",
        ),
        (
            json!({"name": "struct", "configuration": {"fields": [["a"]]}}),
            "field 0",
        ),
        (
            json!({"name": "struct", "configuration": {"fields": [["", "int8"]]}}),
            "field 0",
        ),
        (
            json!({"name": "struct", "configuration": {"fields": [["a", "int8"], ["a", "int8"]]}}),
            "field 1",
        ),
    ] {
        let error = v3(value.clone()).unwrap_err();
        assert!(error.contains(part), "{value}: {error}");
    }
}

#[test]
fn field_names_are_literals_that_python_reads_back() {
    let read = fixed(v2(json!([
        ["it's", "|u1"],
        ["a\\b\n", "|u1"],
        ["\u{e9}", "|u1"]
    ])));
    let expected = r"[('it\'s', '|u1'), ('a\\b\U0000000a', '|u1'), ('é', '|u1')]";
    assert_eq!(read.numpy_descr(), expected);
    assert_eq!(fixed(v2("<f4".into())).numpy_literal(), "'<f4'");
}
