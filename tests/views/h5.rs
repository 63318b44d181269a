//! Hierarchies as HDF5 files: `.h5` and `.h5ad` as h5py and anndata read them, structures and long attributes in
//! `.nc` as netCDF reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{ENOENT, gauge};
use crate::netcdf::{decoded, python};
use crate::stores::*;
use crate::support::*;

/// Returns the output of `h5.py`; `None` if this user may not run it.
fn h5(word: &str, arguments: &[&Path]) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views");
    let python = directory.join(".venv-anndata/bin/python");
    if !may_run(&python) {
        return None;
    }
    let mut command = Command::new(python);
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(directory.join("h5.py"))
        .arg(word)
        .args(arguments);
    Some(run(&mut command))
}

#[test]
fn hierarchies_equal_those_that_h5py_anndata_and_netcdf_read() {
    let directory = scratch();
    let store = directory.path().join("store");
    if h5("write", &[&store]).is_none() {
        return;
    }
    let mount = Mount::new(&store);
    let output = h5("check", &[&store, mount.path()]).unwrap();
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    for (what, least) in [("h5", 28), ("h5ad", 2), ("nc", 2)] {
        assert!(counts[what].as_u64().unwrap() >= least, "{counts}");
    }
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
    // Attributes stored as JSON text are reported; none is left out.
    let readme = readme(&mount, "tree");
    assert!(
        readme.contains("attribute \"object\" is JSON text"),
        "{readme}"
    );
    let mut lines = readme.lines().filter(|line| line.starts_with("tree.h5: "));
    assert!(!lines.any(|line| line.contains("is not in it")), "{readme}");
}

#[test]
fn a_header_of_hdf5_decodes_nothing() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    // Elements of more than 16 MiB are stored apart from the header.
    let large = json!({"shape": [5 << 20], "chunk_grid": grid(&[1 << 20])});
    stores.v3("absent", large, &[]);
    let mount = stores.mount(&[]);
    let Some(mut python) = python() else { return };
    let file = mount.join(".zarrfs/root.h5");
    let script =
        "import h5py, sys; d = h5py.File(sys.argv[1])['good']; print(d.shape, d.dtype, d.chunks)";
    let output = run(python.arg("-c").arg(script).arg(&file));
    assert_eq!(output.trim(), "(8,) int32 (4,)");
    assert_eq!(decoded(&mount), 0);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len() as u64, fs::metadata(&file).unwrap().len());
    assert!(bytes.ends_with(&le(&GOOD)));
}

/// Names, attributes and trees that HDF5 cannot have give a diagnostic; everything else is in the file.
#[test]
fn hostile_hierarchies_have_a_diagnostic_or_a_file_that_opens() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let many: serde_json::Map<String, Value> = (0..3000)
        .map(|n| (format!("a{n}"), json!("x".repeat(20))))
        .collect();
    let attributes = json!({"": 1, "nul\u{0}": 1, "list": vec![0.5; 30_000], "deep": {"a": {"b": []}},
        ("x".repeat(70_000)): 1, "ok": 1});
    stores.put("odd/.zgroup", b"{\"zarr_format\": 2}");
    stores.put("odd/.zattrs", attributes.to_string().as_bytes());
    stores.put("odd/many/.zgroup", b"{\"zarr_format\": 2}");
    stores.put(
        "odd/many/.zattrs",
        Value::Object(many).to_string().as_bytes(),
    );
    let fields: Vec<Value> = (0..9000).map(|n| json!([format!("m{n}"), "<i4"])).collect();
    for (name, shape, dtype) in [
        ("wide", json!([2]), Value::Array(fields)),
        ("nul", json!([2]), json!([["a\u{0}", "<i4"]])),
        ("axes", Value::Array(vec![json!(1); 33]), json!("<i4")),
        ("broken", json!([2]), json!("<q9")),
    ] {
        let chunks = shape.clone();
        let changes = json!({"shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": null});
        stores.v2(&format!("odd/{name}"), changes, &[]);
    }
    let deep = format!("deep{}", "/g".repeat(70));
    stores.put("deep/.zgroup", b"{\"zarr_format\": 2}");
    stores.put(&format!("{deep}/.zgroup"), b"{\"zarr_format\": 2}");
    stores.put("vast/.zgroup", b"{\"zarr_format\": 2}");
    for n in 0..4100 {
        stores.put(&format!("vast/{n}/.zgroup"), b"{\"zarr_format\": 2}");
    }
    let mount = stores.mount(&[]);
    let Some(mut python) = python() else { return };
    let script = "import h5py, sys; f = h5py.File(sys.argv[1]); \
        print(sorted(f), sorted(f.attrs), f.attrs['list'].sum(), len(f['many'].attrs))";
    let output = run(python
        .arg("-c")
        .arg(script)
        .arg(view(&mount, "odd", "odd.h5")));
    assert_eq!(
        output.trim(),
        "['many'] ['deep', 'list', 'ok'] 15000.0 3000"
    );
    let text = readme(&mount, "odd");
    for what in [
        "attribute \"\" is not in it",
        "attribute \"nul\\0\" is not in it",
        "attribute \"deep\" is JSON text",
        "odd/wide is not in it",
        "odd/nul is not in it",
        "odd/axes is not in it: 33 axes",
        "odd/broken is not in it",
    ] {
        assert!(text.contains(what), "{what}: {text:.3000}");
    }
    for name in ["deep", "vast"] {
        let file = view(&mount, name, &format!("{name}.h5"));
        assert_eq!(errno(fs::metadata(file)), ENOENT, "{name}");
    }
    // The list of views of a group with thousands of members takes long.
    let text = readme(&mount, "deep");
    assert!(text.contains("groups inside each other"), "{text:.3000}");
    assert_others_served(&mount, &stores);
}

/// A file of AnnData is complete, or its reason is in the list of views; other groups have none.
#[test]
fn an_anndata_file_has_all_arrays_or_a_diagnostic() {
    let stores = Stores::new();
    let kind = json!({"encoding-type": "anndata", "encoding-version": "0.1.0"}).to_string();
    for name in ["plain", "whole", "broken", "long"] {
        stores.put(&format!("{name}/.zgroup"), b"{\"zarr_format\": 2}");
        if name != "plain" {
            stores.put(&format!("{name}/.zattrs"), kind.as_bytes());
        }
        stores.v2(&format!("{name}/X"), json!({}), &[("0", &le(&GOOD[..4]))]);
    }
    stores.v2("broken/uns", json!({"dtype": "<q9"}), &[]);
    let texts = json!({"dtype": "|O", "shape": [200_000_000], "chunks": [200_000_000], "fill_value": "",
        "filters": [{"id": "vlen-utf8"}]});
    stores.v2("long/index", texts, &[]);
    let mount = stores.mount(&["--memory-limit", "256M"]);
    let exists = |name: &str, format: &str| {
        fs::metadata(view(&mount, name, &format!("{name}.{format}"))).map(|_| ())
    };
    assert!(exists("whole", "h5ad").is_ok());
    for name in ["plain", "broken", "long"] {
        assert_eq!(errno(exists(name, "h5ad")), ENOENT, "{name}");
        assert!(exists(name, "h5").is_ok(), "{name}");
    }
    assert!(!readme(&mount, "plain").contains("h5ad"));
    for (name, why) in [
        ("broken", "broken/uns is not in it"),
        ("long", "bytes of memory for its elements"),
    ] {
        let readme = readme(&mount, name);
        assert!(readme.contains(&format!("{name}.h5ad: ")), "{readme}");
        assert!(readme.contains(why), "{readme}");
    }
    assert_others_served(&mount, &stores);
}
