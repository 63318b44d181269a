//! `zarrfs views` and `zarrfs path`.

use std::path::Path;

use serde_json::Value;

use crate::place::*;
use crate::support::*;

fn views(arguments: &[&str]) -> CommandOutput {
    output_of(zarrfs().arg("views").args(arguments))
}

fn path(arguments: &[&str]) -> CommandOutput {
    output_of(zarrfs().arg("path").args(arguments))
}

fn json(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.ok().out).unwrap()
}

#[test]
fn the_views_of_a_mount_are_those_of_its_source() {
    let place = Place::new();
    let mountpoint = place.path.to_str().unwrap();
    for options in [&[][..], &["--tree", "views"], &["--tree", "both"]] {
        place.mount("demo:", options);
        for key in ["", "v3", "v3/t2m", "v2/sst"] {
            let of_mount = json(&views(&[mountpoint, key, "--json"]));
            let of_source = json(&views(&["demo:", key, "--json"]));
            assert_eq!(of_mount["schema"], "zarrfs.views/1");
            for member in ["node", "key", "node_type", "diagnostics"] {
                assert_eq!(of_mount[member], of_source[member], "{key}: {member}");
            }
            let (ours, theirs) = (&of_mount["views"], &of_source["views"]);
            let count = theirs.as_array().unwrap().len();
            assert_eq!(ours.as_array().unwrap().len(), count, "{key}");
            for (of_mount, of_source) in ours
                .as_array()
                .unwrap()
                .iter()
                .zip(theirs.as_array().unwrap())
            {
                for member in ["name", "format", "description", "listed"] {
                    assert_eq!(of_mount[member], of_source[member], "{key}: {member}");
                }
                let of_source = of_source["example"].as_str().unwrap();
                assert!(of_source.starts_with("zarrfs run demo: -- "), "{of_source}");
                let Some(file) = of_mount["path"].as_str() else {
                    assert_eq!(options, ["--tree", "views"], "{of_mount}");
                    continue;
                };
                assert!(Path::new(file).exists(), "{of_mount}");
                let example = of_mount["example"].as_str().unwrap();
                assert!(example.contains(mountpoint), "{example}");
            }
        }
        let text = views(&[mountpoint, "v3"]);
        assert!(text.ok().out.contains("v3.nc  (NetCDF-4"), "{text:?}");
        place.unmount(&[]).ok();
    }
    views(&["demo:", "v3/nothing"]).failed(1, &["v3/nothing", "no such key"]);
}

#[test]
fn the_path_of_a_view_or_the_reason_for_its_absence_is_printed() {
    let place = Place::new();
    let mountpoint = place.path.to_str().unwrap();
    let below = |path: &str| format!("{mountpoint}/{path}\n");
    place.mount("demo:", &[]);
    for (key, format, file) in [
        ("", "nc", ".zarrfs/demo.nc"),
        ("", "netcdf", ".zarrfs/demo.nc"),
        ("v3", "nc", "v3/.zarrfs/v3.nc"),
        ("/v3/t2m/", "npy", "v3/t2m/.zarrfs/t2m.npy"),
        ("v3/t2m", "nc", "v3/t2m/.zarrfs/t2m.nc"),
        ("v3/t2m", "chunks", "v3/t2m/.zarrfs/chunks"),
        ("", "as-v2", ".zarrfs/as-v2"),
        ("", "readme", ".zarrfs/README.txt"),
    ] {
        assert_eq!(
            path(&[mountpoint, key, "--as", format]).ok().out,
            below(file)
        );
    }
    assert_eq!(
        path(&[mountpoint, "--as", "nc"]).ok().out,
        below(".zarrfs/demo.nc")
    );
    // A directory in the mount, and its directory of views.
    let inside = format!("{mountpoint}/v3");
    assert_eq!(
        path(&[&inside, "--as", "nc"]).ok().out,
        below("v3/.zarrfs/v3.nc")
    );
    let inside = format!("{mountpoint}/v3/.zarrfs");
    assert_eq!(
        path(&[&inside, "t2m", "--as", "npy"]).ok().out,
        below("v3/.zarrfs/t2m.npy")
    );
    let command = format!(
        "ls \"$({} path {mountpoint} v3 --as nc)\"",
        zarrfs().get_program().display()
    );
    assert_eq!(sh(&command), below("v3/.zarrfs/v3.nc"));

    path(&[mountpoint, "v3/t2m", "--as", "json"]).failed(1, &["v3/t2m: no `json`", "has", "npy"]);
    path(&[mountpoint, "v3/time", "--as", "inner"]).failed(1, &["v3/time: no `inner`", "shards"]);
    path(&[mountpoint, "v3", "--as", "as-v2"]).failed(1, &["no `as-v2`"]);
    path(&[mountpoint, "v3", "--as", "gif"]).failed(1, &["unknown format `gif`", "nc"]);
    for (word, meant) in [
        ("netcfd", "netcdf"),
        ("pnf", "png"),
        ("as-v4", "as-v2|as-v3"),
    ] {
        let near = meant
            .split('|')
            .map(|name| format!("did you mean `{name}`?"));
        let near = near.collect::<Vec<_>>().join("|");
        path(&[mountpoint, "v3", "--as", word]).failed(1, &[&near]);
    }
    for word in ["numpy", ".npy", "NPY"] {
        let found = path(&[mountpoint, "v3/t2m", "--as", word]);
        assert_eq!(found.ok().out, below("v3/t2m/.zarrfs/t2m.npy"));
    }
    path(&[mountpoint, "v3/nope", "--as", "npy"]).failed(1, &["v3/nope: no such file"]);
    path(&[mountpoint, "v3/zarr.json", "--as", "npy"]).failed(1, &["neither a group nor an array"]);
    path(&["/tmp", "--as", "nc"]).failed(1, &["/tmp: not a directory of a mount"]);
    place.unmount(&[]).ok();

    place.mount("demo:", &["--tree", "views"]);
    for (key, format, file) in [
        ("", "nc", "demo.nc"),
        ("v3", "nc", "v3/v3.nc"),
        ("v3/t2m", "npy", "v3/t2m.npy"),
        ("v3/t2m", "nc", "v3/t2m.nc"),
        ("v3/t2m", "chunks", "v3/t2m.chunks"),
    ] {
        assert_eq!(
            path(&[mountpoint, key, "--as", format]).ok().out,
            below(file)
        );
    }
    path(&[mountpoint, "v3/t2m", "--as", "info"]).failed(1, &["only the tree of views"]);
    path(&[mountpoint, "v3/nope", "--as", "npy"]).failed(1, &["v3/nope: no such file"]);
    place.unmount(&[]).ok();
    place.mount("demo:", &["--tree", "both"]);
    let file = below("native/v3/t2m/.zarrfs/t2m.npy");
    assert_eq!(path(&[mountpoint, "v3/t2m", "--as", "npy"]).ok().out, file);
    place.unmount(&[]).ok();
    place.mount("demo:", &["--views", "off"]);
    path(&[mountpoint, "--as", "nc"]).failed(1, &["without views"]);
    place.unmount(&[]).ok();
}

#[test]
fn without_syslog_the_log_is_a_file_of_the_user() {
    if Path::new("/dev/log").exists() {
        return skipped("a syslog is running");
    }
    let place = Place::new();
    let state = place.join("state");
    let store = place.store();
    let mut mount = place.command(&store, &[]);
    output_of(mount.env("XDG_STATE_HOME", &state)).ok();
    place.unmount(&[]).ok();
    let log = std::fs::read_to_string(state.join("zarrfs/zarrfs.log")).unwrap();
    let mounted = format!(
        "INFO: {} is mounted on {}",
        store.display(),
        place.path.display()
    );
    assert!(log.contains(&mounted), "{log}");
    assert!(log.lines().all(|line| line.contains("Z zarrfs[")), "{log}");
    // A log file that cannot be written does not prevent a mount.
    std::fs::write(place.join("file"), "").unwrap();
    let mut mount = place.command(&store, &[]);
    output_of(mount.env("XDG_STATE_HOME", place.join("file"))).ok();
    place.unmount(&[]).ok();
}
