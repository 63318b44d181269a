//! What attributes say, in each format: OME-Zarr 0.4 to 0.6 as ngff-zarr writes it, orientations, transforms, channels,
//! N5 and CF, read by nibabel, SimpleITK, tifffile, astropy, mrcfile and pynrrd; and a matrix of conventions and formats,
//! with stores that the library of each convention writes and reads.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use zarrfs::view::Format;

use crate::clients::gauge;
use crate::stores::*;
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn conventions(environment: &str, word: &str, arguments: &[&Path]) -> String {
    let arguments = [&[Path::new(word)], arguments].concat();
    python(environment, "tests/views/conventions.py", &arguments)
}

fn python(environment: &str, script: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(in_repository(environment));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore")
        .arg(in_repository(script))
        .args(arguments);
    run(&mut command)
}

const PYTHON: &str = "tests/views/.venv/bin/python";
const NGFF: &str = "tests/views/.venv-ngff/bin/python";
const ANNDATA: &str = "tests/views/.venv-anndata/bin/python";
const WRITERS: &str = "tests/views/.venv-writers/bin/python";

#[test]
fn what_attributes_say_is_in_each_format_or_in_the_list_of_views() {
    if ![PYTHON, NGFF]
        .iter()
        .all(|python| may_run(&in_repository(python)))
    {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    std::fs::create_dir(&store).unwrap();
    conventions(NGFF, "ngff", &[&store]);
    conventions(PYTHON, "write", &[&store]);
    let mount = Mount::with(&store, &["--force"]);
    let output = conventions(PYTHON, "check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(counts, json!({"stores": 11, "files": 70, "differences": 0}));
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

/// The names of channels are text, of which these programs support little.
#[test]
fn cdo_and_nco_read_images_with_names_of_channels() {
    // tests/views/setup.sh installs the programs, too.
    if !may_run(&in_repository(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("cells.zarr");
    std::fs::create_dir_all(store.join("0")).unwrap();
    let document = |path: &str, document: Value| {
        std::fs::write(store.join(path), document.to_string()).unwrap();
    };
    let axes = ["c", "y", "x"].map(|name| {
        let kind = if name == "c" { "channel" } else { "space" };
        json!({"name": name, "type": kind})
    });
    let scale = json!({"type": "scale", "scale": [1, 0.5, 0.5]});
    let dataset = json!({"path": "0", "coordinateTransformations": [scale]});
    let channels =
        json!([{"label": "DAPI", "color": "0000FF"}, {"label": "GFP", "color": "00FF00"}]);
    let ome = json!({
        "version": "0.5",
        "multiscales": [{"name": "cells", "axes": axes, "datasets": [dataset]}],
        "omero": {"channels": channels},
    });
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}});
    document("zarr.json", group);
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [2, 4, 5], "data_type": "uint16", "fill_value": 7,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4, 5]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    document("0/zarr.json", array);
    let mount = Mount::new(&store);
    for suffix in ["nc", "cdf.nc", "cdf5.nc"] {
        let file = mount.join(format!(".zarrfs/cells.{suffix}"));
        let mean = run(Command::new("cdo")
            .args(["-s", "output", "-fldmean"])
            .arg(&file));
        let mean: Vec<&str> = mean.split_whitespace().collect();
        assert_eq!(mean, ["7", "7"], "{suffix}");
        let names = run(Command::new("ncks")
            .args(["-H", "-v", "channel"])
            .arg(&file));
        assert!(names.contains("DAPI") && names.contains("GFP"), "{names}");
    }
}

#[test]
fn each_file_carries_or_names_what_the_library_of_a_convention_reads() {
    if ![ANNDATA, WRITERS, NGFF]
        .iter()
        .all(|python| may_run(&in_repository(python)))
    {
        return;
    }
    let directory = scratch();
    let (store, expected) = (
        directory.path().join("store"),
        directory.path().join("expected.json"),
    );
    std::fs::create_dir(&store).unwrap();
    let stores = "tests/views/carried/stores.py";
    python(WRITERS, stores, &[&store, &expected]);
    for (environment, convention) in [(NGFF, "ngff_zarr"), (ANNDATA, "anndata_store")] {
        python(
            environment,
            stores,
            &[&store, &expected, Path::new(convention)],
        );
    }
    let mount = Mount::with(&store, &["--force"]);
    let script = "tests/views/carried/files.py";
    let output = python(ANNDATA, script, &[&expected, mount.path()]);
    let found: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    let counts = [&found["arrays"], &found["files"], &found["differences"]];
    assert_eq!(counts, [&json!(114), &json!(1497), &json!(0)], "{output}");
    for (suffix, carried) in found["carried"].as_object().unwrap() {
        // The fields of these are rendered by the code of .tif, .nc and .h5.
        if suffix.starts_with(".packed") || suffix == ".h5ad" {
            continue;
        }
        let format: Format = suffix.parse().unwrap();
        let carried = carried.as_array().unwrap();
        for field in format.expresses().unwrap() {
            let is_carried = carried.contains(&json!(field.to_string()));
            assert!(is_carried, "no {suffix} carries {field}");
        }
    }
    is_documented(found["table"].as_str().unwrap());
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

/// Compares the table with that of CONTRIBUTING.md; `ZARRFS_UPDATE_MANUAL=1` writes it.
fn is_documented(table: &str) {
    let path = in_repository("CONTRIBUTING.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- conventions -->\n", "<!-- end of conventions -->");
    let from = text.find(start).unwrap() + start.len();
    let to = text.find(end).unwrap();
    if std::env::var_os("ZARRFS_UPDATE_MANUAL").is_some() {
        std::fs::write(&path, [&text[..from], table, &text[to..]].concat()).unwrap();
        return;
    }
    let why = "ZARRFS_UPDATE_MANUAL=1 cargo test --test views each_file_carries writes the table";
    assert_eq!(&text[from..to], table, "{why}");
}
