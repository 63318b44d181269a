//! Codecs, chunk grids and data types of zarr-extensions: arrays that zarr-python 3.4 wrote, with
//! the values that it reads (`extensions/make.py`), and handmade arrays.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::clients::EIO;
use crate::stores::*;
use crate::support::*;

/// Mounts the zip that `extensions/make.py` wrote.
fn written() -> Mount {
    let path = "tests/views/extensions/extensions.zip";
    // The group `zarr` is below the root.
    Mount::of_keys(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), &[])
}

#[test]
fn arrays_of_zarr_python_3_4_have_the_values_that_it_reads() {
    let mount = written();
    let mut arrays = 0;
    for entry in fs::read_dir(mount.join("expected")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let expected = fs::read(mount.join("expected").join(&name)).unwrap();
        let node = format!("zarr/{name}");
        let found = read(view(&mount, &node, &format!("{name}.bin")));
        assert!(found.unwrap() == expected, "{name}");
        let npy = read(view(&mount, &node, &format!("{name}.npy"))).unwrap();
        assert!(npy.ends_with(&expected), "{name}.npy");
        arrays += 1;
    }
    assert!(arrays >= 50, "{arrays}");
}

#[test]
fn chunks_of_several_shapes_are_files_of_their_sizes() {
    let mount = written();
    let whole = read(view(&mount, "zarr/edges_2d", "edges_2d.bin")).unwrap();
    let (rows, columns) = ([0, 4, 10, 30], [0, 5, 15, 25]);
    for row in 0..3 {
        for column in 0..3 {
            let mut expected: Vec<u8> = Vec::new();
            for line in rows[row]..rows[row + 1] {
                let start = 4 * (25 * line + columns[column]);
                let end = 4 * (25 * line + columns[column + 1]);
                expected.extend(&whole[start..end]);
            }
            let path = view(&mount, "zarr/edges_2d", &format!("chunks/c/{row}/{column}"));
            assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
            assert!(read(path).unwrap() == expected, "{row} {column}");
        }
    }
    let text = readme(&mount, "zarr/edges_2d");
    assert!(text.contains("edges_2d.npy"), "{text}");
    // The same elements in files of other formats.
    let tif = read(view(&mount, "zarr/edges_2d", "edges_2d.tif")).unwrap();
    assert!(contains(&tif, &whole));
    let nc = read(mount.join("zarr/.zarrfs").join("zarr.nc")).unwrap();
    assert!(contains(&nc, &whole));
}

/// Encodes text as the codec `vlen-utf8` does.
fn texts(texts: &[&str]) -> Vec<u8> {
    let size = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let mut bytes = size(texts.len()).to_vec();
    for text in texts {
        bytes.extend(size(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

#[test]
fn texts_in_chunks_of_several_shapes_are_in_json() {
    let stores = Stores::new();
    let array = |codecs: serde_json::Value| {
        json!({"shape": [3, 3], "data_type": "string", "fill_value": "-", "codecs": codecs,
            "chunk_grid": {"name": "rectilinear", "configuration":
                {"kind": "inline", "chunk_shapes": [[1, 2], [[2, 2]]]}}})
    };
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    // Chunks along the last axis reach beyond the array. No chunk has the elements of c/0/1.
    let plain = [
        ("c/0/0", texts(&["a", "b"])),
        ("c/1/0", texts(&["c", "d", "e", "f"])),
        ("c/1/1", texts(&["g", "", "h", ""])),
    ];
    let transposed = [
        ("c/0/0", texts(&["a", "b"])),
        ("c/1/0", texts(&["c", "e", "d", "f"])),
        ("c/1/1", texts(&["g", "h", "", ""])),
    ];
    for (name, codecs, chunks) in [
        ("plain", json!(["vlen-utf8"]), &plain),
        ("transposed", json!([transpose, "vlen-utf8"]), &transposed),
    ] {
        let chunks = chunks.each_ref().map(|(key, bytes)| (*key, &bytes[..]));
        stores.v3(name, array(codecs), &chunks);
    }
    stores.v3(
        "damaged",
        array(json!(["vlen-utf8"])),
        &[("c/1/1", &texts(&["a", "b"]))],
    );
    let mount = stores.mount(&[]);
    for name in ["plain", "transposed"] {
        let found = read(view(&mount, name, &format!("{name}.json"))).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
        let expected = json!([["a", "b", "-"], ["c", "d", "g"], ["e", "f", "h"]]);
        assert_eq!(found, expected, "{name}");
    }
    // The number of elements of the chunk is that of its own shape.
    let error = read(view(&mount, "damaged", "damaged.json")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn edges_that_do_not_cover_the_array_cause_diagnostics() {
    let stores = Stores::new();
    let grid = |edges: serde_json::Value| {
        let configuration = json!({"kind": "inline", "chunk_shapes": [edges]});
        json!({"shape": [8], "chunk_grid": {"name": "rectilinear", "configuration": configuration}})
    };
    for (name, edges) in [
        ("short", json!([3, 4])),
        ("zero", json!([8, 0])),
        ("none", json!([])),
        ("repeated", json!([[0, 1_000_000_000]])),
        ("text", json!("8")),
    ] {
        stores.v3(name, grid(edges), &[]);
    }
    // Many edges in a few runs.
    stores.v3("many", grid(json!([1, [1, 1_000_000_000]])), &[]);
    let mount = stores.mount(&[]);
    for name in ["short", "zero", "none", "repeated", "text"] {
        let text = readme(&mount, name);
        assert!(text.contains("chunk"), "{name}: {text}");
        assert!(
            !view(&mount, name, &format!("{name}.npy")).exists(),
            "{name}"
        );
    }
    assert_eq!(
        read(view(&mount, "many", "many.bin")).unwrap(),
        le(&[FILL; 8])
    );
}

#[test]
fn an_array_of_version_1_is_read_and_translated() {
    let stores = Stores::new();
    // The example of the version 1 specification, with one of its four chunks.
    let meta = json!({"chunks": [10, 10], "compression": "zlib", "compression_opts": 1,
        "dtype": "<i4", "fill_value": 42, "order": "C", "shape": [20, 20], "zarr_format": 1});
    stores.put("meta", meta.to_string().as_bytes());
    stores.put("attrs", br#"{"foo": 42}"#);
    stores.put("0.1", &zlib(&le(&[2; 100])));
    let mount = Mount::new(stores.path());
    let expected: Vec<i32> = (0..400)
        .map(|at| if at < 200 && at % 20 >= 10 { 2 } else { 42 })
        .collect();
    let views = mount.join(".zarrfs");
    let names = fs::read_dir(&views).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let bin = names
        .iter()
        .find(|name| name.to_str().unwrap().ends_with(".npy"));
    let npy = read(views.join(bin.unwrap())).unwrap();
    assert!(npy.ends_with(&le(&expected)), "{names:?}");
    let attributes = fs::read_to_string(views.join("attributes.json")).unwrap();
    assert!(attributes.contains("foo"), "{attributes}");
    let zarray = fs::read_to_string(views.join("as-v2/.zarray")).unwrap();
    assert!(
        zarray.contains("\"zarr_format\": 2") || zarray.contains("\"zarr_format\":2"),
        "{zarray}"
    );
    assert!(views.join("as-v2/.zattrs").exists());
    assert!(views.join("as-v2/0.1").exists());
    assert!(views.join("as-v3/zarr.json").exists());
    assert_eq!(
        fs::read(mount.join("meta")).unwrap(),
        meta.to_string().as_bytes()
    );
}

#[test]
fn types_that_numpy_lacks_are_widened_and_the_readme_says_so() {
    let stores = Stores::new();
    let bytes = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    stores.v3(
        "brain",
        json!({"data_type": "bfloat16", "fill_value": "NaN", "codecs": bytes}),
        &[("c/0", &[0x80, 0x3f, 0xc0, 0xbf, 0, 0, 0x80, 0x7f])],
    );
    stores.v3(
        "nibbles",
        json!({"data_type": "int4", "fill_value": -8, "codecs": [{"name": "packbits"}]}),
        &[("c/0", &[0x21, 0xf8])],
    );
    stores.v2(
        "tensorstore",
        json!({"dtype": "float8_e4m3fn", "fill_value": 0.5}),
        &[("0", &[0x38, 0xb8, 0x7e, 0])],
    );
    let mount = stores.mount(&[]);
    let brain = [
        1.0,
        -1.5,
        0.0,
        f32::INFINITY,
        f32::NAN,
        f32::NAN,
        f32::NAN,
        f32::NAN,
    ];
    let brain: Vec<u8> = brain.into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(read(view(&mount, "brain", "brain.bin")).unwrap(), brain);
    let npy = read(view(&mount, "brain", "brain.npy")).unwrap();
    assert!(contains(&npy, b"'<f4'"));
    assert_eq!(
        read(view(&mount, "brain", "chunks/c/0")).unwrap(),
        brain[..16]
    );
    let text = readme(&mount, "brain");
    assert!(text.contains("NumPy has no data type bfloat16"), "{text}");
    let nibbles = read(view(&mount, "nibbles", "nibbles.bin")).unwrap();
    assert_eq!(nibbles, [1, 2, 0xf8, 0xff, 0xf8, 0xf8, 0xf8, 0xf8]);
    let found = read(view(&mount, "tensorstore", "tensorstore.bin")).unwrap();
    let halves: [u16; 8] = [0x3c00, 0xbc00, 0x5f00, 0, 0x3800, 0x3800, 0x3800, 0x3800];
    let halves: Vec<u8> = halves.into_iter().flat_map(u16::to_le_bytes).collect();
    assert_eq!(found, halves);
}

/// Encodes validity marks and values as the codec `optional` does: both sizes, the packed marks, the values.
fn optional(marks: u8, values: &[u8]) -> Vec<u8> {
    let sizes = [1_u64, values.len() as u64].map(u64::to_le_bytes);
    [&sizes.concat()[..], &[marks], values].concat()
}

#[test]
fn optional_elements_are_structures_of_a_flag_and_a_value() {
    let stores = Stores::new();
    let codecs = |data: serde_json::Value| {
        json!([{"name": "optional", "configuration":
            {"mask_codecs": [{"name": "packbits"}], "data_codecs": data}}])
    };
    let data_type = |value: serde_json::Value| json!({"name": "optional", "configuration": value});
    let big = json!([{"name": "bytes", "configuration": {"endian": "big"}}]);
    let array =
        |data_type: serde_json::Value, fill: serde_json::Value, codecs: serde_json::Value| {
            json!({"shape": [8], "data_type": data_type, "fill_value": fill, "codecs": codecs,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}})
        };
    let int16 = json!({"name": "int16", "configuration": {}});
    // The first and the last element of the first chunk have values; no chunk has the other elements.
    let chunk = optional(0b1001, &[1, 2, 3, 4]);
    stores.v3(
        "plain",
        array(data_type(int16.clone()), json!([7]), codecs(big.clone())),
        &[("c/0", &chunk)],
    );
    stores.v3(
        "empty",
        array(data_type(int16.clone()), json!(null), codecs(big.clone())),
        &[("c/0", &optional(0, &[]))],
    );
    let nested = data_type(
        json!({"name": "optional", "configuration": {"name": "uint8", "configuration": {}}}),
    );
    let inner = optional(0b10, &[5]);
    let bytes = json!([{"name": "bytes"}]);
    let two = codecs(codecs(bytes));
    stores.v3(
        "nested",
        array(nested, json!([null]), two),
        &[("c/0", &optional(0b1010, &inner))],
    );
    for (name, chunk) in [
        ("few_values", optional(0b1001, &[1, 2])),
        ("many_values", optional(0b1001, &[1, 2, 3, 4, 5, 6])),
        ("false_sizes", [&[255; 16][..], &[9, 1, 2, 3, 4]].concat()),
        ("no_sizes", vec![1, 0, 0]),
    ] {
        stores.v3(
            name,
            array(data_type(int16.clone()), json!(null), codecs(big.clone())),
            &[("c/0", &chunk)],
        );
    }
    let text = json!({"name": "string", "configuration": {}});
    stores.v3(
        "texts",
        array(
            data_type(text),
            json!(null),
            codecs(json!([{"name": "vlen-utf8"}])),
        ),
        &[],
    );
    let mount = stores.mount(&[]);

    let plain = read(view(&mount, "plain", "plain.bin")).unwrap();
    let none = [0, 0, 0];
    let filled = [1, 7, 0];
    let expected = [
        [1, 2, 1],
        none,
        none,
        [1, 4, 3],
        filled,
        filled,
        filled,
        filled,
    ];
    assert_eq!(plain, expected.concat());
    let npy = read(view(&mount, "plain", "plain.npy")).unwrap();
    assert!(
        contains(&npy, b"[('present', '|b1'), ('value', '<i2')]"),
        "{npy:?}"
    );
    let empty = read(view(&mount, "empty", "empty.bin")).unwrap();
    assert_eq!(empty, [0; 24]);
    // None; some none; none; the value 5; and the fill value, which is none.
    let nested = read(view(&mount, "nested", "nested.bin")).unwrap();
    let (none, some_none) = ([0, 0, 0], [1, 0, 0]);
    let chunk = [none, some_none, none, [1, 1, 5]];
    assert_eq!(nested, [chunk.concat(), [some_none; 4].concat()].concat());
    for name in ["few_values", "many_values", "false_sizes", "no_sizes"] {
        let error = read(view(&mount, name, &format!("{name}.bin"))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{name}: {error}");
    }
    let text = readme(&mount, "texts");
    assert!(text.contains("data type string"), "{text}");
}
