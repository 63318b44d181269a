//! Files with the stored chunks of arrays, as read by HDF5, netCDF, GDAL and tifffile, and sources
//! that change or are invalid.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, ESTALE, gauge};
use crate::netcdf::{decoded, python};
use crate::stores::*;
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs `packed.py` in the environment of the views.
fn packed(word: &str, arguments: &[&Path]) -> Option<String> {
    let mut command = python()?;
    command
        .arg(in_repository("tests/views/packed.py"))
        .arg(word);
    Some(run(command.args(arguments)))
}

fn checked(store: &Path, mount: &Mount) -> Option<Value> {
    let output = packed("check", &[store, mount.path()])?;
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
    Some(serde_json::from_str(output.lines().last().unwrap()).unwrap())
}

#[test]
fn stored_chunks_are_read_by_the_programs_of_other_formats() {
    let directory = scratch();
    let (store, zip) = (
        directory.path().join("store"),
        directory.path().join("s.zip"),
    );
    if packed("write", &[&store]).is_none() {
        return;
    }
    packed("zip", &[&store, &zip]);
    for source in [&store, &zip] {
        let mount = Mount::new(source);
        let counts = checked(&store, &mount).unwrap();
        assert_eq!(
            counts,
            json!({"nc": 18, "refused": 6, "chunks": 573, "variables": 24, "tif": 7, "no_tif": 17})
        );
    }
}

#[test]
fn stores_of_zarr_python_2_are_read_as_well() {
    let python = in_repository("tests/fixtures/.venv2/bin/python");
    if !may_run(&python) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let script = in_repository("tests/views/packed.py");
    run(command.arg(script).arg("write").arg(&store));
    let mount = Mount::new(&store);
    let Some(counts) = checked(&store, &mount) else {
        return;
    };
    assert_eq!((&counts["nc"], &counts["refused"]), (&json!(15), &json!(5)));
}

/// Creates a v2 array of two zlib chunks.
fn stores() -> Stores {
    let stores = Stores::new();
    let changes = json!({"compressor": {"id": "zlib", "level": 1}});
    let chunks = [("0", &zlib(&le(&[1; 4]))[..]), ("1", &zlib(&le(&[2; 4])))];
    stores.v2("a", changes, &chunks);
    stores
}

/// Returns whether a file contains stored bytes, read without the page cache.
fn has(file: &File, stored: &[u8]) -> std::io::Result<bool> {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let size = usize::try_from(file.metadata()?.len()).unwrap();
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.windows(stored.len()).any(|part| part == stored))
}

#[test]
fn a_chunk_that_changes_is_stale_in_an_open_file_and_new_in_the_next() {
    let stores = stores();
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "a", "a.packed.nc");
    let file = File::open(&path).unwrap();
    let (one, two) = (zlib(&le(&[1; 4])), zlib(&le(&[2; 4])));
    assert!(has(&file, &one).unwrap() && has(&file, &two).unwrap());
    // Replaces the chunk by one of the same size, then by one of another size.
    for bytes in [le(&[3; 4]), le(&[4, 5, 6, 7])] {
        let new = zlib(&bytes);
        stores.put(".new", &new);
        fs::rename(stores.path().join(".new"), stores.path().join("a/1")).unwrap();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(errno(has(&file, &two)), ESTALE);
        let next = File::open(&path).unwrap();
        assert!(has(&next, &one).unwrap() && has(&next, &new).unwrap());
    }
    let last = File::open(&path).unwrap();
    fs::remove_file(stores.path().join("a/1")).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(errno(has(&last, &one)), ESTALE);
    let next = File::open(&path).unwrap();
    assert!(has(&next, &one).unwrap());
    let Some(mut python) = python() else { return };
    let script = "import h5py, sys; print(h5py.File(sys.argv[1])['a'][...].tolist())";
    let output = run(python.args(["-c", script]).arg(&path));
    assert_eq!(
        output.trim(),
        format!("[1, 1, 1, 1, {FILL}, {FILL}, {FILL}, {FILL}]")
    );
    assert_eq!(decoded(&mount), 0);
}

#[test]
fn bytes_that_are_no_zlib_stream_are_an_error_of_the_library_that_reads_them() {
    let stores = stores();
    stores.put("a/1", b"no stream");
    let mount = stores.mount(&[]);
    let path = view(&mount, "a", "a.packed.nc");
    assert!(has(&File::open(&path).unwrap(), b"no stream").unwrap());
    let Some(mut python) = python() else { return };
    let script = "import h5py, sys
a = h5py.File(sys.argv[1])['a']
print(a[:4].tolist())
try:
    print(a[4:])
except OSError as error:
    print('inflate' in str(error) or 'filter' in str(error))";
    let output = run(python.args(["-c", script]).arg(&path));
    assert_eq!(output.trim(), "[1, 1, 1, 1]\nTrue");
    assert_others_served(&mount, &stores);
}

#[test]
fn chunks_of_impossible_sizes_are_errors_and_too_many_chunks_cause_a_diagnostic() {
    let stores = stores();
    stores.put("a/1", b"");
    stores.v2(
        "short",
        json!({}),
        &[("0", &le(&[1; 4])), ("1", &[1, 2, 3])],
    );
    let zlib = json!({"id": "zlib", "level": 1});
    let vast = json!({"shape": [1_u64 << 40], "chunks": [1], "compressor": zlib});
    stores.v2("vast", vast, &[]);
    let mount = stores.mount(&[]);
    for name in ["a", "short"] {
        let path = view(&mount, name, &format!("{name}.packed.nc"));
        assert_eq!(errno(fs::metadata(path)), EIO, "{name}");
    }
    let path = view(&mount, "vast", "vast.packed.nc");
    assert_eq!(errno(fs::metadata(path)), ENOENT);
    let text = readme(&mount, "vast");
    assert!(text.contains("vast.packed.nc: more than"), "{text}");
    assert_others_served(&mount, &stores);
}

#[test]
fn a_zip_with_a_false_size_is_an_error_and_never_other_bytes() {
    let directory = scratch();
    let (store, zip) = (
        directory.path().join("store"),
        directory.path().join("s.zip"),
    );
    if packed("write", &[&store]).is_none() {
        return;
    }
    packed("false-size", &[&store, &zip]);
    let mount = Mount::new(&zip);
    let path = view(&mount, "plain", "plain.packed.nc");
    assert_eq!(errno(read(&path)), EIO);
    let other = view(&mount, "turned", "turned.packed.nc");
    assert!(read(other).is_ok());
}
