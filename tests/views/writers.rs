//! Stores written by other programs: their unusual features are supported by every view.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::netcdf::python;
use crate::stores::{
    GOOD, Stores, changed, grid, le, little, may_run, names, readme, source_name, v3_document, view,
};
use crate::support::*;
use crate::translated::{interpreter, zarr};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs `writers.py` with arguments; `None` if this user may not run it.
fn writers(args: &[&Path]) -> Option<String> {
    Some(run(python()?
        .arg(in_repository("tests/views/writers.py"))
        .args(args)))
}

fn json_of(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn limits_of_packed_values_have_the_meaning_of_a_file_of_xarray() {
    let scratch = scratch();
    if writers(&[Path::new("packed"), scratch.path()]).is_none() {
        return;
    }
    let real = scratch.path().join("real.nc");
    let mount = Mount::new(scratch.path().join("packed.zarr"));
    let files = ["root.nc", "root.cdf.nc", "root.cdf5.nc"].map(|name| view(&mount, "", name));
    let mut args = vec![Path::new("limits"), &real];
    args.extend(files.iter().map(PathBuf::as_path));
    assert_eq!(writers(&args).unwrap().trim(), "equal");
    let cdo = |file: &Path, name: &str| {
        let name = format!("-selname,{name}");
        run(Command::new("cdo").args(["-s", "output", &name]).arg(file))
    };
    for name in ["both", "range"] {
        let expected = cdo(&real, name);
        assert!(
            expected.contains("-5") && expected.contains("30"),
            "{expected}"
        );
        for file in &files {
            assert_eq!(cdo(file, name), expected, "{name} of {file:?}");
        }
    }
}

#[test]
fn elements_that_become_float16_are_rounded_as_numpy_rounds_them() {
    let scratch = scratch();
    if writers(&[Path::new("halves"), scratch.path()]).is_none() {
        return;
    }
    let mount = Mount::new(scratch.path());
    for name in ["astype", "integers", "scaled", "scale"] {
        let found = read(view(&mount, name, &format!("{name}.bin"))).unwrap();
        let expected = fs::read(scratch.path().join(format!("{name}.expected"))).unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        let pairs = found.chunks_exact(2).zip(expected.chunks_exact(2));
        let wrong = pairs.filter(|(found, expected)| found != expected).count();
        assert_eq!(wrong, 0, "of {} elements of {name}", expected.len() / 2);
    }
}

/// Looks up every listed name of a directory of views, recursively.
fn look_up(directory: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata();
        assert!(found.is_ok(), "{:?} is listed: {found:?}", entry.path());
        count += 1;
        // Translations list all chunks of the grid.
        if found.unwrap().is_dir() && entry.file_name().to_string_lossy().starts_with("as-") {
            count += look_up(&entry.path());
        }
    }
    count
}

#[test]
fn every_listed_view_exists_and_groups_without_arrays_are_listed() {
    let stores = Stores::new();
    let group = |name: &str, attributes: Value| {
        let document = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
        stores.put(
            Path::new(name).join("zarr.json").to_str().unwrap(),
            document.to_string().as_bytes(),
        );
    };
    let arrays = [
        (
            "structs/r",
            json!({"dtype": [["a", "<i4"], ["b", "<f8"]], "fill_value": null}),
        ),
        ("empty/e", json!({"shape": [0], "chunks": [1]})),
        (
            "wide/big",
            json!({"shape": [5_000_000_000_u64], "chunks": [1000], "dtype": "|u1", "fill_value": 0}),
        ),
        (
            "raster/side",
            json!({"shape": [1, 3_000_000_000_u64], "chunks": [1, 1000]}),
        ),
        (
            "raster/strip",
            json!({"shape": [4, 2_147_483_647], "chunks": [1, 2_147_483_647], "dtype": "<f8"}),
        ),
        ("raster/plane", json!({"shape": [4, 8], "chunks": [2, 8]})),
        (
            "text/t",
            json!({"dtype": "<U2", "shape": [2], "chunks": [2], "fill_value": ""}),
        ),
    ];
    for name in [
        "structs",
        "empty",
        "wide",
        "text",
        "outer",
        "outer/inner",
        "outer/inner/deep",
    ] {
        group(name, json!({"title": name}));
    }
    group("", json!({"title": "all"}));
    // The names reverse the axes of an array.
    group(
        "raster",
        json!({"title": "raster", "spatial:dimensions": ["b", "a"]}),
    );
    for (name, changes) in &arrays {
        stores.v2(name, changes.clone(), &[]);
    }
    stores.v3(
        "raster/turned",
        json!({"shape": [4, 8], "chunk_grid": grid(&[4, 8]), "dimension_names": ["a", "b"]}),
        &[],
    );
    let mount = Mount::with(stores.path(), &["--formats", "all"]);
    let groups = [
        "",
        "structs",
        "empty",
        "wide",
        "raster",
        "text",
        "outer",
        "outer/inner",
        "good",
    ];
    let of_arrays = arrays
        .iter()
        .map(|(name, _)| *name)
        .chain(["raster/turned"]);
    for node in groups.into_iter().chain(of_arrays) {
        assert!(look_up(&mount.join(node).join(".zarrfs")) > 3, "{node}");
    }
    let own = format!("{}.nc", source_name(stores.path()));
    for (node, name, is_there) in [
        ("", &*own, true),
        ("structs", "structs.nc", true),
        ("structs", "structs.cdf.nc", false),
        ("empty", "empty.nc", true),
        ("empty", "empty.cdf.nc", true),
        ("text", "text.nc", true),
        ("text", "text.cdf.nc", true),
        ("outer", "outer.nc", false),
        ("raster/strip", "strip.tif", false),
        ("raster/side", "side.tif", false),
        ("raster/plane", "plane.tif", true),
        ("raster/turned", "turned.tif", false),
    ] {
        let listed = names(view(&mount, node, "")).contains(&name.to_owned());
        let opened = fs::metadata(view(&mount, node, name)).is_ok();
        assert_eq!(
            (listed, opened),
            (is_there, is_there),
            "{name}: {}",
            readme(&mount, node)
        );
        // `zarrfs info`, without a mount, has the same result.
        let info = run(zarrfs()
            .args(["info", "--json", "--path", node])
            .arg(stores.path()));
        let info: Value = serde_json::from_str(&info).unwrap();
        assert_eq!(
            info["views"][name]["available"],
            json!(is_there),
            "{name}: {info}"
        );
        if !is_there {
            let reason = info["views"][name]["reason"].as_str().unwrap().to_owned();
            assert!(
                readme(&mount, node).contains(&reason),
                "{reason}: {}",
                readme(&mount, node)
            );
        }
    }
    let text = readme(&mount, "outer");
    assert!(
        text.contains("outer.cdf.nc: no array is in the group itself: inner have"),
        "{text}"
    );
    let header = run(Command::new("ncdump")
        .arg("-h")
        .arg(view(&mount, "", "root.nc")));
    assert!(
        header.contains("group: deep {") && header.contains(":title = \"outer/inner\""),
        "{header}"
    );
    if let Some(found) = writers(&[Path::new("groups"), &view(&mount, "", "root.nc")]) {
        for line in [
            "/ all",
            "/outer/inner/deep outer/inner/deep",
            "/structs structs",
            "/empty empty",
        ] {
            assert!(found.lines().any(|found| found == line), "{line}: {found}");
        }
    }
}

#[test]
fn fill_values_of_n5_zarr_and_gdal_are_recognized() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let text = json!({"fill_value": "0"});
    stores.v2("strings", text, &[("0", &le(&[1, 2, 3, 4]))]);
    stores.v2("wrong", json!({"fill_value": "0x"}), &[]);
    let place = json!({"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32631"}});
    let gdal = |name: &str, fill: Value| {
        let changes = json!({
            "shape": [2, 2], "chunk_grid": grid(&[2, 2]), "dimension_names": ["Y", "X"],
            "attributes": place, "fill_value": fill,
        });
        stores.v3(name, changes, &[("c/0/0", &le(&[1, -9999, 0, 4]))]);
    };
    gdal("nodata", json!(-9999));
    gdal("zero", json!(0));
    gdal("none", json!(null));
    stores.v2(
        "ch",
        json!({"dtype": "|S1", "shape": [4], "fill_value": ""}),
        &[("0", b"abcd")],
    );
    let mount = Mount::new(stores.path());
    let bytes = read(view(&mount, "strings", "strings.bin")).unwrap();
    assert_eq!(bytes, le(&[1, 2, 3, 4, 0, 0, 0, 0]));
    assert!(
        readme(&mount, "wrong").contains("fill_value"),
        "{}",
        readme(&mount, "wrong")
    );
    let document = json_of(view(&mount, "", "as-v3/strings/zarr.json"));
    assert_eq!(document["fill_value"], json!(0));
    for file in ["root.nc", "root.cdf.nc"] {
        let header = run(Command::new("ncdump").arg("-h").arg(view(&mount, "", file)));
        assert!(header.contains("nodata:_FillValue = -9999 ;"), "{header}");
        assert!(header.contains("zero:_FillValue = 0 ;"), "{header}");
        assert!(!header.contains("none:_FillValue"), "{header}");
        assert!(header.contains("char ch(dim_4) ;"), "{header}");
    }
    let dump = run(Command::new("ncdump")
        .args(["-v", "ch"])
        .arg(view(&mount, "", "root.nc")));
    assert!(dump.contains("ch = \"abcd\""), "{dump}");
    let nodata =
        |name: &str| run(Command::new("gdalinfo").arg(view(&mount, name, &format!("{name}.tif"))));
    assert!(nodata("nodata").contains("NoData Value=-9999"));
    assert!(nodata("zero").contains("NoData Value=0"));
    assert!(!nodata("none").contains("NoData"));
    let checked = |name: &str| {
        let output = zarrfs()
            .args(["check", "--path", name])
            .arg(stores.path())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, printed) = checked("strings");
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = checked("none");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("fill_value: null") && printed.contains("read as zero"),
        "{printed}"
    );
}

#[test]
fn a_fill_value_of_null_is_zero_in_translations() {
    let stores = Stores::new();
    fs::remove_dir_all(stores.path().join("good")).unwrap();
    stores.put(
        "zarr.json",
        br#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#,
    );
    let null = json!({"fill_value": null});
    stores.v3("plain", null, &[("c/0", &le(&[1, 2, 3, 4]))]);
    let sharding = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": [little()], "index_codecs": [little()],
    }});
    stores.v3(
        "sharded",
        json!({"fill_value": null, "codecs": [sharding]}),
        &[],
    );
    let mount = Mount::new(stores.path());
    for name in ["plain", "sharded"] {
        let document = json_of(view(&mount, "", &format!("unsharded/{name}/zarr.json")));
        assert_eq!(document["fill_value"], json!(0), "{document}");
        let document = json_of(view(&mount, "", &format!("as-v2/{name}/.zarray")));
        assert_eq!(document["fill_value"], json!(0), "{document}");
    }
    // The rest of the document and the chunks are unchanged.
    let document = json_of(view(&mount, "", "unsharded/plain/zarr.json"));
    assert_eq!(document, changed(v3_document(), json!({"fill_value": 0})));
    let chunk = read(view(&mount, "", "unsharded/plain/c/0")).unwrap();
    assert_eq!(chunk, le(&[1, 2, 3, 4]));
}

/// Returns a Zstandard frame as a streaming encoder writes it, without the size of its content.
fn streamed(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 1).unwrap()
}

#[test]
fn zstd_frames_without_a_size_are_read_by_zarr_python_2() {
    let stores = Stores::new();
    fs::remove_dir_all(stores.path().join("good")).unwrap();
    let group = br#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
    stores.put("zarr.json", group);
    let codecs =
        json!([little(), {"name": "zstd", "configuration": {"level": 1, "checksum": false}}]);
    let (first, second) = (streamed(&le(&GOOD[..4])), streamed(&le(&GOOD[4..])));
    let chunks = [("c/0", &first[..]), ("c/1", &second[..])];
    stores.v3("plain", json!({"codecs": codecs}), &chunks);
    let sharding = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [4], "codecs": codecs, "index_codecs": [little()],
    }});
    let (length, rest) = (first.len() as u64, second.len() as u64);
    let index = [0, length, length, rest].map(u64::to_le_bytes).concat();
    let shard = [&first[..], &second, &index].concat();
    let changes = json!({"codecs": [sharding], "chunk_grid": grid(&[8])});
    stores.v3("sharded", changes, &[("c/0", &shard)]);
    let mount = stores.mount(&[]);
    for name in ["plain", "sharded"] {
        let chunk = view(&mount, "", &format!("as-v2/{name}/0"));
        let bytes = read(&chunk).unwrap();
        assert_eq!(bytes.len(), first.len() + 4, "{name}");
        assert_eq!(fs::metadata(&chunk).unwrap().len(), bytes.len() as u64);
        assert_eq!(zstd::bulk::decompress(&bytes, 16).unwrap(), le(&GOOD[..4]));
    }
    // A chunk of version 3 is unchanged.
    let inner = read(view(&mount, "", "unsharded/sharded/c/1")).unwrap();
    assert_eq!(inner, second);
    if !may_run(&interpreter(2)) {
        return;
    }
    let script = "import sys, zarr
for name in ['plain', 'sharded']:
    print(zarr.open(sys.argv[1], mode='r')[name][:].tolist())";
    let output = run(zarr(2).args(["-c", script]).arg(view(&mount, "", "as-v2")));
    let expected = format!("{GOOD:?}");
    assert_eq!(output.lines().collect::<Vec<_>>(), [&expected, &expected]);
}
