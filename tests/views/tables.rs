//! Parquet and CSV files of groups, read by pyarrow, pandas, DuckDB and R.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge};
use crate::netcdf::decoded;
use crate::stores::*;
use crate::support::*;

const PYTHON: &str = "tests/views/.venv/bin/python";
const GROUP: &[u8] = br#"{"zarr_format": 3, "node_type": "group"}"#;

fn tables(word: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join(PYTHON));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root.join("tests/views/tables.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

#[test]
fn tables_equal_those_that_their_programs_read() {
    if !may_run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    tables("write", &[&store]);
    let mount = Mount::new(&store);
    let rows = tables("rows", &[&store, &view(&mount, "large", "large.parquet")]);
    assert_eq!(rows.trim(), "3000000");
    assert_eq!(decoded(&mount), 0, "the footer has no elements");
    let output = tables("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    for (what, least) in [("parquet", 11), ("csv", 9)] {
        assert!(counts[what].as_u64().unwrap() >= least, "{counts}");
    }
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

/// Writes an array of a group.
fn member(stores: &Stores, name: &str, length: u64, more: Value, chunks: &[(&str, &[u8])]) {
    let mut changes = json!({"shape": [length], "dimension_names": ["x"]});
    let members = changes.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    stores.v3(name, changes, chunks);
}

#[test]
fn each_part_of_an_encoded_column_is_encoded() {
    const ROWS: u32 = 300_000;
    const REQUEST_BYTES: usize = 4096;
    let stores = Stores::new();
    stores.put("g/zarr.json", GROUP);
    let seconds: Vec<u8> = (0..ROWS)
        .map(i64::from)
        .flat_map(i64::to_le_bytes)
        .collect();
    let flags: Vec<u8> = (0..ROWS).map(|row| u8::from(row % 3 == 0)).collect();
    let unit = json!({"unit": "s", "scale_factor": 1});
    let times = json!({
        "data_type": {"name": "numpy.datetime64", "configuration": unit},
        "chunk_grid": grid(&[ROWS.into()]), "fill_value": 0,
    });
    let booleans = json!({
        "data_type": "bool", "chunk_grid": grid(&[ROWS.into()]), "fill_value": false,
        "codecs": [{"name": "bytes"}],
    });
    member(&stores, "g/t", ROWS.into(), times, &[("c/0", &seconds)]);
    member(&stores, "g/f", ROWS.into(), booleans, &[("c/0", &flags)]);
    let mount = stores.mount(&[]);
    let file = File::open(view(&mount, "g", "g.parquet")).unwrap();
    // Reads backwards, so that the kernel requests only one part of a column.
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    for (part, bytes) in bytes.chunks_mut(REQUEST_BYTES).enumerate().rev() {
        let offset = (part * REQUEST_BYTES) as u64;
        file.read_exact_at(bytes, offset).unwrap();
    }
    let milliseconds = (0..ROWS).map(|row| i64::from(row) * 1000);
    let milliseconds: Vec<u8> = milliseconds.flat_map(i64::to_le_bytes).collect();
    let bits = flags.chunks(8).map(|eight| {
        let bits = eight.iter().enumerate();
        bits.fold(0, |byte, (bit, flag)| byte | flag << bit)
    });
    for (column, expected) in [("t", milliseconds), ("f", bits.collect())] {
        let mut places = bytes.windows(expected.len());
        assert!(places.any(|found| found == expected), "{column}");
    }
    assert!(!mount.log().contains("ERROR"), "{}", mount.log());
}

fn text(mount: &Mount, group: &str) -> String {
    String::from_utf8(read(view(mount, group, &format!("{group}.csv"))).unwrap()).unwrap()
}

#[test]
fn c02_a_damaged_chunk_is_an_error_of_its_rows() {
    let stores = Stores::new();
    stores.put("g/zarr.json", GROUP);
    let half = vec![1; 4 * 32_768];
    let large = json!({"chunk_grid": grid(&[32_768])});
    member(
        &stores,
        "g/a",
        65_536,
        large.clone(),
        &[("c/0", &half), ("c/1", &half)],
    );
    member(
        &stores,
        "g/b",
        65_536,
        large,
        &[("c/0", &half), ("c/1", b"short")],
    );
    let mount = stores.mount(&[]);
    let file = File::open(view(&mount, "g", "g.csv")).unwrap();
    let row_bytes = 2 * (11 + 1);
    assert_eq!(file.metadata().unwrap().len(), 4 + 65_536 * row_bytes);
    let mut row = [0; 24];
    file.read_exact_at(&mut row, 4).unwrap();
    assert_eq!(row, *b"      16843009,16843009\n");
    assert_eq!(
        errno(file.read_exact_at(&mut row, 4 + 50_000 * row_bytes)),
        EIO
    );
    let file = File::open(view(&mount, "g", "g.parquet")).unwrap();
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 8192).unwrap();
    assert_eq!(part, [1; 4096]);
    let b_at = 65_536 * 4 + 32_768 * 4 + 8192;
    assert_eq!(errno(file.read_exact_at(&mut part, b_at)), EIO);
    assert_others_served(&mount, &stores);
}

#[test]
fn an_array_has_the_table_of_its_dimension() {
    let stores = Stores::new();
    stores.put("g/zarr.json", GROUP);
    for (name, length, dimension) in [
        ("temperature", 4, "obs"),
        ("depth", 4, "obs"),
        ("pressure", 4, "obs"),
        ("latitude", 2, "station"),
        ("station", 2, "station"),
    ] {
        let more = json!({"dimension_names": [dimension]});
        member(&stores, &format!("g/{name}"), length, more, &[]);
    }
    stores.v3(
        "g/plane",
        json!({"shape": [2, 2], "chunk_grid": grid(&[2, 2])}),
        &[],
    );
    let mount = stores.mount(&["--formats", "all"]);
    // The blanks of all columns are before the first one.
    let row = |columns: usize| {
        let others = format!(",{FILL}").repeat(columns - 1);
        format!("{FILL:>width$}{others}\n", width = 10 + columns)
    };
    let of_obs = format!("depth,pressure,temperature\n{}", row(3).repeat(4));
    let of_station = format!("station,latitude\n{}", row(2).repeat(2));
    let found = |node: &str, name: &str| {
        String::from_utf8(read(view(&mount, node, name)).unwrap()).unwrap()
    };
    assert_eq!(text(&mount, "g"), of_obs);
    for name in ["depth", "pressure", "temperature"] {
        assert_eq!(found("g", &format!("{name}.csv")), of_obs, "{name}");
    }
    for name in ["latitude", "station"] {
        let file = format!("{name}.csv");
        assert_eq!(found("g", &file), of_station, "{name}");
        assert_eq!(found(&format!("g/{name}"), &file), of_station, "{name}");
        let parquet = read(view(&mount, "g", &format!("{name}.parquet"))).unwrap();
        assert!(parquet.starts_with(b"PAR1"), "{name}");
    }
    let plane = fs::metadata(view(&mount, "g", "plane.csv"));
    assert_eq!(errno(plane), ENOENT);
    assert!(readme(&mount, "g").contains("latitude of station (2), station of station (2)"));
    assert!(readme(&mount, "g/latitude").contains("latitude.csv"));
    assert!(!readme(&mount, "g/plane").contains("plane.csv"));
    // Each array has the same table, so that a walk of the views would read it many times.
    for (node, expected) in [("g", 1), ("g/latitude", 0)] {
        let names = fs::read_dir(view(&mount, node, "")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let tables = names.filter(|name| name.ends_with(".csv") || name.ends_with(".parquet"));
        assert_eq!(tables.count(), 2 * expected, "{node}");
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn hostile_groups_have_a_diagnostic_or_a_table_of_the_right_size() {
    let stores = Stores::new();
    for group in [
        "lengths", "names", "vast", "many", "empty", "absent", "none",
    ] {
        stores.put(&format!("{group}/zarr.json"), GROUP);
    }
    member(&stores, "lengths/a", 8, json!({}), &[]);
    member(&stores, "lengths/b", 9, json!({}), &[]);
    member(
        &stores,
        "lengths/c",
        9,
        json!({"dimension_names": ["y"]}),
        &[],
    );
    member(&stores, "names/a\"b\n,c", 1, json!({}), &[]);
    let byte = json!({"data_type": "int8", "fill_value": 0, "chunk_grid": grid(&[1 << 20])});
    member(&stores, "vast/a", 1 << 62, byte, &[]);
    for number in 0..4097 {
        member(&stores, &format!("many/{number}"), 1, json!({}), &[]);
    }
    member(&stores, "empty/a", 0, json!({}), &[]);
    member(&stores, "absent/a", 5, json!({}), &[]);
    stores.v3(
        "none/a",
        json!({"shape": [2, 2], "chunk_grid": grid(&[2, 2])}),
        &[],
    );
    let mount = stores.mount(&[]);
    let row = format!("{FILL:>11}\n");
    // If dimensions have the same number of arrays, the first of the longest ones is used.
    assert_eq!(text(&mount, "lengths"), format!("b\n{}", row.repeat(9)));
    assert!(readme(&mount, "lengths").contains("a of x (8), c of y (9)"));
    assert_eq!(text(&mount, "names"), format!("\"a\"\"b\n,c\"\n{row}"));
    assert_eq!(text(&mount, "empty"), "a\n");
    assert_eq!(text(&mount, "absent"), format!("a\n{}", row.repeat(5)));
    for group in ["names", "empty", "absent"] {
        let file = read(view(&mount, group, &format!("{group}.parquet"))).unwrap();
        assert!(
            file.starts_with(b"PAR1") && file.ends_with(b"PAR1"),
            "{group}"
        );
    }
    // The limit is that of all group files.
    let found = fs::metadata(view(&mount, "many", "many.parquet"));
    assert_eq!(errno(found), ENOENT);
    for (group, why) in [
        ("vast", "no file can be so long"),
        ("none", "no array in it has one axis"),
    ] {
        for format in ["parquet", "csv"] {
            let name = format!("{group}.{format}");
            let found = fs::metadata(view(&mount, group, &name));
            assert_eq!(errno(found), ENOENT, "{name}");
            let readme = readme(&mount, group);
            let line = readme.lines().find(|line| line.starts_with(&name));
            assert!(line.unwrap().contains(why), "{readme}");
        }
    }
    assert_others_served(&mount, &stores);
}
