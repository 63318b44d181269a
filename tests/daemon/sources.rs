//! Sources without Zarr metadata, and a source given as mountpoint.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::*;
use crate::support::*;

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Creates directories without Zarr metadata at their root, each with words of the expected message.
fn directories(place: &Place) -> Vec<(PathBuf, &'static [&'static str])> {
    let draft = place.make_dir("draft");
    let entry = r#"{"zarr_format":"https://purl.org/zarr/spec/protocol/core/3.0",
        "metadata_encoding":"x","metadata_key_suffix":".json","extensions":[]}"#;
    write(draft.join("zarr.json"), entry);
    write(draft.join("meta/root.group.json"), "{}");
    let plain = place.make_dir("plain");
    write(plain.join("notes.txt"), "text");
    let older = place.make_dir("older draft");
    let entry = r#"{"zarr_format":"https://purl.org/zarr/spec/protocol/core/3.0",
        "metadata_encoding":"https://purl.org/zarr/spec/protocol/core/3.0","extensions":[]}"#;
    write(older.join("zarr.json"), entry);
    write(older.join("meta/root.group"), "{}");
    let icechunk = place.make_dir("icechunk");
    write(
        icechunk.join("refs/branch.main/ZZZZZZZZ.json"),
        r#"{"snapshot":"0"}"#,
    );
    write(icechunk.join("snapshots/0"), "x");
    write(icechunk.join("manifests/0"), "x");
    vec![
        (place.make_dir("empty"), &["empty"]),
        (
            older,
            &["draft of zarr version 3", "zarr_v3_experimental_api"],
        ),
        (icechunk, &["icechunk before 1.0"]),
        (draft, &["draft of zarr version 3", "meta/root"]),
        (plain, &["notes.txt"]),
    ]
}

#[test]
fn a_source_without_zarr_metadata_is_refused_with_its_content() {
    let place = Place::new();
    for (directory, words) in directories(&place) {
        let mut sources = vec![directory.clone()];
        if fs::read_dir(&directory).unwrap().next().is_some() {
            sources.push(place.zip_of(&directory));
        }
        for source in sources {
            let name = source.file_name().unwrap().to_str().unwrap();
            let refused = place.attempt(&source, &[]);
            refused.failed(32, &["no zarr metadata", "--force", name]);
            refused.failed(32, words);
            place.assert_untouched();
            for force in [&["--force"][..], &["-o", "force"]] {
                place.mount(&source, force);
                let same = Command::new("diff")
                    .arg("-r")
                    .args([&directory, &place.path])
                    .status();
                assert!(same.unwrap().success(), "{source:?}");
                place.unmount(&[]).ok();
            }
        }
    }
    place.assert_untouched();
}

#[test]
fn the_search_for_a_hierarchy_below_is_bounded() {
    let place = Place::new();
    let many = place.make_dir("many");
    for number in 0..20 {
        write(many.join(format!("{number:02}.zarr/zarr.json")), GROUP);
    }
    place.mount(&many, &[]);
    let readme = fs::read_to_string(place.path.join(".zarrfs/README.txt")).unwrap();
    assert!(readme.contains("    19.zarr/.zarrfs\n"), "{readme}");
    place.unmount(&[]).ok();
    let deep = place.make_dir("deep");
    write(deep.join("d/".repeat(30)).join("zarr.json"), GROUP);
    let refused = place.attempt(&deep, &[]);
    refused.failed(
        32,
        &["it contains d/", "none is in the directories below it"],
    );
}

#[test]
fn a_file_of_another_format_is_named() {
    let place = Place::new();
    let store = place.store();
    for (name, option) in [("x.tar", "-cf"), ("x.tar.gz", "-czf")] {
        let mut tar = Command::new("tar");
        run(tar
            .arg(option)
            .arg(place.join(name))
            .arg("-C")
            .args([&store, Path::new(".")]));
    }
    write(place.join("x.h5"), b"\x89HDF\r\n\x1a\n and so on");
    write(place.join("x.nc"), b"CDF\x02 and so on");
    for (source, what) in [
        (place.join("x.tar"), "a tar archive"),
        (place.join("x.tar.gz"), "gzip"),
        (place.join("x.h5"), "HDF5"),
        (place.join("x.nc"), "a NetCDF file"),
        (store.join("zarr.json"), "the directory that holds it"),
    ] {
        place.attempt(&source, &[]).failed(32, &[what]);
        let check = output_of(zarrfs().arg("check").arg(&source));
        check.failed(1, &[what]);
    }
    place.assert_untouched();
}

#[test]
fn swapped_arguments_are_recognised_and_nothing_is_mounted() {
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&store);
    let draft = place.make_dir("draft");
    let entry = r#"{"zarr_format":"https://purl.org/zarr/spec/protocol/core/3.0",
        "metadata_encoding":"x","metadata_key_suffix":".json","extensions":[]}"#;
    write(draft.join("zarr.json"), entry);
    write(draft.join("meta/root.group.json"), "{}");
    let plain = place.make_dir("plain");
    write(plain.join("file"), "");
    let mounted = Place::new();
    mounted.mount(&store, &[]);
    let url = Path::new("s3://bucket/store.zarr");
    let mount = |source: &Path, point: &Path, args: &[&str]| {
        let refused = output_of(zarrfs().arg(source).arg(point).args(args));
        refused.failed(32, &["swapped"]);
        assert!(!refused.err.contains("--nonempty"), "{refused:?}");
        assert!(!refused.err.contains("--force"), "{refused:?}");
        refused
    };
    for point in [&*store, &*zip, url] {
        for source in [&*place.path, &plain] {
            let refused = mount(source, point, &[]);
            let command = format!("zarrfs {} {}", point.display(), source.display());
            assert!(refused.err.contains(&command), "{refused:?}");
        }
        mount(&mounted.path, point, &[]);
    }
    mount(&place.path, &store, &["--nonempty"]);
    assert_serves(&store);
    mounted.unmount(&[]).ok();
    place.assert_untouched();
}

#[test]
fn the_source_is_validated_before_the_mountpoint() {
    let place = Place::new();
    let store = place.store();
    let (plain, missing) = (place.make_dir("plain"), place.join("missing"));
    write(plain.join("file"), "");
    for point in [&store, &plain, &missing, &plain.join("file")] {
        let refused = output_of(zarrfs().arg("no.zarr").arg(point));
        refused.failed(32, &["source no.zarr: no such file"]);
        assert!(!refused.err.contains("--nonempty"), "{refused:?}");
    }
    let refused = output_of(zarrfs().arg(&plain).arg(&missing));
    refused.failed(32, &["plain: no zarr metadata"]);
    let refused = output_of(zarrfs().arg(&store).arg(&plain));
    refused.failed(32, &["mountpoint", "plain", "--nonempty"]);
}
