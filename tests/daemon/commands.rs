//! `umount` of several mounts and of busy mounts, `mounts`, and a mount without MOUNTPOINT.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::*;
use crate::support::*;

/// Returns the entry of a mountpoint in `zarrfs mounts --json`.
fn listed(path: &Path) -> Option<Value> {
    let output = run(zarrfs().args(["mounts", "--json"]));
    let all: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(all["schema"], "zarrfs.mounts/1");
    let mut all = all["mounts"].as_array().unwrap().iter();
    all.find(|mount| mount["mountpoint"] == path.to_str().unwrap())
        .cloned()
}

#[test]
fn mounts_are_listed_with_their_sources_and_unmounted_together() {
    let (first, second) = (Place::named("first one"), Place::new());
    let store = first.store();
    let pid = first.mount(&store, &[]);
    second.mount("demo:", &[]);
    let found = listed(&first.path).unwrap();
    assert_eq!(found["source"], store.to_str().unwrap());
    assert_eq!(found["pid"], pid);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(found["uid"], uid);
    assert_eq!(listed(&second.path).unwrap()["source"], "demo");
    let table = run(zarrfs().arg("mounts"));
    let line = format!(
        "{} on {} (pid {pid})",
        store.display(),
        first.path.display()
    );
    assert!(table.lines().any(|found| found == line), "{table}");
    // A wrong mountpoint does not prevent the other mounts from being unmounted.
    let missing = second.join("missing");
    let paths = [&first.path, &missing, &second.path];
    output_of(zarrfs().arg("umount").args(paths)).failed(1, &["missing"]);
    assert!(!is_mounted(&first.path) && !is_mounted(&second.path));
    assert_eq!(listed(&first.path), None);
}

#[test]
fn a_busy_mount_names_its_users() {
    let place = Place::new();
    place.mount(place.store(), &[]);
    let mut user = Command::new("sleep")
        .arg("600")
        .current_dir(&place.path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("sleep ({})", user.id());
    place.unmount(&[]).failed(1, &["busy", &name, "--lazy"]);
    let lazy = place.unmount(&["-l"]);
    user.kill().unwrap();
    user.wait().unwrap();
    lazy.ok();
    assert!(!is_mounted(&place.path));
}

#[test]
fn all_mounts_of_a_namespace_are_unmounted() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let other = place.make_dir("other");
    // The mounts of other tests are visible here, but unmounted only in this namespace.
    let script = r#"
        "$0" demo: "$1"; "$0" demo: "$2"
        "$0" umount --all --lazy
        "$0" mounts
    "#;
    let mut alone = Command::new("unshare");
    alone.args([
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-euc",
        script,
    ]);
    let output = run(alone
        .arg(zarrfs().get_program())
        .arg(&place.path)
        .arg(&other));
    let lines: Vec<&str> = output.lines().collect();
    let own = [&place.path, &other].map(|path| format!("{} (demo)", path.display()));
    assert!(
        own.iter().all(|line| lines.contains(&&line[..])),
        "{output}"
    );
}

#[test]
fn unmounting_all_below_a_directory_affects_no_mounts_beside_it() {
    let place = Place::new();
    let (inside, beside) = (place.make_dir("a").join("mount"), place.make_dir("ab"));
    fs::create_dir(&inside).unwrap();
    for path in [&inside, &beside] {
        output_of(zarrfs().arg("demo:").arg(path)).ok();
    }
    let umount = |arguments: &[&str]| {
        let below = inside.parent().unwrap();
        output_of(zarrfs().args(arguments).arg("--below").arg(below))
    };
    let ended = umount(&["umount", "--all"]).ok().out.clone();
    assert_eq!(ended, format!("{} (demo)\n", inside.display()));
    assert!(!is_mounted(&inside) && is_mounted(&beside));
    assert_eq!(umount(&["umount"]).ok().out, "");
    output_of(zarrfs().arg("umount").arg(&beside)).ok();
}

#[test]
fn mounts_of_other_users_are_unmounted_only_by_root_and_all_users() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let binary = place.open_to_nobody();
    let script = r#"
        nobody="setpriv --reuid=nobody --regid=nogroup --clear-groups --"
        chown nobody "$1"
        $nobody "$0" demo: "$1"
        "$0" umount --all --below "$1"
        findmnt -no FSTYPE "$1"
        ! $nobody "$0" umount --all --all-users --below "$1" 2>/dev/null
        findmnt -no FSTYPE "$1"
        "$0" umount --all --all-users --below "$1"
    "#;
    let mut command = Command::new("bash");
    let output = run(command.args(["-euc", script]).arg(binary).arg(&place.path));
    let ended = format!("{} (demo)", place.path.display());
    let expected = ["fuse.zarrfs", "fuse.zarrfs", &ended[..]];
    assert_eq!(output.lines().collect::<Vec<_>>(), expected);
    assert!(!is_mounted(&place.path));
}

#[test]
fn unmounting_all_mounts_of_a_user_affects_no_other_mounts() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let binary = place.open_to_nobody();
    // Mounts of other tests are unmounted only in this namespace.
    let script = r#"
        "$0" demo: "$1"
        setpriv --reuid=nobody --regid=nogroup --clear-groups -- "$0" umount --all --lazy
        findmnt -no FSTYPE "$1"
        "$0" umount "$1"
    "#;
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "--propagation", "private", "bash", "-euc"]);
    let output = run(alone.arg(script).arg(binary).arg(&place.path));
    assert_eq!(output, "fuse.zarrfs\n");
}

#[test]
fn a_source_alone_is_mounted_in_the_runtime_directory() {
    let place = Place::new();
    let store = place.store_named("ocean.zarr");
    let directory = place.make_dir("run");
    let command = |source: &Path, options: &[&str]| {
        let mut command = zarrfs();
        command.arg(source).args(options);
        let output = output_of(command.env("XDG_RUNTIME_DIR", &directory));
        output.ok();
        output
    };
    let mount =
        |source: &Path, options: &[&str]| PathBuf::from(command(source, options).out.trim_end());
    let unmount = |path: &Path| output_of(zarrfs().arg("umount").arg(path));
    let first = mount(&store, &[]);
    let expected = fs::canonicalize(&directory)
        .unwrap()
        .join("zarrfs/ocean.zarr");
    assert_eq!(fs::canonicalize(&first).unwrap(), expected);
    assert_serves(&first);
    // The same command answers with the same mount.
    let again = command(&store, &[]);
    assert_eq!(Path::new(again.out.trim_end()), first);
    assert!(
        again.err.contains("the same mount exists already"),
        "{again:?}"
    );
    let json = command(&store, &["--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["mountpoint"], expected.to_str().unwrap());
    let pid = xattr(&first, "user.zarrfs.pid");
    assert_eq!(Some(json["pid"].to_string()), pid);
    // Other options, and another source of the same name, are another mount.
    let second = mount(&store, &["--views", "list"]);
    assert!(second.ends_with("zarrfs/ocean.zarr-2"), "{second:?}");
    assert_eq!(mount(&store, &["--views", "list"]), second);
    let other = place.make_dir("other").join("ocean.zarr");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let third = mount(&other, &[]);
    assert!(third.ends_with("zarrfs/ocean.zarr-3"), "{third:?}");
    for path in [&first, &second, &third] {
        unmount(path).ok();
        assert!(!path.exists(), "the directory is removed");
    }
    let mut without = zarrfs();
    let without = without.arg(&store).env_remove("XDG_RUNTIME_DIR");
    output_of(without).failed(32, &["MOUNTPOINT", "XDG_RUNTIME_DIR"]);
}

#[test]
fn an_option_creates_the_mountpoint() {
    let place = Place::new();
    let path = place.join("new/deep");
    let store = place.store();
    let mount = |more: &[&str]| output_of(zarrfs().arg(&store).arg(&path).args(more));
    mount(&[]).failed(32, &["new/deep", "--mkdir"]);
    assert!(!path.exists());
    mount(&["--mkdir"]).ok();
    assert_serves(&path);
    // Also in place of a mount whose daemon was killed, as a container that is started again.
    kill_daemon(daemon_of(&path));
    mount(&["--mkdir"]).ok();
    assert_serves(&path);
    output_of(zarrfs().arg("umount").arg(&path)).ok();
}

#[test]
fn an_unknown_word_is_not_mounted() {
    let place = Place::new();
    let store = place.store();
    let mount = |word: &str| output_of(zarrfs().arg(word).arg(&store));
    mount("treee").failed(
        2,
        &[
            "`treee`",
            "neither a command nor a file",
            "did you mean `tree`",
        ],
    );
    mount("umnt").failed(2, &["`umnt`", "`umount`"]);
    mount("ls").failed(2, &["`ls` is neither a command nor a file"]);
    assert!(!is_mounted(&store));
}
