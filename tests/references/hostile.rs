//! References to forbidden targets, and invalid references.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::fixtures;
use crate::support::*;

/// Writes references for a one-dimensional array of bytes, with one byte per chunk.
fn write(path: &Path, chunks: &[Value]) {
    let zarray = json!({
        "zarr_format": 2, "shape": [chunks.len()], "chunks": [1], "dtype": "|u1", "fill_value": 7,
        "order": "C", "compressor": null, "filters": null
    });
    let mut refs = serde_json::Map::new();
    refs.insert(".zgroup".into(), json!("{\"zarr_format\": 2}"));
    refs.insert("x/.zarray".into(), json!(zarray.to_string()));
    for (number, chunk) in chunks.iter().enumerate() {
        refs.insert(format!("x/{number}"), chunk.clone());
    }
    fs::write(path, json!({"version": 1, "refs": refs}).to_string()).unwrap();
}

/// Asserts that both the key and the decoded element fail with this errno, and that the log has the reason.
fn fails(chunk: Value, args: &[&str], expected: Errno, why: &str) {
    let directory = scratch();
    let root = directory.path().join("refs");
    fs::create_dir(&root).unwrap();
    fs::write(directory.path().join("outside"), b"secret").unwrap();
    fs::write(root.join("target"), b"abc").unwrap();
    symlink(directory.path().join("outside"), root.join("link")).unwrap();
    symlink("/", root.join("root")).unwrap();
    run(Command::new("mkfifo").arg(root.join("fifo")));
    let path = root.join("refs.json");
    write(&path, std::slice::from_ref(&chunk));
    let mount = Mount::with(&path, args);
    for name in ["x/0", "x/.zarrfs/x.npy"] {
        let found = read(mount.join(name));
        assert_eq!(
            errno(found),
            expected.raw_os_error(),
            "{chunk} {name}\n{}",
            mount.log()
        );
    }
    let log = mount.log();
    assert!(log.contains(why), "{chunk}: {log}");
    mount.unmount();
}

#[test]
fn targets_outside_of_the_directory_are_refused_and_the_option_is_named() {
    for target in [
        "file:///etc/passwd",
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        "file://../outside",
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:9/x",
        "http://localhost/x",
        "http://[::1]/x",
        "https://example.com/x",
        "s3://bucket/key",
    ] {
        fails(json!([target, 0, 1]), &[], Errno::ACCESS, "--allow-target");
        fails(json!([target]), &[], Errno::ACCESS, "--allow-target");
    }
}

#[test]
fn private_addresses_are_refused_where_any_target_is_allowed() {
    for target in [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:9/x",
        "http://2130706433/x",
        "http://[::ffff:a9fe:a9fe]/x",
    ] {
        let args = ["--allow-target", "any"];
        fails(json!([target, 0, 1]), &args, Errno::ACCESS, "private");
    }
}

#[test]
fn links_out_of_the_directory_are_refused() {
    for target in ["link", "root/etc/passwd"] {
        fails(json!([target, 0, 1]), &[], Errno::ACCESS, "leads out");
    }
}

#[test]
fn a_target_that_is_missing_is_an_error_and_no_fill_value() {
    for target in ["absent", "target/below", "absent/below"] {
        fails(json!([target, 0, 1]), &[], Errno::IO, "does not exist");
        fails(json!([target]), &[], Errno::IO, "does not exist");
    }
    fails(json!(["fifo", 0, 1]), &[], Errno::IO, "neither a file");
    fails(json!(["memory://x", 0, 1]), &[], Errno::OPNOTSUPP, "memory");
    fails(
        json!(["simplecache::s3://x/y", 0, 1]),
        &[],
        Errno::OPNOTSUPP,
        "simplecache",
    );
}

#[test]
fn ranges_beyond_the_end_of_a_target_are_corrupt() {
    for (offset, length) in [(0, 4), (3, 1), (4, 0), (1 << 40, 1), (i64::MAX, 0)] {
        fails(json!(["target", offset, length]), &[], Errno::IO, "3 bytes");
    }
}

/// netCDF-C 4.10 reads the first 4 MiB to open a file.
#[test]
fn c16_a_target_that_is_refused_hides_no_other_variable_of_a_small_netcdf_file() {
    let directory = scratch();
    let path = directory.path().join("refs.json");
    write(&path, &[json!(["/etc/passwd", 0, 1])]);
    let mut references: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let refs = references["refs"].as_object_mut().unwrap();
    let zarray = refs["x/.zarray"].clone();
    refs.insert("good/.zarray".into(), zarray);
    refs.insert("good/0".into(), json!("a"));
    fs::write(&path, references.to_string()).unwrap();
    let mount = Mount::new(&path);
    for name in ["root.nc", "root.cdf.nc"] {
        let script = "import netCDF4, sys
file = netCDF4.Dataset(sys.argv[1])
assert file['good'][:].tolist() == [97]
for _ in range(2):
    try:
        print(file['x'][:])
    except (OSError, RuntimeError):
        pass";
        let mut client = Command::new(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references/.venv/bin/python"),
        );
        let output = run(client
            .args(["-c", script])
            .arg(mount.join(".zarrfs").join(name)));
        assert_eq!(output, "", "{name}");
    }
    mount.unmount();
}

#[test]
fn values_in_targets_that_are_damaged_or_too_short_are_errors_of_their_keys() {
    for (target, why) in [
        (json!(["data:;base64,A"]), "no base64"),
        (json!(["base64:%%"]), "no base64"),
        (json!(["data:text/plain"]), "without a comma"),
        (json!(["data:,abc", 2, 2]), "has 3 bytes"),
        (json!(["base64:AAE=", 3, 1]), "has 2 bytes"),
    ] {
        fails(target, &[], Errno::IO, why);
    }
}

#[test]
fn lists_that_are_no_references_refuse_the_mount() {
    let directory = scratch();
    let path = directory.path().join("refs.json");
    for chunk in [
        json!(["target", -1, 1]),
        json!(["target", 0, -1]),
        json!(["target", i64::MAX, 1]),
        json!(["target", 0, u64::MAX]),
        json!(["target", 0.5, 1]),
        json!(["target", 0]),
        json!([null, 0, 1]),
        json!(null),
        json!(5),
        json!("base64:%%%"),
    ] {
        write(&path, std::slice::from_ref(&chunk));
        let refused = Mount::attempt(&path, &[]).unwrap_err();
        assert!(
            refused.stderr.contains("x/0"),
            "{chunk}: {}",
            refused.stderr
        );
    }
    for (text, name) in [
        (
            r#"{"version":1,"refs":{},"gen":[{"key":"a{{i}}"}]}"#,
            "`gen`",
        ),
        (
            r#"{"version":1,"templates":{"f":"{{c}}"},"refs":{}}"#,
            "`f`",
        ),
        (r#"{"version":1,"refs":{".zgroup":"{}""#, "too early"),
    ] {
        fs::write(&path, text).unwrap();
        let refused = Mount::attempt(&path, &[]).unwrap_err();
        assert!(refused.stderr.contains(name), "{text}: {}", refused.stderr);
    }
}

#[test]
fn a_target_that_is_a_reference_file_is_bytes_and_values_can_be_empty() {
    let directory = scratch();
    let path = directory.path().join("refs.json");
    fs::write(directory.path().join("empty"), b"").unwrap();
    write(
        &path,
        &[
            json!(["refs.json", 0, 1]),
            json!(["empty"]),
            json!(["empty", 0, 0]),
            json!(""),
        ],
    );
    let mount = Mount::new(&path);
    assert_eq!(read(mount.join("x/0")).unwrap(), b"{");
    for empty in ["x/1", "x/2", "x/3"] {
        assert_eq!(read(mount.join(empty)).unwrap(), b"");
    }
    mount.unmount();
}

#[test]
fn the_last_of_several_values_of_a_key_counts() {
    let directory = scratch();
    let path = directory.path().join("refs.json");
    fs::write(
        &path,
        r#"{".zgroup": "{\"zarr_format\": 2}", "a": "1", "b/c": "2", "a": "3", "b": "4"}"#,
    )
    .unwrap();
    let mount = Mount::new(&path);
    assert_eq!(read(mount.join("a")).unwrap(), b"3");
    assert_eq!(read(mount.join("b/c")).unwrap(), b"2");
    mount.unmount();
}

#[test]
fn json_of_other_kinds_is_served_unchanged() {
    let directory = scratch();
    for (name, text) in [
        ("a.json", "{\"type\": \"FeatureCollection\"}"),
        (
            "zarr.json",
            "{\"zarr_format\": 3, \"node_type\": \"group\"}",
        ),
        ("list.json", "[1, 2]"),
        ("empty.json", ""),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        let refused = Mount::attempt(&path, &[]).unwrap_err();
        let text = refused.stderr.replace("without references", "");
        assert!(!text.contains("references"), "{name}: {text}");
    }
}

#[test]
fn references_that_exceed_the_memory_limit_are_refused() {
    let directory = scratch();
    let path = directory.path().join("refs.json");
    let mut text = String::from(r#"{"version":1,"refs":{".zgroup":"{\"zarr_format\":2}""#);
    for number in 0..300_000 {
        text.push_str(&format!(
            ",\"x/{number}\":[\"file-{number}.nc\",{number},10]"
        ));
    }
    text.push_str("}}");
    fs::write(&path, text).unwrap();
    let refused = Mount::attempt(&path, &["--memory-limit", "4MiB"]).unwrap_err();
    assert!(
        refused.stderr.contains("--memory-limit"),
        "{}",
        refused.stderr
    );
    let mount = Mount::new(&path);
    assert_eq!(mount.join("x/299999").metadata().unwrap().len(), 10);
    assert!(!mount.join("x/300000").exists());
    mount.unmount();
}

#[test]
fn damaged_partitions_are_errors_and_no_fill_values() {
    let directory = scratch();
    run(Command::new("cp")
        .arg("-a")
        .arg(fixtures().join("."))
        .arg(directory.path()));
    let partition = directory.path().join("combined.parq/v/refs.1.parq");
    let bytes = fs::read(&partition).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 0x55;
    let mut no_end = bytes.clone();
    no_end.truncate(bytes.len() - 1);
    for wrong in [&no_end[..], b"", b"PAR1PAR1", &[0xff; 100]] {
        fs::write(&partition, wrong).unwrap();
        let mount = Mount::new(directory.path().join("combined.parq"));
        assert_eq!(errno(read(mount.join("v/3.0.0"))), Errno::IO.raw_os_error());
        assert!(read(mount.join("v/.zarrfs/v.npy")).is_err());
        assert!(read(mount.join("v/0.0.0")).is_ok());
        mount.unmount();
    }
    // A missing partition has no references.
    fs::remove_file(&partition).unwrap();
    let mount = Mount::new(directory.path().join("combined.parq"));
    assert!(!mount.join("v/3.0.0").exists() && mount.join("v/0.0.0").exists());
    mount.unmount();
}
